# -DPIPIT_FETCH_DEPENDENCIES=ON: libraries that are not installed are downloaded and built with pipit, as static ones.
# Nothing is downloaded otherwise. FETCHCONTENT_TRY_FIND_PACKAGE_MODE=NEVER takes none of the installed ones, and
# FETCHCONTENT_SOURCE_DIR_NAME sources that are there already. PIPIT_FETCHED lists what was fetched.
#
# libjpeg-turbo, libpng and libwebp are not among them: stb_image decodes without the first two, and WebP is not read.

option(PIPIT_FETCH_DEPENDENCIES "Download and build the libraries that are not installed" OFF)
set(PIPIT_FETCHED "")
if(NOT PIPIT_FETCH_DEPENDENCIES)
  return()
endif()
include(FetchContent)

# pipit_wants(NAME RESULT): whether the package NAME has to be fetched.
function(pipit_wants name result)
  set(${name}_FOUND OFF)
  if(NOT FETCHCONTENT_TRY_FIND_PACKAGE_MODE STREQUAL NEVER)
    find_package(${name} QUIET ${ARGN})
  endif()
  set(wanted ON)
  if(${name}_FOUND)
    set(wanted OFF)
  endif()
  set(${result} ${wanted} PARENT_SCOPE)
endfunction()

# pipit_fetch(NAME REPOSITORY TAG …): its sources, and what its CMakeLists.txt builds; find_package(NAME) finds that
# from then on.
macro(pipit_fetch name repository tag)
  message(STATUS "${name} is not installed: fetching ${tag}")
  FetchContent_Declare(${name} GIT_REPOSITORY ${repository} GIT_TAG ${tag} ${ARGN})
  FetchContent_MakeAvailable(${name})
  list(APPEND PIPIT_FETCHED ${name})
endmacro()

# pipit_fetch_headers(NAME TARGET FOLDER REPOSITORY TAG …): a library of headers, which are in FOLDER of the sources.
function(pipit_fetch_headers name target folder repository tag)
  pipit_fetch(${name} ${repository} ${tag} SOURCE_SUBDIR no-project ${ARGN})
  string(TOLOWER ${name} lower)
  cmake_path(APPEND ${lower}_SOURCE_DIR ${folder} OUTPUT_VARIABLE include)
  if(NOT TARGET ${target})
    string(MAKE_C_IDENTIFIER pipit_fetched_${name} interface)
    add_library(${interface} INTERFACE)
    target_include_directories(${interface} SYSTEM INTERFACE ${include})
    add_library(${target} ALIAS ${interface})
  endif()
  set(PIPIT_FETCHED ${PIPIT_FETCHED} PARENT_SCOPE)
  set(PIPIT_HEADERS_OF_${name} ${include} PARENT_SCOPE)
endfunction()

