// An 8-bit RGB image in memory, and the limits that every image operation keeps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pipit::internal {

/// Height and width in pixels, in that order as in tensor shapes (N, C, H, W).
struct Extent {
  int height = 0;
  int width = 0;
  friend bool operator==(const Extent&, const Extent&) = default;
};

/// Bounds on what an image may measure. They keep a hostile file or a mistyped size from taking the memory of the
/// machine: as many pixels as Pillow opens (512 MiB of RGB), and a side that keeps every index and every filter table
/// in 32 bits.
inline constexpr int kMaxImageSide = 65'535;
inline constexpr std::int64_t kMaxImagePixels = 178'956'970;

/// 8 bits per channel, red green blue interleaved, rows from top to bottom without padding:
/// pixels[(y * width + x) * 3 + c].
struct Image {
  int width = 0;
  int height = 0;
  std::vector<std::uint8_t> pixels;
  /// How the file says that the pixels lie, 1 to 8 as in EXIF; see upright() (orientation.h). 1: upright.
  int exif_orientation = 1;

  Extent extent() const { return {height, width}; }
  const std::uint8_t* row(int y) const { return pixels.data() + std::size_t(y) * std::size_t(width) * 3; }
  std::uint8_t* row(int y) { return pixels.data() + std::size_t(y) * std::size_t(width) * 3; }
};

/// Throws Error when a side is < 1 or above the limits; `what` names the operation in the message.
void check_extent(Extent extent, const char* what);

/// A black image of an extent that passes check_extent.
Image make_image(Extent extent, const char* what);

/// Throws Error unless the sides are positive and within the limits and `pixels` has height * width * 3
/// entries.
void check_image(const Image& image, const char* what);

}  // namespace pipit::internal
