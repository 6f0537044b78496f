#include "layers/cpu/conv/im2col.h"

#include <algorithm>
#include <cstring>

#include "layers/common/layer_kernel.h"

namespace pipit::internal {

namespace {

// Runs are often a few floats (7 for the first layer of a ResNet), where a call of memcpy would dominate.
inline void copy_run(const float* from, std::int64_t count, float* to) {
  if (count >= 64) {
    std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(float));
    return;
  }
  for (; count >= 4; count -= 4, from += 4, to += 4) std::memcpy(to, from, 4 * sizeof(float));
  for (; count > 0; --count) *to++ = *from++;
}

}  // namespace

PatchReader::PatchReader(const TensorDesc& input, const Shape& output, const Window& window,
                         std::int64_t groups)
    : channels_last_(is_channels_last(input)),
      height_(input.shape[2]),
      width_(input.shape[3]),
      output_height_(output[2]),
      output_width_(output[3]),
      stride_h_(window.stride[0]),
      stride_w_(window.stride[1]),
      dilation_h_(window.dilation[0]),
      dilation_w_(window.dilation[1]),
      pad_top_(window.pad_begin[0]),
      pad_left_(window.pad_begin[1]),
      kernel_h_(window.kernel[0]),
      kernel_w_(window.kernel[1]),
      group_channels_(input.shape[1] / groups) {
  const std::int64_t channels = input.shape[1];
  image_stride_ = channels * height_ * width_;
  channel_stride_ = channels_last_ ? 1 : height_ * width_;
  column_stride_ = channels_last_ ? channels : 1;
  row_stride_ = column_stride_ * width_;
  unit_ = channels_last_ ? group_channels_ : 1;
  // Neighbouring taps of a kernel row are one run where they are neighbours in the input too.
  const bool whole_rows = dilation_w_ == 1 && unit_ == column_stride_;
  run_ = whole_rows ? unit_ * kernel_w_ : unit_;
  const std::int64_t outer_channels = channels_last_ ? 1 : group_channels_;
  const std::int64_t runs_per_row = whole_rows ? 1 : kernel_w_;
  runs_.reserve(static_cast<std::size_t>(outer_channels * kernel_h_ * runs_per_row));
  for (std::int64_t c = 0; c < outer_channels; ++c) {
    for (std::int64_t h = 0; h < kernel_h_; ++h) {
      for (std::int64_t w = 0; w < runs_per_row; ++w) runs_.push_back({c, h * dilation_h_, w * dilation_w_});
    }
  }
}

void PatchReader::reorder_filters(const float* filters, std::int64_t count, float* rows) const {
  const std::int64_t taps = kernel_h_ * kernel_w_;
  const std::int64_t k = group_channels_ * taps;
  for (std::int64_t o = 0; o < count; ++o, filters += k, rows += k) {
    if (!channels_last_) {
      std::copy_n(filters, k, rows);  // row-major filters are in the order of row-major patches already
      continue;
    }
    for (std::int64_t c = 0; c < group_channels_; ++c) {
      for (std::int64_t t = 0; t < taps; ++t) rows[t * group_channels_ + c] = filters[c * taps + t];
    }
  }
}

void PatchReader::read(const float* input, std::int64_t group, std::int64_t first, std::int64_t rows,
                       std::int64_t k, std::int64_t depth, float* patches) const {
  const float* group_input = input + group * group_channels_ * channel_stride_;
  while (rows > 0) {
    Strip strip;
    strip.column = first % output_width_;
    strip.row = first / output_width_ % output_height_;
    strip.image = first / (output_width_ * output_height_);
    strip.count = std::min(rows, output_width_ - strip.column);
    read_strip(group_input + strip.image * image_stride_, strip, k, depth, patches);
    first += strip.count;
    rows -= strip.count;
    patches += strip.count * depth;
  }
}

void PatchReader::read_strip(const float* image, const Strip& strip, std::int64_t k, std::int64_t depth,
                             float* patches) const {
  const std::int64_t end = k + depth;
  for (std::int64_t at = k; at < end;) {
    // Elements [begin, stop) of this run are wanted.
    const Run& run = runs_[static_cast<std::size_t>(at / run_)];
    const std::int64_t begin = at % run_;
    const std::int64_t stop = std::min(run_, begin + end - at);
    const std::int64_t row = strip.row * stride_h_ - pad_top_ + run.tap_row;
    float* to = patches + (at - k);
    at += stop - begin;
    if (row < 0 || row >= height_) {
      for (std::int64_t i = 0; i < strip.count; ++i) std::fill_n(to + i * depth, stop - begin, 0.0F);
      continue;
    }
    const float* source = image + run.channel * channel_stride_ + row * row_stride_;
    std::int64_t column = strip.column * stride_w_ - pad_left_ + run.tap_column;
    for (std::int64_t i = 0; i < strip.count; ++i, column += stride_w_, to += depth) {
      // Elements [inside, outside) of the run lie between the left and the right edge of the image.
      const std::int64_t inside = std::clamp(-column * unit_, begin, stop);
      const std::int64_t outside = std::clamp((width_ - column) * unit_, inside, stop);
      std::fill(to, to + (inside - begin), 0.0F);
      copy_run(source + column * column_stride_ + inside, outside - inside, to + (inside - begin));
      std::fill(to + (outside - begin), to + (stop - begin), 0.0F);
    }
  }
}

}  // namespace pipit::internal
