#include <array>

#include "engine/base/error.h"
#include "models/image/stb/container.h"

namespace pipit::internal::detail {
namespace {

class Walker {
 public:
  Walker(const Source& source, const DecodeLimits& limits) : source_(source), limits_(limits) {}

  Extent run() {
    std::size_t at = 2;  // after SOI
    while (true) {
      const std::uint8_t marker = next_marker(at);
      const bool standalone = marker == 0x01 || (marker >= 0xD0 && marker <= 0xD8);
      if (standalone) continue;
      if (marker == 0xD9) break;
      if (at + 2 > source_.bytes.size()) truncated(at);
      const std::size_t length = std::size_t{byte(at)} << 8 | byte(at + 1);
      if (length < 2) corrupt("the segment at byte {} has a length of {}", at, length);
      if (length > source_.bytes.size() - at) truncated(at);
      segment(marker, source_.bytes.subspan(at + 2, length - 2));
      at += length;
    }
    if (extent_.width == 0) corrupt("it ends without a frame header");
    if (scans_ == 0) corrupt("it ends without image data");
    return extent_;
  }

 private:
  std::uint8_t byte(std::size_t i) const { return source_.bytes[i]; }

  template <typename... Args>
  [[noreturn]] void corrupt(fmt::format_string<Args...> format, Args&&... args) const {
    fail("{}: damaged JPEG: {}", source_.name, fmt::format(format, std::forward<Args>(args)...));
  }
  [[noreturn]] void truncated(std::size_t at) const {
    fail("{}: truncated JPEG: its {} bytes end inside the segment at byte {}", source_.name,
         source_.bytes.size(), at);
  }

  // The next marker at or after `at`, which moves past it. Entropy-coded data lies between markers; in it
  // FF 00 stands for a data byte FF, and any number of FF may fill up before a marker.
  std::uint8_t next_marker(std::size_t& at) const {
    const auto bytes = source_.bytes;
    while (at < bytes.size()) {
      if (bytes[at++] != 0xFF) continue;
      while (at < bytes.size() && bytes[at] == 0xFF) ++at;
      if (at < bytes.size() && bytes[at++] != 0x00) return bytes[at - 1];
    }
    fail("{}: truncated JPEG: its {} bytes end without the end marker (EOI)", source_.name, bytes.size());
  }

  void segment(std::uint8_t marker, std::span<const std::uint8_t> data) {
    if (marker == 0xC4) {
      huffman_tables(data);
    } else if (marker == 0xDB) {
      quantization_tables(data);
    } else if (marker == 0xDA) {
      scan(data);
    } else if (marker >= 0xC0 && marker <= 0xCF && marker != 0xC8 && marker != 0xCC) {
      frame(marker, data);
    }
  }

  void huffman_tables(std::span<const std::uint8_t> data) {
    while (!data.empty()) {
      if (data.size() < 17) corrupt("a Huffman table of {} bytes", data.size());
      const int kind = data[0] >> 4;
      const int id = data[0] & 15;
      std::size_t symbols = 0;
      for (std::size_t i = 1; i <= 16; ++i) symbols += data[i];
      // stb_image (2.27) writes beyond its table when there are more.
      if (kind > 1 || id > 3 || symbols > 256 || symbols > data.size() - 17) {
        corrupt("a Huffman table of class {}, number {}, with {} symbols", kind, id, symbols);
      }
      huffman_defined_[std::size_t(kind)][std::size_t(id)] = true;
      data = data.subspan(17 + symbols);
    }
  }

  void quantization_tables(std::span<const std::uint8_t> data) {
    while (!data.empty()) {
      const std::size_t size = (data[0] >> 4) != 0 ? 129 : 65;
      if ((data[0] >> 4) > 1 || (data[0] & 15) > 3 || data.size() < size) {
        corrupt("a quantization table that is not 64 values of 8 or 16 bits");
      }
      quantization_defined_[data[0] & 15] = true;
      data = data.subspan(size);
    }
  }

  void frame(std::uint8_t marker, std::span<const std::uint8_t> data) {
    if (marker > 0xC2) {
      fail_unsupported(
          "{}: JPEG process SOF{} (lossless, hierarchical or arithmetic-coded) is not supported; "
          "baseline and progressive are",
          source_.name, marker - 0xC0);
    }
    if (extent_.width != 0) corrupt("it has a second frame header");
    if (data.size() < 6) corrupt("a frame header of {} bytes", data.size());
    if (data[0] != 8) {
      fail_unsupported("{}: JPEG with {} bits per sample is not supported; 8 are", source_.name, data[0]);
    }
    const int height = data[1] << 8 | data[2];
    const int width = data[3] << 8 | data[4];
    const std::size_t components = data[5];
    if ((components != 1 && components != 3 && components != 4) || data.size() != 6 + 3 * components) {
      corrupt("a frame header of {} bytes for {} components", data.size(), components);
    }
    check_dimensions(source_, width, height, kJpegPixelsPerByte, limits_);
    extent_ = {height, width};
    for (std::size_t i = 0; i < components; ++i) frame_tables_.push_back(data[6 + 3 * i + 2]);
  }

  void scan(std::span<const std::uint8_t> data) {
    if (extent_.width == 0) corrupt("a scan before the frame header");
    if (data.empty() || data.size() != 4 + 2 * std::size_t{data[0]})
      corrupt("a scan header of {} bytes", data.size());
    if (++scans_ > kMaxJpegScans) corrupt("more than {} scans", kMaxJpegScans);
    const std::size_t components = data[0];
    const int first = data[1 + 2 * components];
    const int last = data[2 + 2 * components];
    const bool refinement = data[3 + 2 * components] >> 4 != 0;
    for (std::size_t i = 0; i < components; ++i) {
      const std::size_t dc = data[2 + 2 * i] >> 4;
      const std::size_t ac = data[2 + 2 * i] & 15;
      // Refining DC takes raw bits, no table.
      const bool dc_missing = first == 0 && !refinement && (dc > 3 || !huffman_defined_[0][dc]);
      const bool ac_missing = last > 0 && (ac > 3 || !huffman_defined_[1][ac]);
      if (dc_missing || ac_missing) corrupt("a scan uses a Huffman table that is not defined");
    }
    for (const std::uint8_t table : frame_tables_) {
      if (table > 3 || !quantization_defined_[table]) corrupt("quantization table {} is not defined", table);
    }
  }

  const Source& source_;
  const DecodeLimits& limits_;
  Extent extent_;
  int scans_ = 0;
  std::array<std::array<bool, 4>, 2> huffman_defined_{};  // [DC, AC][number]
  std::array<bool, 16> quantization_defined_{};
  std::vector<std::uint8_t> frame_tables_;
};

}  // namespace

Extent check_jpeg(const Source& source, const DecodeLimits& limits) {
  return Walker(source, limits).run();
}

}  // namespace pipit::internal::detail
