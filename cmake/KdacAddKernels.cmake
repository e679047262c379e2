# kdac_add_kernels(target SPEC pack.yaml ARCHS host sm_90a ... [NAME name]
#                  [PTXAS path] [NO_ASSEMBLE] [OBJECT] [STATIC])
#
# Compiles the pack spec at build time and links the kernels into `target`, which
# includes "name.h" (default: the spec's file name). ARCHS replaces the targets of
# the spec. GPU code is assembled by ptxas if it is found, or by PTXAS;
# NO_ASSEMBLE leaves PTX to the driver. OBJECT puts the kernels into an object
# file, which spares the C compiler megabytes of numbers; STATIC links
# kdac::static instead of kdac::kdac. docs/EMBEDDING.md.

# The word of `kdac embed --object` for the machine that is compiled for.
function(kdac_object_machine out_machine)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
    set(${out_machine} x86-64 PARENT_SCOPE)
  elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64|ARM64)$")
    set(${out_machine} aarch64 PARENT_SCOPE)
  else()
    message(FATAL_ERROR "kdac_add_kernels: OBJECT is for x86-64 and aarch64, not "
      "for '${CMAKE_SYSTEM_PROCESSOR}'; leave it out")
  endif()
endfunction()

function(kdac_add_kernels target)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "NO_ASSEMBLE;OBJECT;STATIC"
    "SPEC;NAME;PTXAS" "ARCHS")
  if(NOT TARGET ${target})
    message(FATAL_ERROR "kdac_add_kernels: there is no target '${target}'")
  endif()
  if(NOT ARG_SPEC)
    message(FATAL_ERROR "kdac_add_kernels(${target}): SPEC is missing")
  endif()
  if(ARG_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR
      "kdac_add_kernels(${target}): unknown '${ARG_UNPARSED_ARGUMENTS}'")
  endif()
  if(NOT KDAC_COMPILER)
    message(FATAL_ERROR "kdac_add_kernels(${target}): the compiler 'kdac' was not "
      "found; install kdac-tools, or set KDAC_COMPILER to its path")
  endif()
  if(ARG_STATIC AND NOT TARGET kdac::static)
    message(FATAL_ERROR "kdac_add_kernels(${target}): STATIC needs libkdac.a, "
      "which this installation of kdac lacks; leave it out")
  endif()
  get_filename_component(spec ${ARG_SPEC} ABSOLUTE)
  if(NOT EXISTS ${spec})
    message(FATAL_ERROR "kdac_add_kernels(${target}): no file ${spec}")
  endif()
  if(NOT ARG_NAME)
    get_filename_component(ARG_NAME ${spec} NAME_WE)
    string(MAKE_C_IDENTIFIER ${ARG_NAME} ARG_NAME)
  endif()
  set(options)
  if(ARG_ARCHS)
    string(REPLACE ";" "," archs "${ARG_ARCHS}")
    list(APPEND options --targets=${archs})
  endif()
  if(ARG_NO_ASSEMBLE)
    list(APPEND options --no-assemble)
  endif()
  if(ARG_PTXAS)
    list(APPEND options --ptxas=${ARG_PTXAS})
  endif()
  set(dir ${CMAKE_CURRENT_BINARY_DIR}/kdac/${target})
  file(MAKE_DIRECTORY ${dir})
  set(stem ${dir}/${ARG_NAME})
  add_custom_command(OUTPUT ${stem}.kdac
    COMMAND ${KDAC_COMPILER} compile ${spec} ${options} -o ${stem}.kdac
    DEPENDS ${spec} ${KDAC_COMPILER}
    COMMENT "Compiling kernels of ${ARG_SPEC}" VERBATIM)
  set(files ${stem}.c ${stem}.h)
  set(embed --name=${ARG_NAME})
  if(ARG_OBJECT)
    kdac_object_machine(machine)
    list(APPEND embed --object=${machine})
    list(APPEND files ${stem}.o)
    set_source_files_properties(${stem}.o PROPERTIES
      EXTERNAL_OBJECT YES GENERATED YES)
  endif()
  add_custom_command(OUTPUT ${files}
    COMMAND ${KDAC_COMPILER} embed ${stem}.kdac ${embed} -o ${dir}
    DEPENDS ${stem}.kdac ${KDAC_COMPILER}
    COMMENT "Embedding kernels of ${ARG_SPEC}" VERBATIM)
  target_sources(${target} PRIVATE ${files})
  target_include_directories(${target} PRIVATE ${dir})
  if(ARG_STATIC)
    target_link_libraries(${target} PRIVATE kdac::static)
  else()
    target_link_libraries(${target} PRIVATE kdac::kdac)
  endif()
endfunction()
