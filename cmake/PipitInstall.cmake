# install(), the CMake package `pipit` and its pkg-config file. tests/package/ builds a consumer with each.

include(CMakePackageConfigHelpers)

get_property(libraries GLOBAL PROPERTY PIPIT_LIBRARIES)
install(TARGETS ${libraries} EXPORT pipitTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev)
if(PIPIT_SHARED)
  install(TARGETS pipit_shared EXPORT pipitSharedTargets
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library NAMELINK_COMPONENT dev)
endif()
if(PIPIT_APPS)
  set(command pipit_command)
  if(PIPIT_COMMAND_SHARED)
    set(command pipit_command_shared)
  endif()
  install(TARGETS ${command} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT command)
  if(PIPIT_SHARED)  # what Debian packages contain instead; installed only if it is asked for
    install(TARGETS pipit_command_shared RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT command_shared
            EXCLUDE_FROM_ALL)
  endif()
  include(PipitDocuments)
endif()

# The public headers; everything below is private.
file(GLOB headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/pipit/*.h)
install(FILES ${headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/pipit COMPONENT dev)

if(PIPIT_HAVE_CUDA)
  # The CUDA runtime goes along, under a name of ours, so that consumers need no toolkit.
  file(REAL_PATH ${CUDA_cudart_static_LIBRARY} cudart)
  install(FILES ${cudart} DESTINATION ${CMAKE_INSTALL_LIBDIR} RENAME libpipit_cudart.a COMPONENT dev)
endif()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/pipit)
install(EXPORT pipitTargets NAMESPACE pipit:: DESTINATION ${package_dir} COMPONENT dev)
if(PIPIT_SHARED)
  install(EXPORT pipitSharedTargets NAMESPACE pipit:: DESTINATION ${package_dir} COMPONENT dev)
endif()
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/pipitConfig.cmake.in ${PROJECT_BINARY_DIR}/pipitConfig.cmake
                              INSTALL_DESTINATION ${package_dir} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/pipitConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/pipitConfig.cmake ${PROJECT_BINARY_DIR}/pipitConfigVersion.cmake
        DESTINATION ${package_dir} COMPONENT dev)

# pkg-config: paths relative to the file itself, so that the prefix may be chosen when installing.
set(pc_dir ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH pc_to_prefix ${pc_dir} ${CMAKE_INSTALL_PREFIX})
file(RELATIVE_PATH pc_to_include ${pc_dir} ${CMAKE_INSTALL_FULL_INCLUDEDIR})
# Static libraries, each before those that it uses, the highest folder first. libpipit.a stands for all of them: what
# -lpipit means to `g++ -static`.
list(REVERSE libraries)
if(PIPIT_HAVE_CUDA)
  list(APPEND libraries pipit_cudart)
endif()
list(TRANSFORM libraries PREPEND "-l" OUTPUT_VARIABLE static_libraries)
list(JOIN static_libraries " " archives)
file(WRITE ${PROJECT_BINARY_DIR}/libpipit.a "/* GNU ld script */\nGROUP ( ${archives} )\n")
install(FILES ${PROJECT_BINARY_DIR}/libpipit.a DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev)

# pkg-config's files. What a program that links the static libraries needs besides, as packages and as libraries:
set(needed_packages fmt protobuf-lite zlib)
set(needed_libraries -lfmt -lprotobuf-lite)
if(PIPIT_HAVE_IMAGE_LIBRARIES)
  list(APPEND needed_packages libjpeg libpng)
  list(APPEND needed_libraries -ljpeg -lpng)
endif()
if(PIPIT_HAVE_WEBP)
  list(APPEND needed_packages libwebp)
  list(APPEND needed_libraries -lwebp)
endif()
list(APPEND needed_libraries -lz)
set(static_options -pthread)
if(PIPIT_HAVE_CUDA)
  list(APPEND static_options -ldl -lrt)
endif()
# A shared library that is made of the static ones exports nothing of them. An option for each: mold 1.10 takes all
# memory for a list.
list(TRANSFORM libraries REPLACE "^(.+)$" "-Wl,--exclude-libs,lib\\1.a" OUTPUT_VARIABLE hidden)
list(PREPEND static_options ${hidden})
set(shared_options "")
if(NOT CMAKE_INSTALL_PREFIX STREQUAL "/usr")
  set(shared_options "-Wl,-rpath,\${libdir}")  # the system's loader does not look there, or not before ldconfig has run
endif()

# pipit_pkg_config(NAME CFLAGS LIBRARIES REQUIRES PRIVATE): NAME.pc.
function(pipit_pkg_config pc_name pc_cflags pc_libs pc_requires pc_private)
  foreach(value pc_cflags pc_libs pc_requires pc_private)
    string(REPLACE ";" " " ${value} "${${value}}")
  endforeach()
  configure_file(${PROJECT_SOURCE_DIR}/cmake/pipit.pc.in ${PROJECT_BINARY_DIR}/${pc_name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${pc_name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)
endfunction()

# pipit-c for C programs: no compiler of C links with the library of C++. Who links libpipit.so needs no package of what
# it uses, so these are libraries there, for `pkg-config --static` and programs that share nothing.
set(cxx_library -lstdc++ -lm)
if(PIPIT_SHARED)
  set(private ${static_options} ${needed_libraries})
  pipit_pkg_config(pipit -std=c++20 "-lpipit;${shared_options}" "" "${private}")
  pipit_pkg_config(pipit-c "" "-lpipit;${shared_options}" "" "${private};${cxx_library}")
else()
  pipit_pkg_config(pipit -std=c++20 "${static_libraries};${static_options}" "${needed_packages}" "")
  pipit_pkg_config(pipit-c "" "${static_libraries};${static_options};${cxx_library}" "${needed_packages}" "")
endif()
# The static libraries where the shared one is installed as well.
pipit_pkg_config(pipit-static -std=c++20 "${static_libraries};${static_options}" "${needed_packages}" "")

include(PipitPackages)
