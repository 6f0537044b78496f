#include <array>
#include <string_view>

#include "engine/error.h"
#include "models/image/container.h"

namespace pipit::detail {
namespace {

// Deflate expands at most 1032 times, and a byte holds up to 8 pixels of 1 bit.
constexpr std::int64_t kPixelsPerByte = 1032 * 8;
constexpr std::size_t kSignatureBytes = 8;
constexpr std::size_t kChunkOverhead = 12;  // length, type, checksum

constexpr std::array<std::uint32_t, 256> make_crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t n = 0; n < 256; ++n) {
    std::uint32_t c = n;
    for (int bit = 0; bit < 8; ++bit) c = (c & 1) != 0 ? 0xEDB88320u ^ (c >> 1) : c >> 1;
    table[n] = c;
  }
  return table;
}

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

std::uint32_t crc32(std::span<const std::uint8_t> bytes) {
  static constexpr std::array<std::uint32_t, 256> kTable = make_crc_table();
  std::uint32_t c = 0xFFFFFFFFu;
  for (const std::uint8_t b : bytes) c = kTable[(c ^ b) & 0xFF] ^ (c >> 8);
  return ~c;
}

Header check_png(const Source& source, const DecodeLimits& limits) {
  const auto bytes = source.bytes;
  Header header;
  std::size_t at = kSignatureBytes;
  std::size_t index = 0;
  bool has_data = false;
  int depth = 0;
  int colour = 0;
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
      check_dimensions(source, width, height, kPixelsPerByte, limits);
      header.extent = {int(height), int(width)};
      depth = data[8];
      colour = data[9];
    } else if (type == "PLTE") {
      header.palette_at = at;
      header.palette_entries = length / 3;
      const bool indexed = colour == 3 && depth >= 1 && depth <= 8;
      header.palette_capacity = indexed ? std::size_t{1} << depth : header.palette_entries;
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

}  // namespace pipit::detail
