// JPEG by libjpeg-turbo, as Pillow calls it: the accurate integer transform, chroma interpolated smoothly.
#include <algorithm>
#include <array>
#include <cstdio>
// jpeglib.h needs FILE and size_t.
#include <jerror.h>
#include <jpeglib.h>

#include "engine/base/error.h"
#include "models/image/formats.h"
#include "models/image/libraries/guarded.h"

namespace pipit::internal::detail {
namespace {

// x * y / 255, rounded, for 0..255 each (Blinn, "Three Wrongs Make a Right", 1995).
std::uint8_t product(unsigned x, unsigned y) {
  const unsigned wide = x * y + 128;
  return std::uint8_t(((wide >> 8) + wide) >> 8);
}

// Adobe stores inks inverted, and Pillow takes all files for Adobe's: what is stored is 255 less the ink.
void inverted_cmyk_to_rgb(const std::uint8_t* cmyk, std::uint8_t* rgb, int pixels) {
  for (int i = 0; i < pixels; ++i, cmyk += 4, rgb += 3) {
    const unsigned light = cmyk[3];
    for (int c = 0; c < 3; ++c) rgb[c] = std::uint8_t(light - product(255u - cmyk[c], light));
  }
}

class Jpeg {
 public:
  Jpeg(const Source& source, const DecodeLimits& limits) : source_(source), limits_(limits) {}
  ~Jpeg() { jpeg_destroy_decompress(&info_); }
  Jpeg(const Jpeg&) = delete;
  Jpeg& operator=(const Jpeg&) = delete;

  Image run() {
    step([this] { read_header(); });
    const int components = info_.num_components;
    if (components != 1 && components != 3 && components != 4)
      fail_unsupported("{}: JPEG with {} components is not supported; 1, 3 and 4 are", source_.name,
                       components);
    check_dimensions(source_, info_.image_width, info_.image_height, kJpegPixelsPerByte, limits_);
    if (coefficient_bytes() > limits_.max_decoder_bytes) fail_for_memory();
    Image image = make_image({int(info_.image_height), int(info_.image_width)}, source_.name.c_str());
    std::vector<std::uint8_t> inks(components == 4 ? std::size_t(image.width) * 4 : 0);
    info_.out_color_space = components == 4 ? JCS_CMYK : JCS_RGB;
    step([&] { read_rows(image, inks.data()); });
    return image;
  }

 private:
  template <typename Steps>
  void step(const Steps& steps) {
    if (guarded(out_, steps)) return;
    if (truncated_) {
      fail("{}: truncated JPEG: its {} bytes end without the end marker (EOI)", source_.name,
           source_.bytes.size());
    }
    switch (errors_.msg_code) {
      case JERR_OUT_OF_MEMORY:
        fail_for_memory();
      case JERR_IMAGE_TOO_BIG:  // no damage
        check_dimensions(source_, info_.image_width, info_.image_height, kJpegPixelsPerByte, limits_);
        fail("{}: {} x {} pixels are above the limit of {} per side of a JPEG", source_.name,
             info_.image_width, info_.image_height, JPEG_MAX_DIMENSION);
      case JERR_ARITH_NOTIMPL:
      case JERR_BAD_PRECISION:
      case JERR_CONVERSION_NOTIMPL:
      case JERR_SOF_UNSUPPORTED:
        fail_unsupported("{}: this kind of JPEG is not supported: {}", source_.name, message_.data());
      default:
        fail("{}: damaged JPEG: {}", source_.name, message_.data());
    }
  }

  // A file of several scans is held as coefficients; all other memory is that of a few rows.
  std::uint64_t coefficient_bytes() {
    std::uint64_t bytes = 0;
    for (int c = 0; jpeg_has_multiple_scans(&info_) && c < info_.num_components; ++c) {
      const jpeg_component_info& component = info_.comp_info[c];
      bytes += std::uint64_t{component.width_in_blocks} * component.height_in_blocks * sizeof(JBLOCK);
    }
    return bytes;
  }

  [[noreturn]] void fail_for_memory() const {
    fail("{}: decoding {} x {} pixels takes more than {} bytes of memory, or more than there are",
         source_.name, info_.image_width, info_.image_height, limits_.max_decoder_bytes);
  }

  // ---- what an error jumps out of: nothing with a destructor ----

  void read_header() {
    info_.err = jpeg_std_error(&errors_);
    errors_.error_exit = [](j_common_ptr info) {
      Jpeg& self = of(info);
      self.errors_.format_message(info, self.message_.data());
      std::longjmp(self.out_, 1);
    };
    // Warnings of corrupt data are no errors to Pillow either; libjpeg would print them.
    errors_.emit_message = [](j_common_ptr, int) {};
    info_.client_data = this;
    jpeg_CreateDecompress(&info_, JPEG_LIB_VERSION, sizeof info_);

    input_.next_input_byte = source_.bytes.data();
    input_.bytes_in_buffer = source_.bytes.size();
    input_.init_source = [](j_decompress_ptr) {};
    input_.term_source = [](j_decompress_ptr) {};
    input_.resync_to_restart = jpeg_resync_to_restart;
    input_.fill_input_buffer = [](j_decompress_ptr info) -> boolean { of(info).stop_truncated(); };
    input_.skip_input_data = [](j_decompress_ptr info, long count) {
      Jpeg& self = of(info);
      if (count <= 0) return;
      if (std::size_t(count) > self.input_.bytes_in_buffer) self.stop_truncated();
      self.input_.next_input_byte += count;
      self.input_.bytes_in_buffer -= std::size_t(count);
    };
    info_.src = &input_;

    progress_.progress_monitor = [](j_common_ptr info) {
      Jpeg& self = of(info);
      if (self.info_.input_scan_number <= kMaxJpegScans) return;
      std::snprintf(self.message_.data(), self.message_.size(), "more than %d scans", kMaxJpegScans);
      std::longjmp(self.out_, 1);
    };
    info_.progress = &progress_;
    jpeg_read_header(&info_, TRUE);
  }

  void read_rows(Image& image, std::uint8_t* inks) {
    jpeg_start_decompress(&info_);
    // Several rows a call: as many as a row of DCT blocks gives.
    std::array<JSAMPROW, 16> rows;
    while (info_.output_scanline < info_.output_height) {
      const int first = int(info_.output_scanline);
      const int count = inks != nullptr ? 1 : std::min(int(rows.size()), image.height - first);
      for (int i = 0; i < count; ++i) rows[std::size_t(i)] = inks != nullptr ? inks : image.row(first + i);
      jpeg_read_scanlines(&info_, rows.data(), JDIMENSION(count));
      if (inks != nullptr) inverted_cmyk_to_rgb(inks, image.row(first), image.width);
    }
    jpeg_finish_decompress(&info_);  // up to EOI
  }

  [[noreturn]] void stop_truncated() {
    truncated_ = true;
    std::longjmp(out_, 1);
  }

  template <typename Info>
  static Jpeg& of(Info* info) {
    return *static_cast<Jpeg*>(info->client_data);
  }

  const Source& source_;
  const DecodeLimits& limits_;
  jpeg_decompress_struct info_{};
  jpeg_error_mgr errors_{};
  jpeg_source_mgr input_{};
  jpeg_progress_mgr progress_{};
  std::jmp_buf out_;
  bool truncated_ = false;
  std::array<char, JMSG_LENGTH_MAX> message_{};
};

}  // namespace

Image decode_jpeg(const Source& source, const DecodeLimits& limits) {
  return Jpeg(source, limits).run();
}

}  // namespace pipit::internal::detail
