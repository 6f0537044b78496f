#include "models/image/image.h"

#include "engine/base/error.h"

namespace pipit::internal {

void check_extent(Extent e, const char* what) {
  if (e.height < 1 || e.width < 1) {
    fail("{}: an image of {} x {} pixels has no content; both sides must be at least 1", what, e.width,
         e.height);
  }
  if (e.height > kMaxImageSide || e.width > kMaxImageSide ||
      std::int64_t{e.height} * e.width > kMaxImagePixels) {
    fail("{}: an image of {} x {} pixels is above the limit of {} per side and {} in all", what, e.width,
         e.height, kMaxImageSide, kMaxImagePixels);
  }
}

Image make_image(Extent extent, const char* what) {
  check_extent(extent, what);
  Image image{extent.width, extent.height, {}};
  image.pixels.resize(std::size_t(extent.height) * std::size_t(extent.width) * 3);
  return image;
}

void check_image(const Image& image, const char* what) {
  check_extent(image.extent(), what);
  const std::size_t expected = std::size_t(image.height) * std::size_t(image.width) * 3;
  if (image.pixels.size() != expected) {
    fail("{}: an image of {} x {} pixels needs {} bytes of RGB, but holds {}", what, image.width,
         image.height, expected, image.pixels.size());
  }
}

}  // namespace pipit::internal
