// The convolutions whose blocks keep their weights: what they are told of a layer (on the CPU), and their results in
// fp16 against the CPU reference.
#include <random>
#include <span>

#include "engine/cuda/runtime.h"
#include "layers/cuda/conv/resident_gemm/plan.h"
#include "layers/cuda/device/gpu_info.h"
#include "layers/ops/conv.h"
#include "layers/ops/qconv.h"
#include "tests/cuda/conv/conv_cases.h"
#include "tests/cuda/conv/qconv_cases.h"
#include "tests/cuda/conv/resident_cases.h"

namespace pipit::internal::test {
namespace {

// Walks through rows as the copies lay them out: every place of every kept block, from every position's first pixel, is
// that block's pixel and channels, in the padding, too.
TEST(ResidentPlan, PlacesAreWhereTheCopiesLay) {
  std::mt19937 random(7);
  int planned = 0;
  for (int i = 0; i < 200 && !HasFailure(); ++i) {
    const Geometry g = random_geometry(random);
    const cuda::ConvShape s = gemm_shape(g);
    const auto weights = pruned_weights(*shared_random(weight_shape(g), random), 8, random);
    const cuda::KeptDepth depth(s, s.in_c, weights->values<float>());
    for (const cuda::ResidentPlan& plan : cuda::resident_plans(s, depth)) {
      ++planned;
      ASSERT_LE(plan.shared_bytes + cuda::kResidentReserved, cuda::kResidentShared);
      ASSERT_GE(plan.groups, 1);
      const std::vector<int> places = cuda::resident_places(s, depth, plan);
      const int per_tap = s.in_c / 8;
      for (int tile = 0; tile * plan.columns < s.out_c; ++tile) {
        const std::vector<int> blocks = depth.blocks(tile, plan.columns);
        ASSERT_EQ(static_cast<int>(blocks.size()), cuda::resident_blocks(s, depth, tile, plan.columns));
        for (std::size_t b = 0; b < blocks.size(); ++b) {
          const std::size_t half =
              static_cast<std::size_t>(plan.places) * (static_cast<std::size_t>(tile) * 2 + b % 2);
          const int place = places[half + b / 2];
          const int tap = blocks[b] / per_tap;
          const int row = place / plan.row_bytes();
          const int plane = place % plan.row_bytes() / plan.plane_bytes();
          const int pixel = place % plan.plane_bytes() / plan.pixel_bytes;
          const int chunk = place % plan.pixel_bytes / 16;
          EXPECT_EQ(row, tap / s.kernel_w * s.dilation_h);
          EXPECT_EQ(pixel, tap % s.kernel_w * s.dilation_w);
          EXPECT_EQ(plane * (plan.pixel_bytes / 16) + chunk, blocks[b] % per_tap);
          EXPECT_LT((s.out_w - 1) * s.stride_w + pixel, plan.box_pixels);
          EXPECT_LT((s.out_h - 1) * s.stride_h + row, plan.in_rows);
        }
      }
    }
  }
  EXPECT_GT(planned, 100);
}

TEST(ResidentPlan, FitsTheLayersOfNetworks) {
  const auto plans = [](std::int64_t channels, std::int64_t size, std::int64_t outputs, std::int64_t kernel) {
    const cuda::ConvShape s = gemm_shape(geometry(32, channels, size, outputs, kernel, 1, kernel / 2));
    return cuda::resident_plans(s, cuda::KeptDepth(s));
  };
  EXPECT_EQ(plans(64, 56, 128, 3).front().name(), "128/3");
  EXPECT_EQ(plans(64, 56, 64, 3).front().name(), "64/4");
  // 288 KiB of weights for 128 outputs.
  EXPECT_EQ(plans(128, 28, 128, 3).front().columns, 64);
  EXPECT_TRUE(plans(512, 7, 512, 3).empty());
}

TEST(ConvResident, RandomGeometries) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(gpu_seed() + 20);
  int accepted = 0;
  for (int i = 0; i < 70 && !HasFailure(); ++i) {
    const auto reason = check_resident(random_geometry(random), i % 2 == 1, random,
                                       [](const Geometry&, const Conv& layer, const GpuCase& test) {
                                         expect_gpu(layer, "resident_gemm", test);
                                       });
    if (reason && reason->find("Hopper") != std::string::npos) GTEST_SKIP() << *reason;
    accepted += reason ? 0 : 1;
  }
  EXPECT_GT(accepted, 25);
}

// Blocks with several tiles, whose rows go round the ring; images smaller than a tile; planes; two column tiles.
TEST(ConvResident, ManyTiles) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(gpu_seed() + 21);
  std::vector<Geometry> geometries{geometry(700, 8, 8, 8, 3, 1, 1),    geometry(16, 16, 56, 8, 3, 1, 1),
                                   geometry(600, 72, 7, 8, 3, 1, 1),   geometry(90, 72, 29, 8, 3, 2, 1),
                                   geometry(20, 64, 28, 136, 1, 1, 0), geometry(3000, 40, 3, 8, 3, 1, 1),
                                   geometry(2, 32, 56, 72, 3, 1, 1)};
  for (Geometry& g : geometries) {
    g.residual = g.channels > 16;
    g.activation = Clamp::relu();
    const Conv layer(ConvAttributes{g.window, 1, g.activation});
    GpuCase test = make_case(g, Precision::fp16, random);
    if (const auto reason = gpu_refusal(layer, "resident_gemm", test)) {
      if (reason->find("Hopper") != std::string::npos) GTEST_SKIP() << *reason;
      FAIL() << *reason;
    }
    const std::vector<std::string> ways = gpu_variants(layer, "resident_gemm", test);
    for (const std::size_t way : {std::size_t{0}, ways.size() - 1}) {
      test.variant = ways[way];
      expect_gpu(layer, "resident_gemm", test);
      if (HasFailure()) return;
    }
  }
}

