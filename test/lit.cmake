# lit through ctest: one ctest test per directory, so that ctest's closing line
# counts them and `ctest -R lit.Dialect` runs one.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
find_program(KDAC_LIT NAMES lit-22 lit
  HINTS ${LLVM_TOOLS_BINARY_DIR} REQUIRED)
find_program(KDAC_PTXAS_PROGRAM ptxas HINTS /usr/local/cuda/bin)
set(KDAC_PTXAS "${KDAC_PTXAS_PROGRAM}")
if(NOT KDAC_PTXAS)
  set(KDAC_PTXAS "")
  message(STATUS "no ptxas: tests that assemble are unsupported here")
endif()
configure_file(${CMAKE_CURRENT_LIST_DIR}/lit.site.cfg.py.in
  ${CMAKE_CURRENT_BINARY_DIR}/lit.site.cfg.py @ONLY)

# kdac_lit(Directory): a ctest test `lit.Directory`.
function(kdac_lit directory)
  add_test(NAME lit.${directory}
    COMMAND ${KDAC_LIT} -sv
      ${CMAKE_CURRENT_BINARY_DIR}/${directory})
  file(MAKE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/${directory})
endfunction()
