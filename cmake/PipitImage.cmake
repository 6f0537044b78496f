# Finds libjpeg-turbo and libpng as -DPIPIT_IMAGE_LIBRARIES says and sets PIPIT_HAVE_IMAGE_LIBRARIES. Without them
# stb_image, compiled in, reads JPEG and PNG.

string(TOUPPER "${PIPIT_IMAGE_LIBRARIES}" _pipit_image)
if(NOT _pipit_image MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "PIPIT_IMAGE_LIBRARIES is '${PIPIT_IMAGE_LIBRARIES}': expected ON, OFF or AUTO")
endif()

set(PIPIT_HAVE_IMAGE_LIBRARIES OFF)
if(NOT _pipit_image STREQUAL "OFF")
  find_package(JPEG)
  find_package(PNG)
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
