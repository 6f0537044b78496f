// Walks the containers of JPEG and PNG files and decodes BMP, so that what reaches stb_image is complete and
// consistent. Internal to models/image.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "models/image/decode.h"

namespace pipit::detail {

/// One file in memory and the name to use for it in messages.
struct Source {
  std::span<const std::uint8_t> bytes;
  const std::string& name;
};

/// What the header says.
struct Header {
  Extent extent;
  /// PNG only: where the PLTE chunk starts, 0 when there is none, and how many entries it has and could have.
  std::size_t palette_at = 0;
  std::size_t palette_entries = 0;
  std::size_t palette_capacity = 0;
};

/// Throws Error unless the sides are within the limits and not absurd for a file of this many bytes:
/// `pixels_per_byte` is the most that a byte of this format can stand for.
void check_dimensions(const Source& source, std::int64_t width, std::int64_t height,
                      std::int64_t pixels_per_byte, const DecodeLimits& limits);

/// Follows the markers of a JPEG (ISO/IEC 10918-1 annex B) up to EOI. Throws Error when a segment or the EOI
/// is missing, a scan uses a Huffman or quantisation table that was not defined, a table has more symbols
/// than fit, or there are absurdly many scans; UnsupportedError for anything but 8-bit baseline and
/// progressive.
Header check_jpeg(const Source& source, const DecodeLimits& limits);

/// Follows the chunks of a PNG up to IEND. Throws Error when one is cut off or has a wrong checksum.
Header check_png(const Source& source, const DecodeLimits& limits);

/// CRC-32 (ISO 3309, as in PNG and zlib) of the bytes.
std::uint32_t crc32(std::span<const std::uint8_t> bytes);

/// Decodes an uncompressed BMP: 1, 4, 8, 16, 24 or 32 bits, palette or bit fields, either row order.
Image decode_bmp(const Source& source, const DecodeLimits& limits);

}  // namespace pipit::detail
