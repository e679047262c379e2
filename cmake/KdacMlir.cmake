# Finds Debian's LLVM/MLIR 22 and defines how kdac's compiler libraries and
# tools are built against the shared libraries (static ones do not work there).
find_package(MLIR 22.1 REQUIRED CONFIG
  PATHS /usr/lib/llvm-22/lib/cmake/mlir NO_DEFAULT_PATH)
if(NOT LLVM_PACKAGE_VERSION VERSION_EQUAL "22.1.8")
  message(WARNING "kdac is tested with LLVM 22.1.8, found ${LLVM_PACKAGE_VERSION}")
endif()
list(APPEND CMAKE_MODULE_PATH ${MLIR_CMAKE_DIR} ${LLVM_CMAKE_DIR})
set(MLIR_BINARY_DIR ${CMAKE_BINARY_DIR})
set(LLVM_RUNTIME_OUTPUT_INTDIR ${CMAKE_BINARY_DIR}/bin)
set(LLVM_LIBRARY_OUTPUT_INTDIR ${CMAKE_BINARY_DIR}/lib)
include(TableGen)
include(AddLLVM)
include(AddMLIR)
separate_arguments(KDAC_LLVM_DEFINITIONS NATIVE_COMMAND ${LLVM_DEFINITIONS})

# One precompiled header for every target that uses MLIR.
add_library(kdac_pch OBJECT ${PROJECT_SOURCE_DIR}/cmake/Pch.cpp)
target_compile_definitions(kdac_pch PUBLIC ${KDAC_LLVM_DEFINITIONS})
target_include_directories(kdac_pch SYSTEM PUBLIC
  ${LLVM_INCLUDE_DIRS} ${MLIR_INCLUDE_DIRS})
target_link_libraries(kdac_pch PUBLIC kdac_options)
target_precompile_headers(kdac_pch PRIVATE ${PROJECT_SOURCE_DIR}/cmake/Pch.h)
target_compile_options(kdac_pch PRIVATE
  $<$<CXX_COMPILER_ID:Clang>:SHELL:-Xclang -fno-pch-timestamp>)

function(kdac_use_mlir name)
  target_compile_definitions(${name} PRIVATE ${KDAC_LLVM_DEFINITIONS})
  target_include_directories(${name} SYSTEM PUBLIC
    ${LLVM_INCLUDE_DIRS} ${MLIR_INCLUDE_DIRS})
  target_link_libraries(${name} PUBLIC MLIR LLVM)
  target_precompile_headers(${name} REUSE_FROM kdac_pch)
  target_compile_options(${name} PRIVATE
    $<$<CXX_COMPILER_ID:Clang>:SHELL:-Xclang -fno-pch-timestamp>)
  add_dependencies(${name} kdac_tablegen)
endfunction()

# kdac_mlir_library(Name SOURCES... LINK libs...)
function(kdac_mlir_library name)
  kdac_library(${name} ${ARGN})
  kdac_use_mlir(${name})
endfunction()

# kdac_mlir_tool(name SOURCES... LINK libs...)
function(kdac_mlir_tool name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  # -fPIC rather than the -fPIE of executables: the precompiled header has it.
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${name} PRIVATE -fPIC)
  target_link_libraries(${name} PRIVATE kdac_options ${ARG_LINK})
  kdac_use_mlir(${name})
endfunction()