TEST(ConvResident, Refuses) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(gpu_seed() + 22);
  const auto refusal = [&](const Geometry& g, Precision precision = Precision::fp16,
                           Layout layout = Layout::channels_last) {
    const Conv layer(ConvAttributes{g.window, 1, {}});
    return gpu_refusal(layer, "resident_gemm", make_case(g, precision, random, layout));
  };
  const Geometry g = geometry(2, 16, 9, 16, 3, 1, 1);
  expect_refused(refusal(g, Precision::fp32), "fp16");
  expect_refused(refusal(g, Precision::fp16, Layout::row_major), "channels_last");
  expect_refused(refusal(geometry(2, 12, 9, 16, 3, 1, 1)), "multiple of 8");
  if (const auto reason = refusal(g)) GTEST_SKIP() << *reason;
  expect_refused(refusal(geometry(2, 16, 9, 12, 3, 1, 1)), "multiple of 8");
  expect_refused(refusal(geometry(2, 16, 9, 16, 1, 2, 0)), "leave out");
  expect_refused(refusal(geometry(2, 512, 9, 16, 3, 1, 1)), "do not fit");
  expect_refused(refusal(geometry(1, 8, 300, 8, 3, 1, 1)), "rows of 302 pixels");
}

// INT8 convolutions whose blocks keep their weights against the CPU's scalar specification, bit for bit.

// Why "resident_gemm" cannot run here; empty where it can.
std::string resident_problem() {
  return cuda::has_hopper_kernels() ? "" : "not a Hopper GPU";
}

cuda::ConvShape shape_of(const ConvCase& c) {
  const Window& w = c.attributes.conv.window;
  const Shape y = output_of(c);
  const auto narrow = [](std::int64_t v) { return static_cast<int>(v); };
  cuda::ConvShape s;
  s.batch = narrow(c.x[0]), s.in_h = narrow(c.x[2]), s.in_w = narrow(c.x[3]), s.in_c = narrow(c.x[1] / 2);
  s.out_h = narrow(y[2]), s.out_w = narrow(y[3]), s.out_c = narrow(y[1]);
  s.kernel_h = narrow(w.kernel[0]), s.kernel_w = narrow(w.kernel[1]);
  s.stride_h = narrow(w.stride[0]), s.stride_w = narrow(w.stride[1]);
  s.dilation_h = narrow(w.dilation[0]), s.dilation_w = narrow(w.dilation[1]);
  return s;
}

