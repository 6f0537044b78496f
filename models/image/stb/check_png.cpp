#include <string_view>

#include "engine/base/error.h"
#include "models/image/stb/container.h"
#include "models/image/stb/crc32.h"

namespace pipit::internal::detail {
namespace {

constexpr std::size_t kSignatureBytes = 8;
constexpr std::size_t kChunkOverhead = 12;  // length, type, checksum

std::uint32_t big_endian(std::span<const std::uint8_t> b, std::size_t at) {
  return std::uint32_t{b[at]} << 24 | std::uint32_t{b[at + 1]} << 16 | std::uint32_t{b[at + 2]} << 8 |
         b[at + 3];
}

// The type for a message; a damaged file may have anything there.
std::string printable(std::string_view type) {
  std::string text(type);
  for (char& c : text) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (!letter) c = '?';
  }
  return text;
}

}  // namespace

PngHeader check_png(const Source& source, const DecodeLimits& limits) {
  const auto bytes = source.bytes;
  PngHeader header;
  std::size_t at = kSignatureBytes;
  std::size_t index = 0;
  bool has_data = false;
  for (;; ++index) {
    if (bytes.size() - at < kChunkOverhead) {
      fail("{}: truncated PNG: its {} bytes end without the IEND chunk", source.name, bytes.size());
    }
    const std::size_t length = big_endian(bytes, at);
    const std::string type(bytes.begin() + std::ptrdiff_t(at) + 4, bytes.begin() + std::ptrdiff_t(at) + 8);
    if (length > bytes.size() - at - kChunkOverhead) {
      fail("{}: truncated PNG: the {} chunk at byte {} has {} bytes, but the file ends after {}", source.name,
           printable(type), at, length, bytes.size() - at - 8);
    }
    const auto data = bytes.subspan(at + 8, length);
    // Only critical chunks (capital first letter) change the picture, so only these must be intact.
    const bool critical = (bytes[at + 4] & 0x20) == 0;
    if (critical && crc32(bytes.subspan(at + 4, length + 4)) != big_endian(bytes, at + 8 + length)) {
      fail("{}: damaged PNG: the checksum of the {} chunk at byte {} is wrong", source.name, printable(type),
           at);
    }
    if ((index == 0) != (type == "IHDR")) {
      fail("{}: damaged PNG: {} is its chunk number {}; IHDR has to be the first and only the first",
           source.name, printable(type), index + 1);
    }
    if (type == "IHDR") {
      if (length != 13) fail("{}: damaged PNG: a header of {} bytes instead of 13", source.name, length);
      const std::uint32_t width = big_endian(data, 0);
      const std::uint32_t height = big_endian(data, 4);
      check_dimensions(source, width, height, kPngPixelsPerByte, limits);
      header.extent = {int(height), int(width)};
      header.depth = data[8];
      header.colour = data[9];
    } else if (type == "PLTE") {
      header.palette_at = at;
      header.palette_entries = length / 3;
      const bool indexed = header.colour == 3 && header.depth >= 1 && header.depth <= 8;
      header.palette_capacity = indexed ? std::size_t{1} << header.depth : header.palette_entries;
    } else if (type == "IDAT") {
      has_data = true;
    } else if (type == "IEND") {
      break;
    }
    at += length + kChunkOverhead;
  }
  if (!has_data) fail("{}: damaged PNG: it has no image data (IDAT)", source.name);
  return header;
}

}  // namespace pipit::internal::detail
