// Patches of an image as rows of a matrix (im2col; Chellapilla, Puri & Simard 2006), read piece by piece.
#pragma once

#include <vector>

#include "engine/graph/tensor.h"
#include "layers/ops/window.h"

namespace pipit::internal {

/// Geometry of the patches of one f32 input [N, C, H, W] under a two-dimensional window, for convolutions in
/// groups. A patch is a sequence of runs that are contiguous in the input; the order of its K = taps * C / groups
/// elements depends on the input's layout.
class PatchReader {
 public:
  /// `output`: the convolution's output [N, O, OH, OW].
  PatchReader(const TensorDesc& input, const Shape& output, const Window& window, std::int64_t groups);

  /// Elements of a patch.
  std::int64_t size() const { return static_cast<std::int64_t>(runs_.size()) * run_; }

  /// Rearranges filters [O, C / groups, KH, KW] (row-major) into rows of size() elements in patch order.
  void reorder_filters(const float* filters, std::int64_t count, float* rows) const;

  /// Writes elements [k, k + depth) of the patches of output positions [first, first + rows), counted through
  /// N, OH and OW, to rows of `depth` floats. Padding reads as zero.
  void read(const float* input, std::int64_t group, std::int64_t first, std::int64_t rows, std::int64_t k,
            std::int64_t depth, float* patches) const;

 private:
  // Positions of a run relative to the patch's corner, before padding.
  struct Run {
    std::int64_t channel = 0;  // first channel, within the group
    std::int64_t tap_row = 0;
    std::int64_t tap_column = 0;
  };
  // Output positions next to each other in one output row.
  struct Strip {
    std::int64_t image = 0;
    std::int64_t row = 0;
    std::int64_t column = 0;
    std::int64_t count = 0;
  };
  void read_strip(const float* image, const Strip& strip, std::int64_t k, std::int64_t depth,
                  float* patches) const;

  bool channels_last_;
  std::int64_t height_, width_, output_height_, output_width_;
  std::int64_t stride_h_, stride_w_, dilation_h_, dilation_w_, pad_top_, pad_left_;
  std::int64_t kernel_h_, kernel_w_, group_channels_;
  // Distances in floats.
  std::int64_t image_stride_, channel_stride_, row_stride_, column_stride_;
  std::int64_t unit_;  // floats of one tap in a run
  std::int64_t run_;   // floats of a run: unit_ times one tap, or times all taps of a kernel row
  std::vector<Run> runs_;
};

}  // namespace pipit::internal
