// BMP is decoded here: stb_image reads a truncated file as zeros and entries beyond the palette as
// uninitialized memory, and both cannot be seen from outside. Layout: Microsoft's BITMAPFILEHEADER and
// BITMAPINFOHEADER.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <vector>

#include "engine/base/error.h"
#include "models/image/formats.h"

namespace pipit::internal::detail {
namespace {

constexpr std::size_t kFileHeaderBytes = 14;
constexpr std::uint32_t kCoreHeaderBytes = 12;  // OS/2: 16-bit sides, palette of 3 bytes
constexpr std::uint32_t kInfoHeaderBytes = 40;
constexpr std::uint32_t kRgb = 0;
constexpr std::uint32_t kRle8 = 1;
constexpr std::uint32_t kRle4 = 2;
constexpr std::uint32_t kBitFields = 3;
// Run-length coding leaves out what is black: a byte can stand for many pixels.
constexpr std::int64_t kRlePixelsPerByte = 1 << 15;

// One channel of a 16- or 32-bit pixel.
struct Field {
  std::uint32_t mask = 0;
  int shift = 0;
  std::uint32_t max = 0;

  std::uint8_t operator()(std::uint32_t pixel) const {
    // 8 bits pass as they are; fewer are stretched to 0..255, rounding down, as Pillow does.
    return std::uint8_t(((pixel & mask) >> shift) * 255u / max);
  }
};

class Bmp {
 public:
  Bmp(const Source& source, const DecodeLimits& limits) : source_(source), limits_(limits) {}

  Image run() {
    read_header();
    Image image = make_image({height_, width_}, source_.name.c_str());
    if (run_length_) unpack_runs();
    for (int y = 0; y < height_; ++y) {
      const std::size_t at = stride_ * std::size_t(bottom_up_ ? height_ - 1 - y : y);
      const std::uint8_t* from = run_length_ ? unpacked_.data() + at : source_.bytes.data() + pixels_at_ + at;
      std::uint8_t* to = image.row(y);
      if (run_length_) {
        for (int x = 0; x < width_; ++x) std::memcpy(to + std::size_t(x) * 3, palette_[from[x]].data(), 3);
      } else if (bits_ <= 8) {
        indexed_row(from, to);
      } else {
        direct_row(from, to);
      }
    }
    return image;
  }

 private:
  template <typename... Args>
  [[noreturn]] void corrupt(fmt::format_string<Args...> format, Args&&... args) const {
    fail("{}: damaged BMP: {}", source_.name, fmt::format(format, std::forward<Args>(args)...));
  }

  std::uint32_t u16(std::size_t at) const {
    if (at + 2 > source_.bytes.size()) truncated();
    return std::uint32_t{source_.bytes[at]} | std::uint32_t{source_.bytes[at + 1]} << 8;
  }
  std::uint32_t u32(std::size_t at) const { return u16(at) | u16(at + 2) << 16; }

  [[noreturn]] void truncated() const {
    fail("{}: truncated BMP: its {} bytes end inside the header", source_.name, source_.bytes.size());
  }

