#include <cstdio>
// jpeglib.h needs FILE and size_t.
#include <jpeglib.h>
#include <png.h>

#include "models/image/formats.h"

#define PIPIT_TEXT_OF(version) #version
#define PIPIT_TEXT(macro) PIPIT_TEXT_OF(macro)

namespace pipit::internal {

ImageDecoders image_decoders() {
  return {"libjpeg-turbo " PIPIT_TEXT(LIBJPEG_TURBO_VERSION),
          std::string("libpng ") + png_get_libpng_ver(nullptr), detail::webp_library()};
}

}  // namespace pipit::internal
