# What `cmake --install` and `cpack` ship: a runtime component (libkdac, shared
# and as an archive, its header, the CMake package, kdac-pack) that needs the C
# library only, and a tools component (the compiler) that needs LLVM's shared
# libraries.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/kdac)

install(TARGETS KdacShared EXPORT kdacTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/libkdac.a
  DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime)
install(TARGETS kdac-pack DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT runtime)
install(FILES ${PROJECT_SOURCE_DIR}/include/kdac-c/kdac.h
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/kdac-c COMPONENT runtime)
install(EXPORT kdacTargets NAMESPACE kdac:: DESTINATION ${package_dir}
  COMPONENT runtime)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/kdacConfig.cmake.in
  ${PROJECT_BINARY_DIR}/kdacConfig.cmake INSTALL_DESTINATION ${package_dir}
  PATH_VARS CMAKE_INSTALL_BINDIR CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_INCLUDEDIR)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/kdacConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES
  ${PROJECT_BINARY_DIR}/kdacConfig.cmake
  ${PROJECT_BINARY_DIR}/kdacConfigVersion.cmake
  ${PROJECT_SOURCE_DIR}/cmake/KdacAddKernels.cmake
  DESTINATION ${package_dir} COMPONENT runtime)
# Relative, so that the tree may be moved.
file(RELATIVE_PATH kdac_prefix_of_pc /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(${PROJECT_SOURCE_DIR}/cmake/kdac.pc.in
  ${PROJECT_BINARY_DIR}/kdac.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/kdac.pc
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT runtime)
# Optional Python on top of libkdac: FLA's operators, Triton's loader.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/python/kdac_fla
  DESTINATION ${CMAKE_INSTALL_DATADIR}/kdac/python COMPONENT runtime
  PATTERN "__pycache__" EXCLUDE)
install(FILES ${PROJECT_SOURCE_DIR}/python/kdac_triton.py
  DESTINATION ${CMAKE_INSTALL_DATADIR}/kdac/python COMPONENT runtime)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs/examples
  DESTINATION ${CMAKE_INSTALL_DATADIR}/kdac COMPONENT runtime)

set(KDAC_COMPONENTS runtime)
if(NOT KDAC_RUNTIME_ONLY)
  list(APPEND KDAC_COMPONENTS tools)
  # The compiler finds LLVM's libraries where they were when it was linked.
  set_target_properties(kdac kdac-opt PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
  install(TARGETS kdac kdac-opt
    DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tools)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/packs
    DESTINATION ${CMAKE_INSTALL_DATADIR}/kdac COMPONENT tools)
endif()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME kdac)
set(CPACK_PACKAGE_CONTACT "The kdac maintainers <maintainers@kdac.example>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_ALL ${KDAC_COMPONENTS})
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME kdac-runtime)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_DEPENDS "libc6")
set(CPACK_COMPONENT_RUNTIME_DESCRIPTION
  "Runtime of kdac kernel packs\n libkdac, its C header and CMake package, and kdac-pack.")
set(CPACK_DEBIAN_TOOLS_PACKAGE_NAME kdac-tools)
set(CPACK_DEBIAN_TOOLS_PACKAGE_DEPENDS
  "kdac-runtime (= ${PROJECT_VERSION}), libc6, libstdc++6, libllvm22, libmlir-22, lld-22")
set(CPACK_COMPONENT_TOOLS_DESCRIPTION
  "Compiler of kdac kernel packs\n kdac, kdac-opt, and pack specs to start from.")
include(CPack)
