// pooled_stem on a CPU, against plain loops.
#include "tests/cuda/emulation/emulation.h"
// The emulator comes first: kernels use its declarations.
#include <algorithm>
#include <optional>
#include <variant>

#include "layers/cuda/conv/pooled_stem/kernel.cuh"
#include "tests/cuda/emulation/reference.h"

namespace pipit::internal::test::emulation {
namespace {

constexpr int kRows = 7, kOutputs = 64;

struct Case {
  cuda::PooledStemShape shape;
  int columns = 1;             // of the window
  bool channels_last = false;  // in the image
  bool reversed = false;       // of bytes: the last one is that of channel 0
  int processors = 1;
};

Case random_case(std::mt19937& random, bool int8) {
  while (true) {
    Case c;
    cuda::PooledStemShape& s = c.shape;
    s.element_bytes = int8 ? 1 : 2;
    s.images = draw(random, 1, 3), s.channels = draw(random, 1, 4);
    c.columns = draw(random, 1, 8);
    const bool in_parts = coin(random);  // as wide images are for several times as many processors as rows
    s.in_h = draw(random, 7, in_parts ? 15 : 30), s.in_w = draw(random, 8, in_parts ? 90 : 40);
    if (coin(random)) s.in_w = s.in_w / 4 * 4;  // rows that are read four pixels at a time
    s.stride_h = draw(random, 1, 3), s.stride_w = draw(random, 1, 3);
    s.pad_h = draw(random, 0, 3), s.pad_w = draw(random, 0, 3);
    s.mid_h = (s.in_h + 2 * s.pad_h - kRows) / s.stride_h + 1;
    s.mid_w = (s.in_w + 2 * s.pad_w - c.columns) / s.stride_w + 1;
    s.pool_pad_h = draw(random, 0, 1), s.pool_pad_w = draw(random, 0, 1);
    s.out_h = (s.mid_h + 2 * s.pool_pad_h - 3) / 2 + 1, s.out_w = (s.mid_w + 2 * s.pool_pad_w - 3) / 2 + 1;
    s.from_bytes = coin(random);
    c.channels_last = s.from_bytes || coin(random);
    c.reversed = s.from_bytes && coin(random);
    c.processors = in_parts ? s.images * s.out_h * draw(random, 2, 5) : draw(random, 1, 4);
    if (s.mid_h >= 2 && s.mid_w >= 2 && s.out_h >= 1 && s.out_w >= 1) return c;
  }
}

cuda::PooledStemArgs args_of(const Case& c, const cuda::PooledStemPlan& plan) {
  const cuda::PooledStemShape& s = c.shape;
  cuda::PooledStemArgs args;
  args.plan = plan;
  args.x_image = s.channels * s.in_h * s.in_w;
  args.x_channel = c.reversed ? -1 : c.channels_last ? 1 : s.in_h * s.in_w;
  args.x_row = c.channels_last ? s.in_w * s.channels : s.in_w;
  args.x_pixel = c.channels_last ? s.channels : 1;
  const int steps = s.images * plan.steps;
  args.workers = std::min(c.processors, steps);
  args.least_steps = steps / args.workers, args.more_steps = steps % args.workers;
  args.steps = cuda::Divisor(plan.steps);
  args.mid_row = cuda::Divisor(plan.mid_columns), args.mid_ring = cuda::Divisor(plan.mid_rows);
  args.image_ring = cuda::Divisor(plan.image_rows);
  const auto in_fours = [](int elements) { return elements % 4 == 0; };
  const bool together =
      s.from_bytes ? s.channels == 3 && args.x_pixel == 3 : args.x_pixel == 1 && in_fours(args.x_channel);
  args.runs_of_four = together && in_fours(args.x_row) && in_fours(args.x_image) && in_fours(s.in_w);
  args.runs = cuda::Divisor(plan.runs_of(args.runs_of_four ? 4 : 1));
  return args;
}

// x as the convolution reads it, by plain loops; then the maxima.
std::vector<float> pooled(const Case& c, const RandomConv& conv, const Image& x) {
  const cuda::PooledStemShape& s = c.shape;
  Image mid(s.images, s.mid_h, s.mid_w, kOutputs);
  std::vector<float> patch(static_cast<std::size_t>(kRows) * c.columns * s.channels), expected;
  std::size_t to = 0;
  for (int n = 0; n < s.images; ++n) {
    for (int p = 0; p < s.mid_h * s.mid_w; ++p) {
      for (int k = 0; k < static_cast<int>(patch.size()); ++k) {
        const int tap = k / s.channels;
        patch[static_cast<std::size_t>(k)] =
            x.at(n, p / s.mid_w * s.stride_h - s.pad_h + tap / c.columns,
                 p % s.mid_w * s.stride_w - s.pad_w + tap % c.columns, k % s.channels);
      }
      for (int o = 0; o < kOutputs; ++o) mid.values[to++] = output_of(conv, o, patch, nullptr, 0);
    }
  }
  for (int n = 0; n < s.images; ++n) {
    for (int p = 0; p < s.out_h * s.out_w; ++p) {
      for (int o = 0; o < kOutputs; ++o) {
        float most = -kInfinity;
        for (int tap = 0; tap < 9; ++tap) {
          const int h = p / s.out_w * 2 - s.pool_pad_h + tap / 3,
                    w = p % s.out_w * 2 - s.pool_pad_w + tap % 3;
          if (h >= 0 && w >= 0 && h < s.mid_h && w < s.mid_w) most = std::max(most, mid.at(n, h, w, o));
        }
        expected.push_back(most);
      }
    }
  }
  return expected;
}

void expect_stem(std::mt19937& random, bool int8, const Case& c, const cuda::PooledStemPlan& plan) {
  const cuda::PooledStemShape& s = c.shape;
  cuda::PooledStemArgs args = args_of(c, plan);
  const RandomConv conv(random, int8, s.channels, kOutputs, kRows * c.columns, int8 || coin(random));
  args.bounds = conv.unit_bounds();
  const float x_scale = 0.0123F;
  if (int8) args.x_scale = cuda::ImageScale(x_scale);
  // The image is of floats, or of bytes that stand for some; the convolution reads them as bytes or as halves.
  const auto drawn = [&] { return int8 ? real(random, -2, 2) : to_float(to_half(real(random, -1, 1))); };
  Image x(s.images, s.in_h, s.in_w, s.channels);
  Global<float> in_memory(s.from_bytes ? 1 : x.values.size());
  Global<std::uint8_t> in_bytes(s.from_bytes ? x.values.size() : 1);
  Global<float> table(static_cast<std::size_t>(s.channels) * 256);
  for (std::size_t i = 0; i < static_cast<std::size_t>(s.channels) * 256; ++i) table.data()[i] = drawn();
  const int first_channel = c.reversed ? s.channels - 1 : 0;
  for (int n = 0; n < s.images; ++n) {
    for (int p = 0; p < s.in_h * s.in_w; ++p) {
      for (int k = 0; k < s.channels; ++k) {
        const int at = n * args.x_image + p / s.in_w * args.x_row + p % s.in_w * args.x_pixel +
                       k * args.x_channel + first_channel;
        float v = 0;
        if (s.from_bytes) {
          const int byte = draw(random, 0, 255);
          in_bytes.data()[at] = static_cast<std::uint8_t>(byte);
          v = table.data()[k * 256 + byte];
        } else {
          v = in_memory.data()[at] = drawn();
        }
        x.values[(static_cast<std::size_t>(n) * s.in_h * s.in_w + p) * s.channels + k] =
            int8 ? static_cast<float>(requantize(v / x_scale, {-127, 127}, 0)) : v;
      }
    }
  }
  const std::size_t bytes = int8 ? 1 : 2;
  std::vector<std::byte> packed(static_cast<std::size_t>(cuda::kPooledStemUnits) * cuda::kUnitRows *
                                cuda::kUnitChannels * bytes);
  cuda::pack_pooled_stem(s, c.columns, conv.weights(), packed.data());
  std::vector<std::byte> of_outputs;
  append_constants(of_outputs, conv, true);
  Global<std::byte> weights(packed), constants(of_outputs);
  Global<std::byte> y(static_cast<std::size_t>(s.images) * s.out_h * s.out_w * kOutputs * bytes, 0x5A);
  args.weights = weights.data(), args.constants = constants.data(), args.y = y.data();
  args.x = in_memory.data(), args.table = table.data(), args.bytes = in_bytes.data() + first_channel;
  Launch how = launch_of(random, args.workers, cuda::pooled_stem::kThreads, plan.shared_bytes + 1024);
  how.grid.y = static_cast<unsigned>(plan.parts);
  auto* const kernel =
      s.from_bytes ? int8 ? cuda::run_pooled_stem<std::int32_t, true> : cuda::run_pooled_stem<float, true>
      : int8 ? cuda::run_pooled_stem<std::int32_t, false>
                   : cuda::run_pooled_stem<float, false>;
  if (!expect_no_error(run(kernel, how, args))) return;
  expect_values(y, pooled(c, conv, x), int8);
}

void expect_stems(bool int8, unsigned test) {
  std::mt19937 random = numbers(test);
  int stems = 0, in_parts = 0;
  for (int i = 0; i < 60; ++i) {
    const Case c = random_case(random, int8);
    const cuda::PooledStemShape& s = c.shape;
    SCOPED_TRACE(fmt::format(
        "case {}: {} images of {} x {} x {}{}, window {} x {}, strides {} x {}, padding {} x {}, "
        "{} columns of maxima, {} processors, seed {}",
        i, s.images, s.channels, s.in_h, s.in_w,
        s.from_bytes      ? " (bytes)"
        : c.channels_last ? " (channels last)"
                          : "",
        kRows, c.columns, s.stride_h, s.stride_w, s.pad_h, s.pad_w, s.out_w, c.processors, gpu_seed()));
    const auto planned = cuda::plan_pooled_stem(s, c.processors);
    const auto* plan = std::get_if<cuda::PooledStemPlan>(&planned);
    if (plan == nullptr) continue;
    ++stems, in_parts += plan->parts > 1 ? 1 : 0;
    expect_stem(random, int8, c, *plan);
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(stems, 30);
  EXPECT_GT(in_parts, 4);
}

TEST(EmulatedPooledStem, IsTheSpecificationInInt8) {
  expect_stems(true, 31);
}
TEST(EmulatedPooledStem, AgreesInHalves) {
  expect_stems(false, 32);
}

}  // namespace
}  // namespace pipit::internal::test::emulation
