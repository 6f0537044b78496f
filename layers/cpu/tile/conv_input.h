// How a convolution on the tile kernel reads its input: where it lies, or through a copy with zeros around it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/graph/tensor.h"
#include "layers/ops/window.h"

namespace pipit::internal {

/// Addresses of the input [N, C, D, H, W], [N, C, H, W] or [N, C, W] (f32, f16, bf16, i8 or u8, any layout) of a
/// convolution, in bytes. Tiles say how many bytes an element has that they read: 4 for f32, 2 or 4 for f16 and bf16, 1
/// for u8, 2 for u8 widened to 16 bits. An input that has others is always copied, as i8 is.
///
/// To tiles every output slice of a volume (one position along D) is an image of its own, which reads several slices of
/// the input: images are counted through all slices of all volumes.
///
/// A channels_last pixel is one run of its channels. A row_major input is read plane by plane; its runs are the taps
/// of a kernel row. The copy of some output rows is [image][row][slice tap][plane][column][channels], holding what
/// these rows read and zeros for the padding.
///
/// Tiles read u8, four or, widened, two of them in a step. So the copy of an i8 input holds its values plus
/// 128; that of a row_major one has pixels of channels. A run whose bytes are no multiple of four reads on into
/// what follows it, where weights are zero; the copy's last one by up to kSlack bytes beyond the copy.
///
/// Tiles that read f16 or bf16 take two of them in a step. The copy of a row_major input has pixels of channels then as
/// well, and an odd number of channels is filled up with a zero: what follows a run might be an infinity, and zero
/// times that is no zero. Only a single group may have an odd number.
class ConvInput {
 public:
  /// `output`: the convolution's output. `pixels`: how many pixels of a row a tile reads at once; where that many lie
  /// at addresses that share one set of the first-level cache, the copy keeps them apart. `zero_point`: of an i8 or u8
  /// input, the padding's value. `read_element`: bytes of an element that tiles read.
  ConvInput(const TensorDesc& input, const Shape& output, const Window& window, std::int64_t groups,
            std::int64_t pixels, std::int64_t read_element, int zero_point);

  static constexpr std::int64_t kSlack = 3;

  bool copied() const { return copied_; }
  /// Images of the output, and how many of them, from the first on, read their inputs at equal distances: all or those
  /// of a volume.
  std::int64_t images() const { return images_; }
  std::int64_t even_images() const;
  /// True when all output pixels of even_images() read their inputs at equal distances.
  bool evenly_spaced() const;
  /// True when K is ordered (tap, channel); otherwise (channel, tap), as weights come.
  bool channels_last() const { return channels_last_; }

  /// K of one group: runs of run() steps of 4 bytes at these offsets from a pixel, of which run_elements() elements
  /// count.
  const std::vector<std::int32_t>& segments() const { return segments_; }
  std::int64_t run() const { return (run_elements_ * read_element_ + 3) / 4; }
  std::int64_t run_elements() const { return run_elements_; }
  /// The last offset; segments() is empty when it exceeds 31 bits.
  std::int64_t reach() const { return reach_; }

  // From one output pixel, row, image (of even_images()) and group to the next, in the input or the copy. The copy's
  // image_step() holds for whole images.
  std::int64_t pixel_step() const { return stride_w_ * column_pitch_; }
  std::int64_t row_step() const { return stride_h_ * row_pitch_; }
  std::int64_t image_step() const { return image_pitch_; }
  std::int64_t group_step() const { return group_step_; }
  /// Where the first output pixel of an image reads its input, of what is not copied.
  std::int64_t image_at(std::int64_t image) const {
    return image / output_depth_ * source_volume_ + image % output_depth_ * image_pitch_;
  }

  /// Input rows of one slice, as they are read, for `output_rows` output rows of one image; and the maximum of output
  /// rows that need no more than `copied_rows` input rows (at least 1).
  std::int64_t copied_rows(std::int64_t output_rows) const;
  std::int64_t output_rows(std::int64_t copied_rows) const;
  /// Bytes of one of them, all planes of all slices that an output slice reads.
  std::int64_t copied_row_bytes() const {
    return copied_ ? row_pitch_ : row_pitch_ * (channels_last_ ? 1 : channels_) * window_.kernel[0];
  }
  /// Writes rows [begin, end) of the copy that starts at output row `output_row` of image `image` of the input `x`.
  /// `fill`: the padding's value, of an i8 input plus 128; none: that of the constructor.
  void copy(const std::byte* x, std::int64_t image, std::int64_t output_row, std::int64_t begin,
            std::int64_t end, std::byte* to, std::optional<int> fill = {}) const;

  /// A pixel of padding as tiles read it where channels_last().
  std::vector<std::byte> padding_pixel() const;

 private:
  void lay_out_copy(std::int64_t pixels);
  // To what tiles read.
  void copy_elements(const std::byte* from, std::int64_t count, std::byte* to) const;
  void list_segments(std::int64_t group_channels);
  void join_columns(const std::byte* source, std::int64_t count, std::byte* to) const;
  void pad(std::byte* pixels, std::int64_t count, int fill) const;
  void fill_up(std::byte* pixels, std::int64_t count) const;
  void copy_row(const std::byte* row, std::byte* to, int fill) const;
  void copy_columns(const std::byte* row, std::int64_t first, std::int64_t last, std::byte* to) const;

  Window window_;              // three-dimensional
  DType type_;                 // of an element of the input
  std::int64_t element_;       // its bytes
  std::int64_t read_element_;  // and in what tiles read
  bool planar_;                // the input; the next member is about what tiles read
  bool channels_last_;
  bool copied_;
  bool moved_;  // the copy of i8 is u8
  int fill_;    // padding, in the copy
  std::int64_t channels_, depth_, height_, width_, output_depth_, output_height_, output_width_;
  std::int64_t images_;
  std::int64_t pixel_channels_;  // of a pixel as it is read
  // Pitches of the input.
  std::int64_t source_column_, source_row_, source_slice_, source_plane_, source_volume_;
  // The copy: every gather-th input position; where the kernel has one tap it leaves out what the stride skips.
  std::int64_t gather_h_ = 1, gather_w_ = 1;
  std::int64_t columns_ = 0;
  // Strides of what the tiles read.
  std::int64_t stride_h_, stride_w_;
  std::int64_t column_pitch_, row_pitch_, plane_pitch_, image_pitch_;
  std::int64_t tap_pitch_;  // from slice tap to slice tap
  std::int64_t group_step_ = 0;
  std::int64_t run_elements_ = 0;
  std::int64_t reach_ = 0;
  std::vector<std::int32_t> segments_;
};

}  // namespace pipit::internal
