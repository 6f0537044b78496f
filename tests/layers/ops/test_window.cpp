#include <gmock/gmock.h>

#include <algorithm>
#include <vector>

#include "engine/base/error.h"
#include "layers/ops/window.h"
#include "tests/layers/conformance.h"

namespace pipit::internal {
namespace {

using test::Random;

Window window_1d(std::int64_t kernel, std::int64_t stride, std::int64_t dilation, std::int64_t begin,
                 std::int64_t end, bool ceil_mode = false) {
  Window w;
  w.rank = 1;
  w.kernel[0] = kernel;
  w.stride[0] = stride;
  w.dilation[0] = dilation;
  w.pad_begin[0] = begin;
  w.pad_end[0] = end;
  w.ceil_mode = ceil_mode;
  return w;
}

TEST(Window, OutputExtentOfKnownLayers) {
  EXPECT_EQ(output_extent(window_1d(7, 2, 1, 3, 3), 0, 224), 112);
  EXPECT_EQ(output_extent(window_1d(3, 2, 1, 1, 1), 0, 112), 56);
  EXPECT_EQ(output_extent(window_1d(3, 1, 2, 2, 2), 0, 14), 14);
  EXPECT_EQ(output_extent(window_1d(2, 2, 1, 0, 0), 0, 7), 3);
  EXPECT_EQ(output_extent(window_1d(2, 2, 1, 0, 0, true), 0, 7), 4);
  // The fourth window would start at 6, in the end padding of an input of 5.
  EXPECT_EQ(output_extent(window_1d(2, 2, 1, 0, 2, true), 0, 5), 3);
  EXPECT_EQ(output_extent(window_1d(1, 2, 1, 0, 0, true), 0, 4), 2);
  EXPECT_EQ(output_extent(window_1d(5, 1, 1, 0, 0), 0, 5), 1);
  // Larger than the input by less than a stride: one window with ceil_mode (as PyTorch and ONNX Runtime), else none.
  EXPECT_EQ(output_extent(window_1d(3, 2, 1, 0, 0, true), 0, 2), 1);
  EXPECT_THROW(output_extent(window_1d(3, 2, 1, 0, 0), 0, 2), Error);
  EXPECT_THROW(output_extent(window_1d(3, 1, 1, 0, 0, true), 0, 2), Error);
}

// The definition, position by position.
TEST(Window, OutputExtentMatchesCounting) {
  Random random;
  for (int i = 0; i < 2000; ++i) {
    const Window w = window_1d(random.integer(1, 5), random.integer(1, 4), random.integer(1, 3),
                               random.integer(0, 4), random.integer(0, 4), random.coin());
    const std::int64_t input = random.integer(0, 12);
    const std::int64_t padded = input + w.pad_begin[0] + w.pad_end[0];
    std::int64_t count = 0;
    for (std::int64_t start = 0; start < padded; start += w.stride[0]) {
      const bool whole = start + w.span(0) <= padded;
      const bool previous_whole = start - w.stride[0] + w.span(0) < padded;
      const bool starts_inside = start < input + w.pad_begin[0];
      if (whole || (w.ceil_mode && previous_whole && starts_inside)) ++count;
    }
    if (count == 0) {
      EXPECT_THROW(output_extent(w, 0, input), Error);
      continue;
    }
    EXPECT_EQ(output_extent(w, 0, input), count) << w.str() << " over " << input << " ceil " << w.ceil_mode;
  }
}

TEST(Window, TapsInsideMatchesCounting) {
  Random random;
  for (int i = 0; i < 2000; ++i) {
    const Window w = window_1d(random.integer(1, 5), random.integer(1, 4), random.integer(1, 3),
                               random.integer(0, 6), random.integer(0, 6));
    const std::int64_t input = random.integer(0, 9);
    const std::int64_t output = random.integer(0, 9);
    const TapRange range = taps_inside(w, 0, output, input);
    EXPECT_EQ(range.start, output * w.stride[0] - w.pad_begin[0]);
    for (std::int64_t k = 0; k < w.kernel[0]; ++k) {
      const std::int64_t position = range.start + k * w.dilation[0];
      EXPECT_EQ(k >= range.begin && k < range.end, position >= 0 && position < input) << w.str();
    }
    EXPECT_LE(range.begin, range.end);
  }
}

TEST(Window, TapsOfAnAbsurdKernelAreClippedWithoutLooping) {
  const std::int64_t huge = (std::int64_t{1} << 31) - 1;
  const Window w = window_1d(huge, 1, 1, huge - 1, 0);
  EXPECT_EQ(taps_inside(w, 0, 0, 1).count(), 1);
}

TEST(Window, AutoPad) {
  Window w;
  w.kernel = {3, 2, 1};
  w.stride = {2, 1, 1};
  const std::int64_t input[] = {6, 5};
  const Window upper = resolve_auto_pad(w, AutoPad::same_upper, input);
  EXPECT_EQ(upper.pad_begin[0], 0);
  EXPECT_EQ(upper.pad_end[0], 1);
  EXPECT_EQ(upper.pad_end[1], 1);
  const Window lower = resolve_auto_pad(w, AutoPad::same_lower, input);
  EXPECT_EQ(lower.pad_begin[0], 1);
  EXPECT_EQ(lower.pad_end[0], 0);
  EXPECT_EQ(output_extent(upper, 0, 6), 3);
  EXPECT_EQ(output_extent(lower, 1, 5), 5);
  Window padded = w;
  padded.pad_begin = {1, 1, 0};
  EXPECT_EQ(resolve_auto_pad(padded, AutoPad::valid, input), w);
  EXPECT_EQ(resolve_auto_pad(padded, AutoPad::notset, input), padded);
  EXPECT_THROW(resolve_auto_pad(w, AutoPad::valid, std::span(input, 1)), Error);
}

TEST(Window, Text) {
  Window w;
  w.kernel = {3, 3, 1};
  EXPECT_EQ(w.str(), "3x3");
  w.stride = {2, 2, 1};
  w.pad_begin = w.pad_end = {1, 1, 0};
  EXPECT_EQ(w.str(), "3x3 s2 p1");
  w.stride = {2, 1, 1};
  w.pad_begin = {0, 0, 0};
  EXPECT_EQ(w.str(), "3x3 s2,1 p0,0,1,1");
  w.dilation = {2, 2, 1};
  EXPECT_EQ(w.str(), "3x3 s2,1 d2 p0,0,1,1");
}

TEST(Window, RefusesHostileNumbers) {
  const std::int64_t two_31 = std::int64_t{1} << 31;
  for (const std::int64_t bad : {std::int64_t{0}, std::int64_t{-1}, two_31, INT64_MAX, INT64_MIN}) {
    EXPECT_THROW(check_window(window_1d(bad, 1, 1, 0, 0), "Conv"), Error);
    EXPECT_THROW(check_window(window_1d(1, bad, 1, 0, 0), "Conv"), Error);
    EXPECT_THROW(check_window(window_1d(1, 1, bad, 0, 0), "Conv"), Error);
    if (bad != 0) {
      EXPECT_THROW(check_window(window_1d(1, 1, 1, bad, 0), "Conv"), Error);
      EXPECT_THROW(check_window(window_1d(1, 1, 1, 0, bad), "Conv"), Error);
    }
  }
  Window w;
  w.rank = 3;
  w.kernel = {two_31 - 1, two_31 - 1, two_31 - 1};
  EXPECT_THROW(check_window(w, "Conv"), Error);
  w.rank = 0;
  EXPECT_THROW(check_window(w, "Conv"), Error);
  w.rank = 4;
  EXPECT_THROW(check_window(w, "Conv"), Error);
}

TEST(Window, OutputShapeNeedsMatchingRank) {
  EXPECT_EQ(window_output_shape(Window{}, Shape{2, 3, 5, 7}, 9), (Shape{2, 9, 5, 7}));
  EXPECT_THROW(window_output_shape(Window{}, Shape{2, 3, 5}, 9), Error);
}

TEST(Window, ReadShareOfKnownLayers) {
  EXPECT_EQ(window_read_share(window_1d(3, 1, 1, 1, 1), Shape{1, 8, 14}), 1);
  EXPECT_EQ(window_read_share(window_1d(1, 2, 1, 0, 0), Shape{1, 8, 14}), 0.5);
  EXPECT_EQ(window_read_share(window_1d(2, 4, 1, 0, 0), Shape{1, 8, 12}), 0.5);
  EXPECT_EQ(window_read_share(window_1d(2, 2, 1, 0, 0), Shape{1, 8, 7}), 6.0 / 7);
  EXPECT_EQ(window_read_share(window_1d(3, 1, 2, 2, 2), Shape{1, 8, 14}), 1);
}

// Never more than what some tap reads, and the same for windows without dilation whose first and last taps are inside.
TEST(Window, ReadShareIsCertain) {
  Random random;
  for (int i = 0; i < 2000; ++i) {
    const Window w = window_1d(random.integer(1, 5), random.integer(1, 6), random.integer(1, 3),
                               random.integer(0, 4), random.integer(0, 4), random.coin());
    const std::int64_t input = random.integer(1, 20);
    if (input + w.pad_begin[0] + w.pad_end[0] < w.span(0)) continue;
    std::vector<bool> seen(static_cast<std::size_t>(input), false);
    for (std::int64_t o = 0; o < output_extent(w, 0, input); ++o) {
      const TapRange taps = taps_inside(w, 0, o, input);
      for (std::int64_t k = taps.begin; k < taps.end; ++k)
        seen[static_cast<std::size_t>(taps.start + k * w.dilation[0])] = true;
    }
    const auto read =
        static_cast<double>(std::count(seen.begin(), seen.end(), true)) / static_cast<double>(input);
    const double share = window_read_share(w, Shape{1, 1, input});
    EXPECT_GE(share, 0) << w.str() << " over " << input;
    EXPECT_LE(share, read) << w.str() << " over " << input;
    if (w.dilation[0] == 1 && w.pad_begin[0] == 0 && w.pad_end[0] == 0 && !w.ceil_mode) {
      EXPECT_DOUBLE_EQ(share, read) << w.str() << " over " << input;
    }
  }
}

}  // namespace
}  // namespace pipit::internal
