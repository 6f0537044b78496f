// "spread_gemm": what a plan of it promises, and fp16 convolutions against the CPU.
#include <gtest/gtest.h>
#include <cstring>
#include <set>

#include "engine/cuda/runtime.h"
#include "layers/cuda/conv/spread_gemm/plan.h"
#include "layers/cuda/device/gpu_info.h"
#include "layers/ops/qconv.h"
#include "tests/cuda/conv/conv_cases.h"
#include "tests/cuda/conv/qconv_cases.h"
#include "tests/cuda/seed.h"

namespace pipit::internal::test {
namespace {

// Every tap of every position that lies in the image is among the pixels that its tile holds.
TEST(SpreadPlan, TilesHoldWhatTheyRead) {
  std::mt19937 random(gpu_seed() + 500);
  int planned = 0;
  for (int i = 0; i < 300; ++i) {
    const cuda::ConvShape s = gemm_shape(random_geometry(random));
    const cuda::Divisor positions(s.out_h * s.out_w), width(s.out_w);
    const auto rows = static_cast<int>(s.rows());
    for (const cuda::SpreadPlan& plan : cuda::spread_plans(s, 132)) {
      ++planned;
      EXPECT_LE(plan.shared_bytes(), cuda::kSpreadShared - cuda::kSpreadReserved);
      EXPECT_EQ(plan.pitch / 16 % 2, 1) << "rows that are read at once lie in the same banks";
      EXPECT_GE(plan.slices * plan.slice_bytes, s.in_c * 2);
      EXPECT_EQ(plan.steps % cuda::kSpreadGroups, 0);
      if (plan.held != cuda::SpreadPixels::rows) continue;
      for (int row = 0; row < rows; ++row) {
        const int first = row / cuda::kSpreadRows * cuda::kSpreadRows;
        const cuda::SpreadRows held =
            cuda::spread_rows(s, positions, width, first, std::min(first + cuda::kSpreadRows, rows) - 1);
        ASSERT_LE((held.last - held.first + 1) * s.in_w, plan.pixels);
        ASSERT_GE(held.first, 0);
        ASSERT_LT(held.last, s.batch * s.in_h);
        const cuda::PixelOrigin at = cuda::pixel_origin(s, positions, width, row);
        for (int r = 0; r < s.kernel_h; ++r) {
          const int h = at.h + r * s.dilation_h;
          if (h < 0 || h >= s.in_h) continue;
          ASSERT_GE(at.image * s.in_h + h, held.first) << "seed " << gpu_seed();
          ASSERT_LE(at.image * s.in_h + h, held.last) << "seed " << gpu_seed();
        }
      }
    }
  }
  EXPECT_GT(planned, 200);
}

// Every weight is packed once, where the step of its tap and channel and the row of its output are.
TEST(SpreadPlan, WeightsArePackedByStep) {
  std::mt19937 random(gpu_seed() + 501);
  for (int i = 0; i < 40; ++i) {
    const Geometry g = random_geometry(random);
    const cuda::ConvShape s = gemm_shape(g);
    const int taps = s.kernel_h * s.kernel_w;
    std::vector<Half> weights(static_cast<std::size_t>(s.out_c * s.in_c * taps));
    for (std::size_t k = 0; k < weights.size(); ++k)
      weights[k].bits = static_cast<std::uint16_t>(k % 60000 + 1);
    for (const cuda::SpreadPlan& plan : cuda::spread_plans(s, 132)) {
      const std::vector<std::byte> packed =
          cuda::pack_spread(s, plan, 2, std::as_bytes(std::span(weights)).data());
      const int of_tap = plan.slice_bytes / cuda::kSpreadStepBytes;
      std::size_t found = 0;
      for (std::size_t at = 0; at < packed.size(); at += 2) {
        Half value;
        std::memcpy(&value, &packed[at], 2);
        if (value.bits == 0) continue;
        ++found;
        const auto byte = static_cast<int>(at);
        const int block = byte / (plan.steps * cuda::kSpreadStepWeights);
        const int step = byte / cuda::kSpreadStepWeights % plan.steps;
        const int half = byte % cuda::kSpreadStepWeights / 512, row = byte % 512 / 16;
        const int output = block / plan.slices * cuda::kSpreadColumns + cuda::packed_channel(row);
        const int channel = (block % plan.slices * of_tap + step % of_tap) * 16 + half * 8 + byte % 16 / 2;
        const int k = (output * s.in_c + channel) * taps + step / of_tap;
        ASSERT_EQ(value.bits, k % 60000 + 1) << "seed " << gpu_seed();
      }
      EXPECT_EQ(found, weights.size());
    }
  }
}

// 132 multiprocessors: the 14x14 and 7x7 layers of ResNet-50 at batch 1 take all of them.
TEST(SpreadPlan, OccupiesTheMultiprocessors) {
  const auto plan = [](std::int64_t channels, std::int64_t size, std::int64_t outputs, std::int64_t kernel) {
    cuda::ConvShape s = gemm_shape(geometry(1, channels, size, outputs, kernel, 1, kernel / 2));
    s.int8 = true, s.in_c /= 2;
    return cuda::spread_plans(s, 132).front().name();
  };
  EXPECT_EQ(plan(2048, 7, 512, 1), "64x32/8");
  EXPECT_EQ(plan(512, 7, 512, 3), "64x32/8");
  EXPECT_EQ(plan(1024, 14, 256, 1), "64x32/4");
  EXPECT_EQ(plan(256, 14, 1024, 1), "64x32/1");
}

// Shallow layers of mobile networks: a wider cluster takes longer over its sums than it saves.
TEST(SpreadPlan, ClustersAreAsWideAsTheDepthIsWorth) {
  const auto plan = [](std::int64_t channels, std::int64_t size, std::int64_t outputs) {
    cuda::ConvShape s = gemm_shape(geometry(1, channels, size, outputs, 1, 1, 0));
    s.int8 = true, s.in_c /= 2;
    return cuda::spread_plans(s, 132).front().name();
  };
  EXPECT_EQ(plan(192, 28, 32), "64x32/1");
  EXPECT_EQ(plan(384, 14, 64), "64x32/1");
  EXPECT_EQ(plan(480, 14, 80), "64x32/4");
  EXPECT_EQ(plan(672, 14, 112), "64x32/4");
  EXPECT_EQ(plan(512, 7, 2048), "64x32/1");
}

TEST(ConvSpread, RandomGeometries) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(gpu_seed() + 502);
  int accepted = 0;
  std::set<std::string> ways_seen;
  for (int i = 0; i < 90 && !HasFailure(); ++i) {
    Geometry g = random_geometry(random);
    if (i % 3 == 0) g.channels *= 5;
    if (i % 6 == 0) g.window.kernel = {1, 1, 1}, g.window.pad_begin = g.window.pad_end = {0, 0, 0};
    const Conv layer(ConvAttributes{g.window, 1, g.activation});
    GpuCase test = make_case(g, Precision::fp16, random);
    if (const auto reason = gpu_refusal(layer, "spread_gemm", test)) {
      if (reason->find("Hopper") != std::string::npos) GTEST_SKIP() << *reason;
      continue;
    }
    ++accepted;
    for (const std::string& way : gpu_variants(layer, "spread_gemm", test)) {
      ways_seen.insert(way);
      test.variant = way;
      expect_gpu(layer, "spread_gemm", test);
      if (HasFailure()) break;
    }
  }
  EXPECT_GT(accepted, 60);
  EXPECT_EQ(ways_seen.size(), 4U);
}

// The layers it is for, and tiles that span several images.
TEST(ConvSpread, LayersOfNetworks) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(gpu_seed() + 503);
  for (Geometry g : {geometry(1, 512, 7, 512, 3, 1, 1), geometry(3, 256, 14, 256, 3, 2, 1),
                     geometry(2, 1024, 14, 2048, 1, 2, 0), geometry(1, 64, 56, 64, 3, 1, 1),
                     geometry(9, 320, 5, 100, 3, 1, 1), geometry(1, 2048, 1, 1000, 1, 1, 0)}) {
    g.residual = g.channels != 320;
    g.activation = Clamp::relu();
    const Conv layer(ConvAttributes{g.window, 1, g.activation});
    GpuCase test = make_case(g, Precision::fp16, random);
    if (const auto reason = gpu_refusal(layer, "spread_gemm", test)) {
      if (reason->find("Hopper") != std::string::npos) GTEST_SKIP() << *reason;
      FAIL() << *reason;
    }
    for (const std::string& way : gpu_variants(layer, "spread_gemm", test)) {
      test.variant = way;
      expect_gpu(layer, "spread_gemm", test);
      if (HasFailure()) return;
    }
  }
}