  void read_header() {
    pixels_at_ = u32(10);
    const std::uint32_t size = u32(14);
    const bool core = size == kCoreHeaderBytes;
    if (!core && (size < kInfoHeaderBytes || size > 1024)) corrupt("an information header of {} bytes", size);
    std::int64_t width = 0;
    std::int64_t height = 0;
    if (core) {
      width = u16(18);
      height = u16(20);
    } else {
      width = std::bit_cast<std::int32_t>(u32(18));
      height = std::bit_cast<std::int32_t>(u32(22));
    }
    bits_ = int(core ? u16(24) : u16(28));
    const std::uint32_t compression = core ? kRgb : u32(30);
    run_length_ = compression == kRle8 || compression == kRle4;
    bottom_up_ = height > 0;
    if (height < 0) height = -height;
    // Uncompressed: no byte holds more than 8 pixels.
    check_dimensions(source_, width, height, run_length_ ? kRlePixelsPerByte : 8, limits_);
    width_ = int(width);
    height_ = int(height);

    if (compression != kRgb && compression != kBitFields && !run_length_) {
      fail_unsupported("{}: BMP compression {} is not supported; save it uncompressed or as PNG",
                       source_.name, compression);
    }
    const bool known = bits_ == 1 || bits_ == 4 || bits_ == 8 || bits_ == 16 || bits_ == 24 || bits_ == 32;
    if (!known || (compression == kBitFields && bits_ < 16) ||
        (run_length_ && bits_ != (compression == kRle8 ? 8 : 4))) {
      corrupt("{} bits per pixel with compression {}", bits_, compression);
    }
    const std::size_t after_header = kFileHeaderBytes + size;
    if (bits_ <= 8) read_palette(after_header, core);
    // The masks follow a 40-byte header and are part of a longer one: the same place in both.
    if (bits_ == 16 || bits_ == 32) read_fields(compression == kBitFields);
    if (pixels_at_ < after_header) corrupt("its pixels start at byte {}, inside the header", pixels_at_);

    if (run_length_) {
      stride_ = std::size_t(width_);
      if (pixels_at_ > source_.bytes.size()) truncated();
      return;
    }
    // Rows are padded to 4 bytes; some writers leave the padding of the last one away.
    const std::size_t row_bytes = (std::size_t(width_) * std::size_t(bits_) + 7) / 8;
    stride_ = (row_bytes + 3) / 4 * 4;
    const std::size_t needed = pixels_at_ + stride_ * std::size_t(height_ - 1) + row_bytes;
    if (needed > source_.bytes.size()) {
      fail("{}: truncated BMP: {} x {} pixels of {} bits from byte {} on need {} bytes, but it has {}",
           source_.name, width_, height_, bits_, pixels_at_, needed, source_.bytes.size());
    }
  }

  // Indices of pixels in the order of the file, which has runs of one or two indices (pairs of half bytes), lists of
  // them, ends of rows, and jumps. As Pillow reads it: a run does not go past its row, what a jump leaves out has
  // index 0, and data that ends early is an error unless it says that it ends.
  void unpack_runs() {
    const std::size_t width = std::size_t(width_), total = width * std::size_t(height_);
    const auto& bytes = source_.bytes;
    std::vector<std::uint8_t>& out = unpacked_;
    out.reserve(total);
    std::size_t at = pixels_at_, x = 0;
    const auto half = [&](std::uint8_t byte, std::size_t i) {
      return std::uint8_t(bits_ == 8 ? byte : i % 2 == 0 ? byte >> 4 : byte & 15);
    };
    while (out.size() < total && at + 2 <= bytes.size()) {
      const std::size_t count = bytes[at];
      const std::uint8_t byte = bytes[at + 1];
      at += 2;
      if (count > 0) {
        const std::size_t fits = std::min({count, width - std::min(x, width), total - out.size()});
        for (std::size_t i = 0; i < fits; ++i) out.push_back(half(byte, i));
        x += fits;
      } else if (byte == 0) {
        out.resize((out.size() + width - 1) / width * width);
        x = 0;
      } else if (byte == 1) {
        break;
      } else if (byte == 2) {
        if (at + 2 > bytes.size()) break;
        out.resize(std::min(total, out.size() + bytes[at] + bytes[at + 1] * width));
        at += 2;
        x = out.size() % width;
      } else {
        const std::size_t pixels = std::min<std::size_t>(total - out.size(), byte);
        const std::size_t length = bits_ == 8 ? pixels : (pixels + 1) / 2;
        const std::size_t there = std::min(length, bytes.size() - at);
        for (std::size_t i = 0; i < std::min(pixels, bits_ == 8 ? there : 2 * there); ++i)
          out.push_back(half(bytes[at + (bits_ == 8 ? i : i / 2)], i));
        if (there < length) break;
        x += byte;
        at += length;
        at += at % 2;
      }
    }
    if (out.size() < total) {
      fail("{}: truncated BMP: its runs give {} of {} x {} pixels", source_.name, out.size(), width_,
           height_);
    }
  }

