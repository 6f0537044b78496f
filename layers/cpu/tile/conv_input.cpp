#include "layers/cpu/tile/conv_input.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "layers/common/layer_kernel.h"
#include "layers/cpu/vector/byte_loops.h"
#include "layers/cpu/vector/row_kernels.h"

namespace pipit::internal {

namespace {

constexpr std::int64_t kFloat = sizeof(float);
constexpr std::int64_t kHalf = sizeof(Half);
constexpr std::int64_t kByte = 1;
// Lines this far apart share a set of the first-level cache: 64 sets of 64 bytes, 8 to 12 lines each.
constexpr std::int64_t kSetPeriod = 4096;
constexpr std::int64_t kWays = 8;
constexpr std::int64_t kLine = 64;

// Whether an output position reads beyond the input.
bool reads_padding(const Window& window, int axis, std::int64_t input, std::int64_t output) {
  const auto i = static_cast<std::size_t>(axis);
  return window.pad_begin[i] > 0 ||
         (output - 1) * window.stride[i] - window.pad_begin[i] + window.span(axis) > input;
}

}  // namespace

ConvInput::ConvInput(const TensorDesc& input, const Shape& output, const Window& window, std::int64_t groups,
                     std::int64_t pixels, std::int64_t read_element, int zero_point)
    : window_(as_3d(window)),
      type_(input.dtype),
      element_(static_cast<std::int64_t>(dtype_bytes(input.dtype))),
      read_element_(read_element),
      planar_(!is_channels_last(input)),
      channels_last_(!planar_ || read_element_ < kFloat),
      moved_(input.dtype == DType::i8),
      fill_(moved_ ? zero_point + 128 : zero_point),
      channels_(input.shape[1]),
      pixel_channels_(element_ == kHalf && read_element_ == kHalf ? (channels_ + 1) / 2 * 2 : channels_) {
  const auto extent = [](const Shape& shape, int from_last) {
    return shape.rank() - from_last >= 2 ? shape[shape.rank() - from_last] : 1;
  };
  depth_ = extent(input.shape, 3);
  height_ = extent(input.shape, 2);
  width_ = extent(input.shape, 1);
  output_depth_ = extent(output, 3);
  output_height_ = extent(output, 2);
  output_width_ = extent(output, 1);
  images_ = output[0] * output_depth_;
  source_column_ = element_ * (planar_ ? 1 : channels_);
  source_row_ = source_column_ * width_;
  source_slice_ = source_row_ * height_;
  source_plane_ = planar_ ? source_slice_ * depth_ : 0;
  source_volume_ = element_ * channels_ * depth_ * height_ * width_;

  stride_h_ = window_.stride[1];
  stride_w_ = window_.stride[2];
  column_pitch_ = source_column_;
  row_pitch_ = source_row_;
  tap_pitch_ = window_.dilation[0] * source_slice_;
  plane_pitch_ = source_plane_;
  image_pitch_ = output_depth_ == 1 ? source_volume_ : window_.stride[0] * source_slice_;
  pixels = std::min(pixels, images_ * output_height_ * output_width_);
  const bool crowded = pixels > kWays && pixel_step() % kSetPeriod == 0;
  const bool joined = planar_ && channels_last_;
  const bool split_steps = channels_last_ && channels_ / groups * read_element_ % 4 != 0;
  copied_ = element_ != read_element_ || moved_ || joined || split_steps || crowded ||
            reads_padding(window_, 0, depth_, output_depth_) ||
            reads_padding(window_, 1, height_, output_height_) ||
            reads_padding(window_, 2, width_, output_width_);
  if (copied_) lay_out_copy(pixels);
  list_segments(pixel_channels_ / groups);
}

std::int64_t ConvInput::even_images() const {
  return copied_ || image_at(output_depth_) == output_depth_ * image_pitch_ ? images_ : output_depth_;
}

bool ConvInput::evenly_spaced() const {
  return (output_height_ == 1 || row_step() == output_width_ * pixel_step()) &&
         image_step() == output_height_ * output_width_ * pixel_step();
}

void ConvInput::lay_out_copy(std::int64_t pixels) {
  if (window_.kernel[1] == 1) gather_h_ = std::exchange(stride_h_, 1);
  if (window_.kernel[2] == 1) gather_w_ = std::exchange(stride_w_, 1);
  columns_ = (output_width_ - 1) * stride_w_ + window_.span(2);
  column_pitch_ = read_element_ * (channels_last_ ? pixel_channels_ : 1);
  if (pixels > kWays && pixel_step() % kSetPeriod == 0) column_pitch_ += kLine;
  plane_pitch_ = columns_ * column_pitch_;
  tap_pitch_ = (channels_last_ ? 1 : channels_) * plane_pitch_;
  row_pitch_ = window_.kernel[0] * tap_pitch_;
  image_pitch_ = copied_rows(output_height_) * row_pitch_;
}

std::int64_t ConvInput::copied_rows(std::int64_t output_rows) const {
  return (output_rows - 1) * stride_h_ + window_.span(1);
}

std::int64_t ConvInput::output_rows(std::int64_t copied_rows) const {
  return std::max<std::int64_t>(0, copied_rows - window_.span(1)) / stride_h_ + 1;
}

void ConvInput::list_segments(std::int64_t group_channels) {
  const std::int64_t unit = channels_last_ ? group_channels : 1;
  const std::int64_t tap_w = window_.dilation[2] * column_pitch_;
  // The taps of a kernel row are one run where they are neighbours.
  const bool whole_rows = tap_w == unit * read_element_;
  const std::int64_t row_segments = whole_rows ? 1 : window_.kernel[2];
  const std::int64_t planes = channels_last_ ? 1 : group_channels;
  run_elements_ = whole_rows ? unit * window_.kernel[2] : unit;
  group_step_ = channels_last_ ? group_channels * read_element_ : group_channels * plane_pitch_;
  const std::int64_t tap_h = window_.dilation[1] * row_pitch_;
  reach_ = (planes - 1) * plane_pitch_ + (window_.kernel[0] - 1) * tap_pitch_ +
           (window_.kernel[1] - 1) * tap_h + (row_segments - 1) * tap_w;
  if (reach_ > std::numeric_limits<std::int32_t>::max()) return;
  segments_.reserve(static_cast<std::size_t>(planes * window_.kernel[0] * window_.kernel[1] * row_segments));
  for (std::int64_t p = 0; p < planes; ++p) {
    for (std::int64_t d = 0; d < window_.kernel[0]; ++d) {
      for (std::int64_t h = 0; h < window_.kernel[1]; ++h) {
        const std::int64_t row = p * plane_pitch_ + d * tap_pitch_ + h * tap_h;
        for (std::int64_t w = 0; w < row_segments; ++w) {
          segments_.push_back(static_cast<std::int32_t>(row + w * tap_w));
        }
      }
    }
  }
}

void ConvInput::copy_elements(const std::byte* from, std::int64_t count, std::byte* to) const {
  if (element_ == read_element_) {
    std::memcpy(to, from, static_cast<std::size_t>(count * element_));
  } else if (element_ == kByte) {
    widen_bytes(from, count, reinterpret_cast<std::uint16_t*>(to), moved_);
  } else {
    widen_row(type_, from, 0, reinterpret_cast<float*>(to), count);
  }
}

void ConvInput::copy(const std::byte* x, std::int64_t image, std::int64_t output_row, std::int64_t begin,
                     std::int64_t end, std::byte* to, std::optional<int> given) const {
  const int fill = given.value_or(fill_);
  const std::int64_t planes = channels_last_ ? 1 : channels_;
  const std::byte* volume = x + image / output_depth_ * source_volume_;
  const std::int64_t first_slice = image % output_depth_ * window_.stride[0] - window_.pad_begin[0];
  for (std::int64_t i = begin; i < end; ++i) {
    const std::int64_t row = (output_row * stride_h_ + i) * gather_h_ - window_.pad_begin[1];
    for (std::int64_t d = 0; d < window_.kernel[0]; ++d) {
      const std::int64_t slice = first_slice + d * window_.dilation[0];
      std::byte* target = to + i * row_pitch_ + d * tap_pitch_;
      if (slice < 0 || slice >= depth_ || row < 0 || row >= height_) {
        pad(target, planes * columns_, fill);
        continue;
      }
      const std::byte* source = volume + slice * source_slice_ + row * source_row_;
      for (std::int64_t p = 0; p < planes; ++p)
        copy_row(source + p * source_plane_, target + p * plane_pitch_, fill);
    }
  }
}

// A row of one plane (or of all, where the copy joins planes), with its padding.
void ConvInput::copy_row(const std::byte* row, std::byte* to, int fill) const {
  // Columns [inside, outside) of the copy lie in the image.
  const std::int64_t inside = std::min(columns_, (window_.pad_begin[2] + gather_w_ - 1) / gather_w_);
  const std::int64_t outside =
      std::clamp((width_ + window_.pad_begin[2] + gather_w_ - 1) / gather_w_, inside, columns_);
  pad(to, inside, fill);
  copy_columns(row, inside, outside, to);
  pad(to + outside * column_pitch_, columns_ - outside, fill);
}

void ConvInput::pad(std::byte* pixels, std::int64_t count, int fill) const {
  if (element_ == kByte && read_element_ == kHalf) {
    std::fill_n(reinterpret_cast<std::uint16_t*>(pixels), count * column_pitch_ / kHalf,
                static_cast<std::uint16_t>(fill));
  } else {
    std::memset(pixels, fill, static_cast<std::size_t>(count * column_pitch_));
  }
}

std::vector<std::byte> ConvInput::padding_pixel() const {
  std::vector<std::byte> pixel(static_cast<std::size_t>(column_pitch_ + kSlack));
  pad(pixel.data(), 1, fill_);
  return pixel;
}

// Zeros where `count` pixels of 16-bit elements have one channel more than the input.
void ConvInput::fill_up(std::byte* pixels, std::int64_t count) const {
  if (pixel_channels_ == channels_) return;
  for (std::int64_t i = 0; i < count; ++i) {
    std::memset(pixels + i * column_pitch_ + channels_ * kHalf, 0, kHalf);
  }
}

// Columns [first, last) of the copy, all of which lie in the image, from its row of one plane (or of the first one,
// where the copy joins planes).
void ConvInput::copy_columns(const std::byte* row, std::int64_t first, std::int64_t last,
                             std::byte* to) const {
  const std::byte* source = row + (first * gather_w_ - window_.pad_begin[2]) * source_column_;
  std::byte* target = to + first * column_pitch_;
  const std::int64_t count = last - first;
  if (count <= 0) return;
  const std::int64_t elements = channels_last_ ? channels_ : 1;
  if (planar_ && channels_last_) {
    join_columns(source, count, target);
  } else if (column_pitch_ == elements * read_element_ && gather_w_ == 1) {
    copy_elements(source, count * elements, target);
  } else {
    for (std::int64_t w = 0; w < count; ++w) {
      copy_elements(source + w * gather_w_ * source_column_, elements, target + w * column_pitch_);
    }
    if (channels_last_) fill_up(target, count);
  }
  if (moved_ && read_element_ == kByte) flip_signs(target, count * column_pitch_);
}

// Pixels of channels out of planes.
void ConvInput::join_columns(const std::byte* source, std::int64_t count, std::byte* to) const {
  if (element_ == kHalf) {
    join_half_planes(reinterpret_cast<const Half*>(source), source_plane_ / kHalf, gather_w_, channels_,
                     count, reinterpret_cast<Half*>(to), column_pitch_ / kHalf);
    fill_up(to, count);
  } else if (read_element_ == kByte) {
    join_planes(source, source_plane_, gather_w_, channels_, count, to, column_pitch_);
  } else {
    join_planes_wide(source, source_plane_, gather_w_, channels_, count, reinterpret_cast<std::uint16_t*>(to),
                     column_pitch_ / kHalf, moved_);
  }
}

}  // namespace pipit::internal
