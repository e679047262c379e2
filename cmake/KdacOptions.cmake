# Options shared by every target. `kdac_options` carries what is ours alone, so
# that code generated from TableGen is not judged by our warnings.
add_library(kdac_options INTERFACE)
target_include_directories(kdac_options INTERFACE
  ${PROJECT_SOURCE_DIR}/include ${PROJECT_BINARY_DIR}/include)
target_compile_options(kdac_options INTERFACE
  -Wall -Wextra -Wno-unused-parameter -fno-exceptions)
if(KDAC_SANITIZE)
  # Kernels are called through pointers to code that carries no type of clang's:
  # checking it would read before their first byte.
  target_compile_options(kdac_options INTERFACE
    -fsanitize=address,undefined -fno-sanitize=function -fno-omit-frame-pointer)
  target_link_options(kdac_options INTERFACE -fsanitize=address,undefined)
endif()

# kdac_library(Name SOURCES... LINK libs...): a library that needs no LLVM.
function(kdac_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC kdac_options ${ARG_LINK})
endfunction()
