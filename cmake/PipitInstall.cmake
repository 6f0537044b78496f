# install(), the CMake package `pipit` and its pkg-config file. tests/package/ builds a consumer with each.

include(CMakePackageConfigHelpers)

get_property(libraries GLOBAL PROPERTY PIPIT_LIBRARIES)
install(TARGETS ${libraries} EXPORT pipitTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(PIPIT_APPS)
  install(TARGETS pipit_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  include(PipitDocuments)
endif()

# The public headers; everything below is private.
file(GLOB headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/pipit/*.h)
install(FILES ${headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/pipit)

if(PIPIT_HAVE_CUDA)
  # The CUDA runtime goes along, under a name of ours, so that consumers need no toolkit.
  file(REAL_PATH ${CUDA_cudart_static_LIBRARY} cudart)
  install(FILES ${cudart} DESTINATION ${CMAKE_INSTALL_LIBDIR} RENAME libpipit_cudart.a)
endif()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/pipit)
install(EXPORT pipitTargets NAMESPACE pipit:: DESTINATION ${package_dir})
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/pipitConfig.cmake.in ${PROJECT_BINARY_DIR}/pipitConfig.cmake
                              INSTALL_DESTINATION ${package_dir} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/pipitConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/pipitConfig.cmake ${PROJECT_BINARY_DIR}/pipitConfigVersion.cmake
        DESTINATION ${package_dir})

# pkg-config: paths relative to the file itself, so that the prefix may be chosen when installing.
set(pc_dir ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH pc_to_prefix ${pc_dir} ${CMAKE_INSTALL_PREFIX})
file(RELATIVE_PATH pc_to_include ${pc_dir} ${CMAKE_INSTALL_FULL_INCLUDEDIR})
# Static libraries: each before those that it uses, the highest folder first.
list(REVERSE libraries)
list(TRANSFORM libraries PREPEND "-l" OUTPUT_VARIABLE pc_libraries)
list(APPEND pc_libraries -pthread)
if(PIPIT_HAVE_CUDA)
  list(APPEND pc_libraries -lpipit_cudart -ldl -lrt)
endif()
set(pc_requires "fmt protobuf-lite zlib")
if(PIPIT_HAVE_IMAGE_LIBRARIES)
  string(APPEND pc_requires " libjpeg libpng")
endif()
if(PIPIT_HAVE_WEBP)
  string(APPEND pc_requires " libwebp")
endif()
list(JOIN pc_libraries " " pc_libraries)
configure_file(${CMAKE_CURRENT_LIST_DIR}/pipit.pc.in ${PROJECT_BINARY_DIR}/pipit.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/pipit.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
