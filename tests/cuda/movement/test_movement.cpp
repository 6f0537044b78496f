// Layers that move elements, on the GPU, against the CPU reference: exact in fp32 and, after rounding, in fp16.
#include <numeric>

#include "layers/ops/channel_shuffle.h"
#include "layers/ops/reshaping.h"
#include "layers/ops/resize.h"
#include "layers/ops/slicing.h"
#include "tests/cuda/conformance.h"
#include "tests/cuda/quantized_cases.h"

namespace pipit::internal::test {
namespace {

constexpr const char* kCopy = "strided_copy";
constexpr Layout kBoth[] = {Layout::row_major, Layout::channels_last};
constexpr Precision kPrecisions[] = {Precision::fp32, Precision::fp16};
constexpr double kExact = 1e-12;

// Both precisions and all combinations of input and output layouts, or those that differ.
void check(const Layer& layer, const char* name, const std::vector<std::shared_ptr<const Tensor>>& inputs,
           bool same_layouts = true, bool rounds = false) {
  for (const Precision precision : kPrecisions) {
    for (const Layout in : kBoth) {
      for (const Layout out : kBoth) {
        if (in == out && !same_layouts) continue;
        GpuCase test;
        for (const auto& x : inputs) test.inputs.push_back({x, in});
        test.precision = precision;
        test.output_layout = out;
        test.tolerance = kExact;
        // Sums of four products, whose order is not the reference's.
        if (rounds) test.tolerance = precision == Precision::fp16 ? 0x1p-11 : 0x1p-22;
        expect_gpu(layer, name, test);
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

std::shared_ptr<const Tensor> bytes(const Shape& shape, std::mt19937& random) {
  Tensor tensor(TensorDesc{shape, DType::u8, Layout::row_major});
  for (auto& x : tensor.values<std::uint8_t>()) x = static_cast<std::uint8_t>(random());
  return std::make_shared<const Tensor>(std::move(tensor));
}

TEST(GpuMovement, ToLayoutAndTranspose) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(test::gpu_seed());
  for (const Shape& shape :
       {Shape{2, 3, 17, 19}, Shape{2, 64, 9, 7}, Shape{1, 33, 40, 5}, Shape{3, 40, 35}}) {
    const auto x = shared_random(shape, random);
    check(ToLayout({Layout::channels_last}), kCopy, {x});
    check(ToLayout({Layout::channels_last}), kCopy, {bytes(shape, random)});
    std::vector<std::int64_t> permutation;
    for (int d = 0; d < shape.rank(); ++d) permutation.push_back(d);
    do check(Transpose({permutation}), kCopy, {x});
    while (std::next_permutation(permutation.begin(), permutation.end()) && !HasFailure());
  }
}

TEST(GpuMovement, ConcatSplitSlice) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(test::gpu_seed());
  for (const int axis : {1, 2, -1}) {
    for (const std::int64_t step : {8, 3}) {
      const auto part = [&](std::int64_t extent) {
        return shared_random(Shape{2, 16, 8, 24}.with(axis < 0 ? 3 : axis, extent), random);
      };
      check(Concat({axis}), kCopy, {part(step), part(2 * step), part(5)}, false);  // "rows" takes the others
      check(Split({axis, {step, 5, 3 * step}}), kCopy, {part(4 * step + 5)});
    }
  }
  const auto x = shared_random({2, 12, 9, 16}, random);
  check(Slice({{8}, {100}, {3}, {1}}), kCopy, {x});
  check(Slice({{4}, {12}, {1}, {1}}), kCopy, {x});
  check(Slice({{-1, 1}, {-100, 8}, {1, 2}, {-2, 3}}), kCopy, {x});
  check(Slice({{5}, {5}, {2}, {1}}), kCopy, {x});  // nothing
}

TEST(GpuMovement, AConstantIsConvertedOnItsWayIntoAConcat) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(test::gpu_seed());
  const auto x = shared_random({1, 5, 8, 3}, random);
  const auto constant = shared_random({1, 5, 4, 3}, random);
  expect_gpu(Concat({2}), kCopy,
             {{{x}, {constant, Layout::row_major, true}}, Precision::fp16, Layout::row_major, kExact});
}

// Groups and widths that units of four and two channels divide, or nothing; empty inputs and outputs.
TEST(GpuMovement, ChannelShuffle) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(test::gpu_seed());
  const auto pick = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  const auto cut = [&](std::int64_t total, std::int64_t unit) {
    std::vector<std::int64_t> widths;
    for (std::int64_t parts = pick(1, 4); parts > 1; --parts) {
      widths.push_back(unit * pick(0, total / unit));
      total -= widths.back();
    }
    widths.push_back(total);
    return widths;
  };
  for (int round = 0; round < 40 && !HasFailure(); ++round) {
    const std::int64_t unit = std::int64_t{1} << pick(0, 2);
    const std::int64_t groups = round % 2 == 0 ? 2 : pick(1, 7);
    const std::int64_t channels = groups * unit * pick(1, 40);
    const Shape shape{pick(1, 3), 1, pick(1, 30), pick(1, 30)};
    const bool is_bytes = pick(0, 2) == 0;
    GpuCase test;
    test.precision = kPrecisions[pick(0, 1)];
    test.output_layout = Layout::channels_last;
    test.tolerance = kExact;
    ChannelShuffleAttributes attributes{groups, cut(channels, unit)};
    const bool wide = pick(0, 1) == 0;
    for (const std::int64_t taken : cut(channels, 1)) {
      if (wide) attributes.taken.push_back(taken);
      const Shape part = shape.with(1, taken + (wide ? pick(0, 9) : 0));
      test.inputs.push_back(
          {is_bytes ? bytes(part, random) : shared_random(part, random), Layout::channels_last});
    }
    // With one group the kernel moves and repeats several channels as one.
    for (const std::int64_t size : attributes.sizes) {
      if (wide && groups > 1) attributes.widths.push_back(size + (size > 0 ? unit * pick(0, 3) : 0));
    }
    expect_gpu(ChannelShuffle(attributes), "rows", test);
  }
  check(ChannelShuffle({2, {6}}), "rows", {shared_random({5, 6}, random)});
  EXPECT_TRUE(test::gpu_refusal(ChannelShuffle({2, {6}}), "rows", {{{shared_random({1, 6, 2, 3}, random)}}})
                  .has_value());
}

// Along every dimension, where the outputs' rows make up the input's; in every unit; empty outputs.
TEST(GpuMovement, SplitRows) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(test::gpu_seed());
  const auto pick = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  for (int round = 0; round < 40 && !HasFailure(); ++round) {
    const auto axis = static_cast<int>(pick(1, 3));
    std::vector<std::int64_t> sizes;
    const std::int64_t unit = std::int64_t{1} << pick(0, 4);
    for (std::int64_t parts = pick(1, round % 4 == 0 ? 16 : 4); parts > 0; --parts)
      sizes.push_back(unit * pick(sizes.empty() ? 1 : 0, 5));
    const Shape shape = Shape{pick(1, 3), pick(1, 9), pick(1, 9), pick(1, 9)}.with(
        axis, std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}));
    GpuCase test;
    test.precision = kPrecisions[pick(0, 1)];
    test.output_layout = kBoth[pick(0, 1)];
    test.tolerance = kExact;
    test.inputs = {
        {pick(0, 2) == 0 ? bytes(shape, random) : shared_random(shape, random), test.output_layout}};
    expect_gpu(Split({axis, sizes}), "rows", test);
  }
  const auto x = shared_random({2, 4, 3, 5}, random);
  const auto refusal = [&](const std::vector<std::int64_t>& sizes, Layout in, Layout out) {
    GpuCase test;
    test.inputs = {{x, in}};
    test.output_layout = out;
    return test::gpu_refusal(Split({1, sizes}), "rows", test);
  };
  EXPECT_EQ(refusal({1, 3}, Layout::row_major, Layout::row_major), std::nullopt);
  EXPECT_TRUE(refusal({1, 3}, Layout::row_major, Layout::channels_last).has_value()) << "layouts";
  std::vector<std::int64_t> many(17, 0);
  many[0] = 4;
  EXPECT_TRUE(refusal(many, Layout::row_major, Layout::row_major).has_value()) << "outputs";
}