TEST(ConvSpread, Refuses) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(gpu_seed() + 504);
  const auto refusal = [&](const Geometry& g, Precision precision = Precision::fp16,
                           Layout layout = Layout::channels_last) {
    const Conv layer(ConvAttributes{g.window, 1, {}});
    return gpu_refusal(layer, "spread_gemm", make_case(g, precision, random, layout));
  };
  const Geometry g = geometry(2, 16, 9, 16, 3, 1, 1);
  expect_refused(refusal(g, Precision::fp32), "fp16");
  expect_refused(refusal(g, Precision::fp16, Layout::row_major), "channels_last");
  if (const auto reason = refusal(g)) GTEST_SKIP() << *reason;
  expect_refused(refusal(geometry(2, 12, 9, 16, 3, 1, 1)), "multiple of 16 bytes");
  expect_refused(refusal(geometry(2, 64, 9, 16, 25, 1, 12)), "taps");
  expect_refused(refusal(geometry(1, 8, 700, 8, 3, 1, 1)), "positions");
}

// INT8 convolutions of few positions against the CPU's scalar specification, bit for bit.

// Why "spread_gemm" cannot run here; empty where it can.
std::string spread_problem() {
  return cuda::has_hopper_kernels() ? "" : "not a Hopper GPU";
}

