#include "layers/ops/window.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/base/ceil_div.h"
#include "engine/base/error.h"
#include "layers/ops/inference_checks.h"

namespace pipit::internal {

namespace {

constexpr std::int64_t kMaxNumber = (std::int64_t{1} << 31) - 1;
constexpr std::int64_t kMaxTaps = std::int64_t{1} << 62;

std::span<const std::int64_t> used(const std::array<std::int64_t, kMaxSpatial>& values, int rank) {
  return {values.data(), at(rank)};
}

bool all_are(std::span<const std::int64_t> values, std::int64_t value) {
  return std::all_of(values.begin(), values.end(), [value](std::int64_t v) { return v == value; });
}

// " s2" where all are alike, " s2,1" otherwise; nothing where all have the default.
std::string part(const char* prefix, std::span<const std::int64_t> values, std::int64_t normal) {
  if (all_are(values, normal)) return {};
  if (all_are(values, values[0])) return fmt::format(" {}{}", prefix, values[0]);
  return fmt::format(" {}{}", prefix, fmt::join(values, ","));
}

}  // namespace

std::int64_t Window::span(int axis) const {
  return (kernel[at(axis)] - 1) * dilation[at(axis)] + 1;
}

std::int64_t Window::taps() const {
  std::int64_t count = 1;
  for (int axis = 0; axis < rank; ++axis) count *= kernel[at(axis)];
  return count;
}

std::string Window::str() const {
  std::array<std::int64_t, 2 * kMaxSpatial> pads{};
  std::copy_n(pad_begin.begin(), rank, pads.begin());
  std::copy_n(pad_end.begin(), rank, pads.begin() + rank);
  return fmt::format("{}", fmt::join(used(kernel, rank), "x")) + part("s", used(stride, rank), 1) +
         part("d", used(dilation, rank), 1) + part("p", {pads.data(), at(2 * rank)}, 0);
}

void check_window(const Window& window, const char* layer) {
  if (window.rank < 1 || window.rank > kMaxSpatial) {
    fail("{}: a window of {} dimensions; 1 to {} are supported", layer, window.rank, kMaxSpatial);
  }
  std::int64_t taps = 1;
  for (int axis = 0; axis < window.rank; ++axis) {
    const auto check = [&](const char* what, std::int64_t value, std::int64_t low) {
      if (value < low || value > kMaxNumber) {
        fail("{}: {} {} along spatial dimension {}; expected {} to {}", layer, what, value, axis, low,
             kMaxNumber);
      }
    };
    check("kernel extent", window.kernel[at(axis)], 1);
    check("stride", window.stride[at(axis)], 1);
    check("dilation", window.dilation[at(axis)], 1);
    check("begin padding", window.pad_begin[at(axis)], 0);
    check("end padding", window.pad_end[at(axis)], 0);
    if (taps > kMaxTaps / window.kernel[at(axis)])
      fail("{}: a kernel of {} is too large", layer, window.str());
    taps *= window.kernel[at(axis)];
  }
}

std::int64_t output_extent(const Window& window, int axis, std::int64_t input) {
  const std::int64_t stride = window.stride[at(axis)];
  const std::int64_t room = input + window.pad_begin[at(axis)] + window.pad_end[at(axis)] - window.span(axis);
  // Room may be negative: rounded up, a window that reaches past the input by less than a stride still counts.
  const std::int64_t rounded_down = room >= 0 ? room / stride : -((-room + stride - 1) / stride);
  std::int64_t output = rounded_down + 1;
  if (window.ceil_mode && rounded_down * stride != room) {
    ++output;
    if ((output - 1) * stride >= input + window.pad_begin[at(axis)]) --output;
  }
  if (output < 1) {
    fail("a window of {} does not fit {} positions along spatial dimension {}", window.str(), input, axis);
  }
  return output;
}

Shape window_output_shape(const Window& window, const Shape& input, std::int64_t channels) {
  if (input.rank() != window.rank + 2) {
    fail("a window of {} dimensions slides over N, C and {} spatial dimensions, but the input is {}",
         window.rank, window.rank, input.str());
  }
  std::array<std::int64_t, kMaxSpatial + 2> dims{input[0], channels};
  for (int axis = 0; axis < window.rank; ++axis) {
    dims[at(axis + 2)] = output_extent(window, axis, input[axis + 2]);
  }
  return Shape(std::span<const std::int64_t>(dims.data(), at(window.rank + 2)));
}

Window as_3d(const Window& window) {
  Window result;
  result.rank = kMaxSpatial;
  result.ceil_mode = window.ceil_mode;
  const int shift = kMaxSpatial - window.rank;
  for (int axis = 0; axis < window.rank; ++axis) {
    const std::size_t from = at(axis);
    const std::size_t to = at(axis + shift);
    result.kernel[to] = window.kernel[from];
    result.stride[to] = window.stride[from];
    result.dilation[to] = window.dilation[from];
    result.pad_begin[to] = window.pad_begin[from];
    result.pad_end[to] = window.pad_end[from];
  }
  return result;
}

TapRange taps_inside(const Window& window, int axis, std::int64_t output, std::int64_t input_extent) {
  const std::int64_t dilation = window.dilation[at(axis)];
  TapRange range;
  range.start = output * window.stride[at(axis)] - window.pad_begin[at(axis)];
  // Most windows lie inside altogether; the divisions below would cost more than a small window's work.
  if (range.start >= 0 && range.start + window.span(axis) <= input_extent) {
    range.end = window.kernel[at(axis)];
    return range;
  }
  // The first k with start + k * dilation >= 0, and the first with start + k * dilation >= input_extent.
  const auto first_at_or_above = [&](std::int64_t position) {
    const std::int64_t gap = position - range.start;
    return gap <= 0 ? 0 : (gap + dilation - 1) / dilation;
  };
  range.begin = std::min(first_at_or_above(0), window.kernel[at(axis)]);
  range.end = std::max(range.begin, std::min(first_at_or_above(input_extent), window.kernel[at(axis)]));
  return range;
}

double window_read_share(const Window& window, const Shape& input) {
  double share = 1;
  for (int axis = 0; axis < window.rank; ++axis) {
    const std::int64_t extent = input[axis + 2];
    const std::int64_t kernel = window.kernel[at(axis)];
    const std::int64_t stride = window.stride[at(axis)];
    const std::int64_t dilation = window.dilation[at(axis)];
    const std::int64_t outputs = output_extent(window, axis, extent);
    // Windows whose taps from `first` to `last` all lie inside of the input.
    const auto windows = [&](std::int64_t first, std::int64_t last) {
      const std::int64_t start = window.pad_begin[at(axis)] - first * dilation;
      const std::int64_t room = extent - 1 + window.pad_begin[at(axis)] - last * dilation;
      const std::int64_t begin = start > 0 ? ceil_div(start, stride) : 0;
      const std::int64_t end = room >= 0 ? room / stride + 1 : 0;
      return std::max<std::int64_t>(0, std::min(end, outputs) - begin);
    };
    std::int64_t read = 0;
    if (dilation > 1) {
      read = windows(kernel / 2, kernel / 2);
    } else if (kernel < stride) {  // windows that do not touch
      read = kernel * windows(0, kernel - 1);
    } else {
      const std::int64_t begin = -window.pad_begin[at(axis)];
      const std::int64_t end = begin + (outputs - 1) * stride + kernel;
      read = std::min(end, extent) - std::max<std::int64_t>(begin, 0);
    }
    if (extent > 0)
      share *= static_cast<double>(std::max<std::int64_t>(read, 0)) / static_cast<double>(extent);
  }
  return share;
}

Window resolve_auto_pad(Window window, AutoPad auto_pad, std::span<const std::int64_t> input_spatial) {
  if (auto_pad == AutoPad::notset) return window;
  if (input_spatial.size() != at(window.rank)) {
    fail("auto_pad: a window of {} dimensions over {} spatial dimensions", window.rank, input_spatial.size());
  }
  for (std::size_t axis = 0; axis < input_spatial.size(); ++axis) {
    std::int64_t total = 0;
    if (auto_pad != AutoPad::valid && input_spatial[axis] > 0) {
      // Output extent ceil(input / stride), whatever the kernel.
      const std::int64_t last = (input_spatial[axis] - 1) / window.stride[axis] * window.stride[axis];
      total = std::max<std::int64_t>(0, last + window.span(static_cast<int>(axis)) - input_spatial[axis]);
    }
    const std::int64_t more = total - total / 2;
    window.pad_begin[axis] = auto_pad == AutoPad::same_lower ? more : total / 2;
    window.pad_end[axis] = auto_pad == AutoPad::same_lower ? total / 2 : more;
  }
  return window;
}

}  // namespace pipit::internal