TEST(GpuMovement, RepeatsAndBlocks) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(test::gpu_seed());
  check(Expand({Shape{2, 3, 8, 5}}), kCopy, {shared_random({3, 1, 5}, random)});
  check(Expand({Shape{7, 16}}), kCopy, {shared_random({16}, random)});
  check(Tile({{2, 1, 3, 2}}), kCopy, {shared_random({1, 4, 3, 8}, random)});
  for (const bool crd : {false, true}) {
    check(DepthToSpace({2, crd, false}), kCopy, {shared_random({2, 12, 5, 3}, random)});
    check(DepthToSpace({3, crd, true}), kCopy, {shared_random({2, 2, 6, 9}, random)});
  }
  const auto x = shared_random({2, 3, 4, 5}, random);
  for (const Precision precision : kPrecisions) {
    expect_gpu(Reshape({Shape{6, 20}}), kCopy, {{{x}}, precision, Layout::row_major, kExact});
  }
  EXPECT_TRUE(test::gpu_refusal(Reshape({Shape{6, 20}}), kCopy, {{{x, Layout::channels_last}}}).has_value());
}

TEST(GpuMovement, Pad) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(test::gpu_seed());
  for (const PadMode mode : {PadMode::constant, PadMode::reflect, PadMode::edge, PadMode::wrap}) {
    check(Pad({mode, {0, 1, 2, 3}, {0, 0, 1, 4}, 1.5}), "pad", {shared_random({2, 3, 6, 7}, random)});
    check(Pad({mode, {0, -1}, {2, -1}, -7}), "pad", {shared_random({3, 9}, random)});
  }
  check(Pad({PadMode::constant, {1, 2}, {0, 3}, 9}), "pad", {bytes({4, 5}, random)});
}