TEST(QConvSpread, RandomGeometries) {
  PIPIT_NEEDS_GPU();
  if (const std::string problem = spread_problem(); !problem.empty()) GTEST_SKIP() << problem;
  Numbers numbers(240);
  std::set<std::string> ways;
  for (int i = 0; i < 80 && !HasFailure(); ++i) {
    ConvCase c = random_case(numbers, 16 * numbers.pick(1, i % 3 == 0 ? 40 : 10), numbers.pick(1, 140), 1);
    c.largest_weight = numbers.coin() ? 20 : 127;  // sums below and beyond what floats hold
    if (i % 4 == 3) {
      c.attributes.y = kReal;
    } else {
      maybe_follow(c, numbers);
    }
    expect_conv("spread_gemm", c, numbers, kLast, Precision::fp32, &ways);
  }
  EXPECT_EQ(ways.size(), 4U);
}

TEST(QConvSpread, LayersOfNetworks) {
  PIPIT_NEEDS_GPU();
  if (const std::string problem = spread_problem(); !problem.empty()) GTEST_SKIP() << problem;
  struct Size {
    std::int64_t batch, kernel, stride, channels, filters, size;
  };
  Numbers numbers(241);
  for (const Size& size :
       {Size{1, 3, 1, 512, 512, 7}, Size{2, 3, 2, 256, 256, 14}, Size{3, 1, 2, 1024, 2048, 14},
        Size{1, 3, 1, 64, 64, 56}, Size{1, 1, 1, 2048, 1000, 1}, Size{9, 3, 1, 320, 100, 5}}) {
    ConvCase c;
    set_window(c.attributes.conv.window, size.kernel, size.stride, 1, size.kernel / 2);
    c.x = Shape{size.batch, size.channels, size.size, size.size};
    c.weights = Shape{size.filters, size.channels, size.kernel, size.kernel};
    c.attributes.x = c.attributes.y = c.attributes.residual = kI8;
    c.attributes.weight_scales = {0.02F};
    c.residual = size.channels != 320;
    fit_output_scale(c);
    c.attributes.conv.activation = Clamp::relu();
    std::set<std::string> ways;
    expect_conv("spread_gemm", c, numbers, kLast, Precision::fp32, &ways);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace pipit::internal::test