  void read_palette(std::size_t at, bool core) {
    const std::size_t entry_bytes = core ? 3 : 4;
    std::size_t entries = std::size_t{1} << bits_;
    // Like Pillow: a colour count of 0 means all; a count beyond what an index can reach is cut.
    if (!core && u32(46) != 0 && u32(46) < entries) entries = u32(46);
    // A short palette may be followed by the pixels at once.
    if (pixels_at_ >= at && (pixels_at_ - at) / entry_bytes < entries)
      entries = (pixels_at_ - at) / entry_bytes;
    if (entries == 0) corrupt("it has no palette");
    if (at + entries * entry_bytes > source_.bytes.size()) truncated();
    for (std::size_t i = 0; i < entries; ++i) {
      const std::uint8_t* entry = source_.bytes.data() + at + i * entry_bytes;
      palette_[i] = {entry[2], entry[1], entry[0]};  // the rest stay black
    }
  }

  void read_fields(bool from_file) {
    std::array<std::uint32_t, 3> masks;
    if (from_file) {
      masks = {u32(54), u32(58), u32(62)};
    } else if (bits_ == 16) {
      masks = {0x7C00, 0x03E0, 0x001F};
    } else {
      masks = {0xFF0000, 0x00FF00, 0x0000FF};
    }
    for (std::size_t c = 0; c < 3; ++c) {
      const std::uint32_t mask = masks[c];
      const int count = std::popcount(mask);
      const int shift = std::countr_zero(mask);
      // Contiguous, at most 8 bits wide and within the pixel.
      if (count < 1 || count > 8 || (mask >> shift) != (1u << count) - 1 || (bits_ == 16 && mask > 0xFFFF)) {
        corrupt("the bit mask {:#x} of channel {}", mask, c);
      }
      fields_[c] = {mask, shift, (1u << count) - 1};
    }
  }

  void indexed_row(const std::uint8_t* from, std::uint8_t* to) const {
    const unsigned per_byte = 8u / unsigned(bits_);
    const unsigned mask = (1u << bits_) - 1;
    for (unsigned x = 0; x < unsigned(width_); ++x) {
      const unsigned shift = 8u - unsigned(bits_) * (x % per_byte + 1);
      std::memcpy(to + std::size_t{x} * 3, palette_[(from[x / per_byte] >> shift) & mask].data(), 3);
    }
  }

  void direct_row(const std::uint8_t* from, std::uint8_t* to) const {
    const std::size_t step = std::size_t(bits_) / 8;
    for (int x = 0; x < width_; ++x, from += step, to += 3) {
      if (bits_ == 24) {
        to[0] = from[2];
        to[1] = from[1];
        to[2] = from[0];
        continue;
      }
      std::uint32_t pixel = std::uint32_t{from[0]} | std::uint32_t{from[1]} << 8;
      if (bits_ == 32) pixel |= std::uint32_t{from[2]} << 16 | std::uint32_t{from[3]} << 24;
      for (std::size_t c = 0; c < 3; ++c) to[c] = fields_[c](pixel);
    }
  }

  const Source& source_;
  const DecodeLimits& limits_;
  int width_ = 0;
  int height_ = 0;
  int bits_ = 0;
  bool bottom_up_ = true;
  bool run_length_ = false;
  std::vector<std::uint8_t> unpacked_;  // of runs: an index per pixel
  std::size_t pixels_at_ = 0;
  std::size_t stride_ = 0;
  std::array<std::array<std::uint8_t, 3>, 256> palette_{};  // RGB
  std::array<Field, 3> fields_{};
};

}  // namespace

Image decode_bmp(const Source& source, const DecodeLimits& limits) {
  return Bmp(source, limits).run();
}

}  // namespace pipit::internal::detail