TEST(GpuMovement, Gather) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(test::gpu_seed());
  const std::int64_t positions[] = {3, -1, 0, 0, -4, 2};
  const auto indices = std::make_shared<const Tensor>(Tensor::from<std::int64_t>({2, 3}, positions));
  const auto x = shared_random({5, 4, 7}, random);
  const GpuOperand constant{indices, Layout::row_major, true};
  for (const Precision precision : kPrecisions) {
    for (const int axis : {0, 1, -1}) {
      expect_gpu(Gather({axis}), "gather", {{{x}, constant}, precision, Layout::row_major, kExact});
    }
  }
}

TEST(GpuResize, NearestAndLinear) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(test::gpu_seed());
  for (const ResizeCoordinates coordinates :
       {ResizeCoordinates::half_pixel, ResizeCoordinates::align_corners, ResizeCoordinates::asymmetric,
        ResizeCoordinates::pytorch_half_pixel, ResizeCoordinates::half_pixel_symmetric}) {
    for (const ResizeMode mode : {ResizeMode::nearest, ResizeMode::linear}) {
      ResizeAttributes a{mode, coordinates};
      const bool rounds = mode == ResizeMode::linear;
      a.scales = {1, 1, 2, 2, 1, 1};
      check(Resize(a), "taps", {shared_random({2, 8, 5, 6}, random)}, true, rounds);
      a.scales = {1, 1, 0.6F, 1.7F, 1, 1};
      check(Resize(a), "taps", {shared_random({1, 3, 9, 11}, random)}, true, rounds);
      a.scales = {1, 1.5F, 2, 1, 1, 1};
      check(Resize(a), "taps", {shared_random({1, 4, 3, 5}, random)}, true, rounds);
    }
  }
}

TEST(QMovement, BytesAreMovedAsTheyAre) {
  PIPIT_NEEDS_GPU();
  Numbers numbers(222);
  for (const Layout layout : {kLast, Layout::row_major}) {
    GpuCase test = exact_case(layout);
    test.inputs = {{numbers.quantized({2, 16, 7, 5}, kI8), layout},
                   {numbers.quantized({2, 5, 7, 5}, kI8), layout}};
    expect_gpu(Concat({1}), "rows", test);
    GpuCase mixed = test;
    mixed.inputs[1].layout = layout == kLast ? Layout::row_major : kLast;
    expect_gpu(Concat({1}), "strided_copy", mixed);
    test.inputs.pop_back();
    test.output_layout = layout == kLast ? Layout::row_major : kLast;
    expect_gpu(ToLayout({test.output_layout}), "strided_copy", test);
  }
  GpuCase test = exact_case(Layout::row_major);
  test.inputs = {{numbers.quantized({3, 8, 1, 1}, kI8)}};
  expect_gpu(Reshape({Shape{3, 8}}), "strided_copy", test);
}

}  // namespace
}  // namespace pipit::internal::test
