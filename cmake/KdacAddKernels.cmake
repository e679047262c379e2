# kdac_add_kernels(target SPEC pack.yaml ARCHS host sm_90a ... [NAME name]
#                  [PTXAS path] [NO_ASSEMBLE])
#
# Compiles the pack spec at build time and links the kernels into `target`, which
# includes "name.h" (default: the spec's file name). ARCHS replaces the targets of
# the spec. GPU code is assembled by ptxas if it is found, or by PTXAS;
# NO_ASSEMBLE leaves PTX to the driver. docs/EMBEDDING.md.
function(kdac_add_kernels target)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "NO_ASSEMBLE" "SPEC;NAME;PTXAS" "ARCHS")
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
  add_custom_command(OUTPUT ${stem}.c ${stem}.h
    COMMAND ${KDAC_COMPILER} embed ${stem}.kdac --name=${ARG_NAME} -o ${dir}
    DEPENDS ${stem}.kdac ${KDAC_COMPILER}
    COMMENT "Embedding kernels of ${ARG_SPEC}" VERBATIM)
  target_sources(${target} PRIVATE ${stem}.c ${stem}.h)
  target_include_directories(${target} PRIVATE ${dir})
  target_link_libraries(${target} PRIVATE kdac::kdac)
endfunction()