# In a function of its own: options of these projects are variables here, and none of pipit's users' projects sees them.
function(pipit_fetch_libraries)
  set(CMAKE_POLICY_DEFAULT_CMP0077 NEW)  # options of old projects follow the variables
  set(CMAKE_POLICY_VERSION_MINIMUM 3.5)
  set(CMAKE_UNITY_BUILD OFF)
  set(CMAKE_WARN_DEPRECATED OFF)
  set(CMAKE_SUPPRESS_DEVELOPER_WARNINGS ON)
  set(BUILD_SHARED_LIBS OFF)
  set(BUILD_TESTING OFF)

  pipit_wants(fmt wanted)
  if(wanted)
    set(FMT_SYSTEM_HEADERS ON)
    pipit_fetch(fmt https://github.com/fmtlib/fmt 9.1.0 GIT_SHALLOW ON OVERRIDE_FIND_PACKAGE)
  endif()

  pipit_wants(nlohmann_json wanted)
  if(wanted)
    pipit_fetch_headers(nlohmann_json nlohmann_json::nlohmann_json include https://github.com/nlohmann/json v3.11.2
                        GIT_SHALLOW ON OVERRIDE_FIND_PACKAGE)
  endif()

  pipit_wants(ZLIB wanted)
  if(wanted)
    set(ZLIB_BUILD_EXAMPLES OFF)
    set(SKIP_INSTALL_ALL ON)
    pipit_fetch(ZLIB https://github.com/madler/zlib v1.3.1 GIT_SHALLOW ON OVERRIDE_FIND_PACKAGE)
    set_property(DIRECTORY ${zlib_SOURCE_DIR} PROPERTY EXCLUDE_FROM_ALL ON)
    target_include_directories(zlibstatic SYSTEM INTERFACE ${zlib_SOURCE_DIR} ${zlib_BINARY_DIR})
    add_library(ZLIB::ZLIB ALIAS zlibstatic)
  endif()

  # FindProtobuf has protobuf_generate(), with whatever is installed. The last version that needs no other library.
  find_package(Protobuf QUIET MODULE)
  pipit_wants(Protobuf wanted)
  if(wanted)
    foreach(variable BUILD_TESTS WITH_ZLIB INSTALL BUILD_SHARED_LIBS)
      set(protobuf_${variable} OFF)
    endforeach()
    pipit_fetch(Protobuf https://github.com/protocolbuffers/protobuf v21.12 GIT_SHALLOW ON GIT_SUBMODULES ""
                OVERRIDE_FIND_PACKAGE)
    set_property(DIRECTORY ${protobuf_SOURCE_DIR} PROPERTY EXCLUDE_FROM_ALL ON)
  endif()

  if(NOT PIPIT_MINIMAL)
    pipit_wants(Eigen3 wanted NO_MODULE)
    if(wanted)
      pipit_fetch_headers(Eigen3 Eigen3::Eigen . https://gitlab.com/libeigen/eigen 3.4.0 GIT_SHALLOW ON
                          OVERRIDE_FIND_PACKAGE)
    endif()
  endif()

  if(PIPIT_APPS)
    pipit_wants(CLI11 wanted)
    if(wanted)
      pipit_fetch_headers(CLI11 CLI11::CLI11 include https://github.com/CLIUtils/CLI11 v2.1.2 GIT_SHALLOW ON
                          GIT_SUBMODULES "" OVERRIDE_FIND_PACKAGE)
    endif()
  endif()

  # Headers without a package.
  if(NOT FETCHCONTENT_TRY_FIND_PACKAGE_MODE STREQUAL NEVER)
    find_path(XXHASH_INCLUDE_DIR NAMES xxhash.h)
    find_path(STB_INCLUDE_DIR NAMES stb_image.h PATH_SUFFIXES stb)
    find_package(JPEG QUIET)
    find_package(PNG QUIET)
  endif()
  if(NOT XXHASH_INCLUDE_DIR)
    pipit_fetch_headers(xxHash pipit_xxhash . https://github.com/Cyan4973/xxHash v0.8.1 GIT_SHALLOW ON)
    set(XXHASH_INCLUDE_DIR ${PIPIT_HEADERS_OF_xxHash} CACHE PATH "Where xxhash.h is" FORCE)
  endif()
  if(NOT STB_INCLUDE_DIR AND NOT (JPEG_FOUND AND PNG_FOUND))
    pipit_fetch_headers(stb pipit_stb . https://github.com/nothings/stb 8b5f1f37b5b75829fc72d38e7b5d4bcbf8a26d55)
    set(STB_INCLUDE_DIR ${PIPIT_HEADERS_OF_stb} CACHE PATH "Where stb_image.h is" FORCE)
  endif()
  set(PIPIT_FETCHED ${PIPIT_FETCHED} PARENT_SCOPE)
endfunction()

pipit_fetch_libraries()
# The system's libraries would bring the headers that were not to be taken.
if(FETCHCONTENT_TRY_FIND_PACKAGE_MODE STREQUAL NEVER)
  set(PIPIT_IMAGE_LIBRARIES OFF)
  set(PIPIT_WEBP OFF)
endif()