TEST(QConvResident, RandomGeometries) {
  PIPIT_NEEDS_GPU();
  if (const std::string problem = resident_problem(); !problem.empty()) GTEST_SKIP() << problem;
  Numbers numbers(230);
  int accepted = 0;
  for (int i = 0; i < 60 && !HasFailure(); ++i) {
    ConvCase c = random_case(numbers, 16 * numbers.pick(1, 10), 8 * numbers.pick(1, 18), 1);
    if (i % 2 == 1) c.pruned_block = i % 4 == 1 ? 16 : numbers.pick(1, 40);
    if (cuda::refuse_resident(shape_of(c), cuda::KeptDepth(shape_of(c)))) continue;  // beyond what fits
    c.largest_weight = numbers.coin() ? 20 : 127;  // sums below and beyond what floats hold
    maybe_follow(c, numbers);
    ++accepted;
    if (i % 5 > 0) {
      expect_conv("resident_gemm", c, numbers);
    } else {
      std::set<std::string> ways;
      expect_conv("resident_gemm", c, numbers, kLast, Precision::fp32, &ways);
      EXPECT_GE(ways.size(), 2U);
    }
  }
  EXPECT_GT(accepted, 15);
}

// Blocks with several tiles, whose rows go round the ring; images smaller than a tile; planes; two column tiles.
TEST(QConvResident, ManyTiles) {
  PIPIT_NEEDS_GPU();
  if (const std::string problem = resident_problem(); !problem.empty()) GTEST_SKIP() << problem;
  struct Size {
    std::int64_t batch, kernel, stride, channels, filters, size;
  };
  Numbers numbers(231);
  for (const Size& size : {Size{700, 3, 1, 16, 8, 8}, Size{16, 3, 1, 16, 8, 56}, Size{2, 3, 1, 32, 72, 56},
                           Size{600, 3, 1, 144, 8, 7}, Size{90, 3, 2, 144, 8, 29},
                           Size{20, 1, 1, 64, 136, 28}, Size{3000, 3, 1, 48, 8, 3}}) {
    ConvCase c;
    set_window(c.attributes.conv.window, size.kernel, size.stride, 1, size.kernel / 2);
    c.x = Shape{size.batch, size.channels, size.size, size.size};
    c.weights = Shape{size.filters, size.channels, size.kernel, size.kernel};
    c.attributes.x = c.attributes.y = c.attributes.residual = kI8;
    c.attributes.weight_scales = {0.02F};
    c.residual = size.channels > 16;
    fit_output_scale(c);
    c.attributes.conv.activation = Clamp::relu();
    expect_conv("resident_gemm", c, numbers);
    if (HasFailure()) return;
  }
}

TEST(QConvResident, Refuses) {
  PIPIT_NEEDS_GPU();
  if (const std::string problem = resident_problem(); !problem.empty()) GTEST_SKIP() << problem;
  Numbers numbers(232);
  const auto refusal = [&](const ConvCase& c) {
    GpuCase test = exact_case();
    test.inputs = {{numbers.quantized(c.x, c.attributes.x), kLast},
                   {numbers.integers<std::int8_t>(c.weights, -9, 9), Layout::row_major, true}};
    return gpu_refusal(QConv(c.attributes), "resident_gemm", test);
  };
  ConvCase c = random_case(numbers, 16, 16, 1);
  set_window(c.attributes.conv.window, 3, 1, 1, 1);
  c.x = Shape{1, 16, 9, 9}, c.weights = Shape{16, 16, 3, 3};
  EXPECT_EQ(refusal(c), std::nullopt);
  ConvCase real = c;
  real.attributes.y = kReal;
  EXPECT_TRUE(refusal(real).has_value());
  c.x = Shape{1, 24, 9, 9}, c.weights = Shape{16, 24, 3, 3};
  EXPECT_TRUE(refusal(c).has_value());
}

}  // namespace
}  // namespace pipit::internal::test
