// Walks the containers of JPEG and PNG files, so that what reaches stb_image is complete and consistent.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "models/image/formats.h"

namespace pipit::internal::detail {

/// What the header of a PNG says.
struct PngHeader {
  Extent extent;
  int depth = 0;   ///< bits per channel
  int colour = 0;  ///< 0 grey, 2 RGB, 3 palette, 4 grey with alpha, 6 RGBA
  /// Where the PLTE chunk starts, 0 when there is none, and how many entries it has and could have.
  std::size_t palette_at = 0;
  std::size_t palette_entries = 0;
  std::size_t palette_capacity = 0;
};

/// Follows the markers of a JPEG (ISO/IEC 10918-1 annex B) up to EOI. Throws Error when a segment or the EOI
/// is missing, a scan uses a Huffman or quantization table that was not defined, a table has more symbols
/// than fit, or there are absurdly many scans; UnsupportedError for anything but 8-bit baseline and
/// progressive.
Extent check_jpeg(const Source& source, const DecodeLimits& limits);

/// Follows the chunks of a PNG up to IEND. Throws Error when one is cut off or has a wrong checksum.
PngHeader check_png(const Source& source, const DecodeLimits& limits);

}  // namespace pipit::internal::detail
