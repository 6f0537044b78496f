// PNG by libpng: no gamma, no compositing, alpha left out, as Pillow's convert('RGB').
#include <png.h>
#include <zlib.h>

#include <array>
#include <cstdio>
#include <cstring>

#include "engine/base/error.h"
#include "models/image/formats.h"
#include "models/image/libraries/guarded.h"

namespace pipit::internal::detail {
namespace {

constexpr std::size_t kMaxBehindPixels = 1 << 16;
constexpr std::size_t kSignatureBytes = 8;
constexpr std::size_t kChunkOverhead = 12;  // length, type, checksum

class Png {
 public:
  Png(const Source& source, const DecodeLimits& limits) : source_(source), limits_(limits) {}
  ~Png() { png_destroy_read_struct(&png_, &info_, nullptr); }
  Png(const Png&) = delete;
  Png& operator=(const Png&) = delete;

  Image run() {
    step([this] { read_header(); });
    const png_uint_32 width = png_get_image_width(png_, info_);
    const png_uint_32 height = png_get_image_height(png_, info_);
    check_dimensions(source_, width, height, kPngPixelsPerByte, limits_);
    Image image = make_image({int(height), int(width)}, source_.name.c_str());
    step([&] { read_rows(image); });
    if (grey16_) clip_grey(image);
    return image;
  }

 private:
  template <typename Steps>
  void step(const Steps& steps) {
    if (guarded(out_, steps) || has_all_pixels()) return;
    if (truncated_) {
      fail("{}: truncated PNG: its {} bytes end without the IEND chunk", source_.name, source_.bytes.size());
    }
    fail("{}: damaged PNG: {}", source_.name, message_.data());
  }

  // Whether what failed comes after the pixels: then the image is whole. Where the compressed data ends early, as
  // that of a writer that was stopped, rows that are missing stay black. Both as in Pillow.
  bool has_all_pixels() const {
    if (lacks_rows_) return is_stream_whole();
    return in_last_row_ && png_get_current_row_number(png_) >= png_get_image_height(png_, info_);
  }

  // Whether the data of all IDAT chunks is one whole stream, which libpng does not tell.
  bool is_stream_whole() const {
    z_stream stream{};
    if (inflateInit(&stream) != Z_OK) return false;
    std::array<Bytef, 1 << 14> ignored;
    int state = Z_OK;
    const auto bytes = source_.bytes;
    for (std::size_t at = kSignatureBytes; state == Z_OK && at + kChunkOverhead <= bytes.size();) {
      const std::size_t length = png_get_uint_32(bytes.data() + at);
      if (length > bytes.size() - at - kChunkOverhead) break;
      if (std::memcmp(bytes.data() + at + 4, "IDAT", 4) == 0) {
        stream.next_in = const_cast<Bytef*>(bytes.data() + at + 8);
        stream.avail_in = static_cast<uInt>(length);
        while (state == Z_OK && stream.avail_in > 0) {
          stream.next_out = ignored.data();
          stream.avail_out = static_cast<uInt>(ignored.size());
          state = inflate(&stream, Z_NO_FLUSH);
        }
      }
      at += length + kChunkOverhead;
    }
    inflateEnd(&stream);
    return state == Z_STREAM_END;
  }

  // Grey of 16 bits, in place, from the right: what is written lies after what is still to be read.
  static void clip_grey(Image& image) {
    for (int y = 0; y < image.height; ++y) {
      std::uint8_t* row = image.row(y);
      for (std::ptrdiff_t x = image.width - 1; x >= 0; --x)
        std::memset(row + x * 3, clipped_grey(row[x * 2], row[x * 2 + 1]), 3);
    }
  }

  // ---- what an error jumps out of: nothing with a destructor ----

  void read_header() {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, on_error, [](png_structp, png_const_charp) {});
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
    if (info_ == nullptr) stop("libpng cannot be set up");
    png_set_read_fn(png_, this, [](png_structp png, png_bytep to, std::size_t count) {
      Png& self = *static_cast<Png*>(png_get_io_ptr(png));
      if (count > self.allowed_) self.stop("more image data than pixels");
      self.allowed_ -= count;
      if (count > self.source_.bytes.size() - self.at_) {
        self.truncated_ = true;
        std::longjmp(self.out_, 1);
      }
      std::memcpy(to, self.source_.bytes.data() + self.at_, count);
      self.at_ += count;
    });
    // Only the checksum of other chunks is checked, so none can ask for memory.
    png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
    png_set_user_limits(png_, PNG_UINT_31_MAX, PNG_UINT_31_MAX);  // check_dimensions() has the limits
    png_read_info(png_, info_);
  }

  void read_rows(Image& image) {
    // As Pillow, which reads compressed data whatever its checksums say.
    png_set_crc_action(png_, PNG_CRC_QUIET_USE, PNG_CRC_QUIET_USE);
    const bool grey16 =
        png_get_color_type(png_, info_) == PNG_COLOR_TYPE_GRAY && png_get_bit_depth(png_, info_) == 16;
    if (!grey16) {
      png_set_palette_to_rgb(png_);  // 3 channels, or 4 with tRNS
      png_set_expand_gray_1_2_4_to_8(png_);
      png_set_strip_16(png_);
      png_set_strip_alpha(png_);
      png_set_gray_to_rgb(png_);
    }
    grey16_ = grey16;
    const int passes = png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    if (png_get_rowbytes(png_, info_) != std::size_t(image.width) * (grey16 ? 2 : 3))
      stop("rows of an unexpected size");
    for (int pass = 0; pass < passes; ++pass) {
      for (int y = 0; y < image.height; ++y) {
        // With the last row libpng reads the compressed data to its end, and a byte of that can stand for a thousand.
        const bool last = pass == passes - 1 && y == image.height - 1;
        in_last_row_ = last;
        if (last) allowed_ = kMaxBehindPixels + 2 * png_get_rowbytes(png_, info_);
        png_read_row(png_, image.row(y), nullptr);
      }
    }
    allowed_ = SIZE_MAX;
    png_read_end(png_, nullptr);
  }

  [[noreturn]] static void on_error(png_structp png, png_const_charp message) {
    Png& self = *static_cast<Png*>(png_get_error_ptr(png));
    self.lacks_rows_ = std::strcmp(message, "Not enough image data") == 0;
    self.stop(message);
  }

  [[noreturn]] void stop(const char* message) {
    std::snprintf(message_.data(), message_.size(), "%s", message);
    std::longjmp(out_, 1);
  }

  const Source& source_;
  const DecodeLimits& limits_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  std::size_t at_ = 0;              // of the next byte to read
  std::size_t allowed_ = SIZE_MAX;  // bytes that may still be read
  std::jmp_buf out_;
  bool truncated_ = false;
  bool grey16_ = false;
  bool in_last_row_ = false;
  bool lacks_rows_ = false;  // the compressed data ends before the rows do: by itself, or cut
  std::array<char, 200> message_{};
};

}  // namespace

Image decode_png(const Source& source, const DecodeLimits& limits) {
  return Png(source, limits).run();
}

}  // namespace pipit::internal::detail
