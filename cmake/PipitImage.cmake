# Finds libjpeg-turbo and libpng as -DPIPIT_IMAGE_LIBRARIES says and sets PIPIT_HAVE_IMAGE_LIBRARIES. Without them
# stb_image, compiled in, reads JPEG and PNG.

string(TOUPPER "${PIPIT_IMAGE_LIBRARIES}" _pipit_image)
if(NOT _pipit_image MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "PIPIT_IMAGE_LIBRARIES is '${PIPIT_IMAGE_LIBRARIES}': expected ON, OFF or AUTO")
endif()

set(PIPIT_HAVE_IMAGE_LIBRARIES OFF)
if(NOT _pipit_image STREQUAL "OFF")
  find_package(JPEG)
  find_package(PNG)  # and ZLIB, which it needs
  if(JPEG_FOUND AND PNG_FOUND)
    # Other libraries of that name interpolate chroma differently.
    include(CheckCXXSymbolExists)
    set(CMAKE_REQUIRED_LIBRARIES JPEG::JPEG)
    check_cxx_symbol_exists(LIBJPEG_TURBO_VERSION_NUMBER "cstdio;jpeglib.h" PIPIT_JPEG_IS_TURBO)
    unset(CMAKE_REQUIRED_LIBRARIES)
  endif()
  if(PIPIT_JPEG_IS_TURBO)
    set(PIPIT_HAVE_IMAGE_LIBRARIES ON)
  elseif(_pipit_image STREQUAL "ON")
    message(FATAL_ERROR "PIPIT_IMAGE_LIBRARIES=ON but libjpeg-turbo and libpng were not both found. Install them "
                        "(Debian: libjpeg-dev libpng-dev), or configure with -DPIPIT_IMAGE_LIBRARIES=OFF for stb_image")
  else()
    message(STATUS "libjpeg-turbo and libpng were not both found: stb_image decodes, not bit for bit as Pillow does")
  endif()
endif()
# The tests run both decoders where both are there.
find_path(STB_INCLUDE_DIR NAMES stb_image.h PATH_SUFFIXES stb)
if(NOT PIPIT_HAVE_IMAGE_LIBRARIES AND NOT STB_INCLUDE_DIR)
  message(FATAL_ERROR "Nothing was found to decode images with: install libjpeg-turbo and libpng "
                      "(Debian: libjpeg-dev libpng-dev), or stb (libstb-dev)")
endif()

# WebP as -DPIPIT_WEBP says: sets PIPIT_HAVE_WEBP. The target has the name that libwebp's own package gives it.
string(TOUPPER "${PIPIT_WEBP}" _pipit_webp)
if(NOT _pipit_webp MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "PIPIT_WEBP is '${PIPIT_WEBP}': expected ON, OFF or AUTO")
endif()
set(PIPIT_HAVE_WEBP OFF)
if(NOT _pipit_webp STREQUAL "OFF")
  find_package(WebP CONFIG QUIET)  # a static one names what it needs there; Debian's has no such file
  if(NOT TARGET WebP::webp)
    find_path(WEBP_INCLUDE_DIR NAMES webp/decode.h)
    find_library(WEBP_LIBRARY NAMES webp)
  endif()
  if(TARGET WebP::webp OR (WEBP_INCLUDE_DIR AND WEBP_LIBRARY))
    set(PIPIT_HAVE_WEBP ON)
    if(NOT TARGET WebP::webp)
      add_library(WebP::webp UNKNOWN IMPORTED)
      set_target_properties(WebP::webp PROPERTIES IMPORTED_LOCATION "${WEBP_LIBRARY}"
                            INTERFACE_INCLUDE_DIRECTORIES "${WEBP_INCLUDE_DIR}")
    endif()
  elseif(_pipit_webp STREQUAL "ON")
    message(FATAL_ERROR "PIPIT_WEBP=ON but libwebp was not found. Install it (Debian: libwebp-dev), or configure "
                        "with -DPIPIT_WEBP=OFF, which reads no WebP")
  else()
    message(STATUS "libwebp was not found: WebP is not read")
  endif()
endif()
