// INT8 with scales that are found at run time, on a CPU, bit for bit: DynamicQuantize, and implicit_gemm's kernels that
// scale their sums by what it has found.
#include "tests/cuda/emulation/emulation.h"
// The emulator comes first: kernels use its declarations.
#include <cstring>
#include <set>
#include <utility>

#include "layers/cuda/conv/implicit_gemm/dynamic_epilogue.cuh"
#include "layers/cuda/conv/implicit_gemm/kernel.cuh"
#include "layers/cuda/reduction/dynamic_quantize_kernel.cuh"
#include "tests/cuda/emulation/conv_reference.h"

namespace pipit::internal::test::emulation {
namespace {

using cuda::ConvShape;
using cuda::ConvTile;

// Values of T as numbers.
template <typename T>
float number(T v) {
  if constexpr (std::is_same_v<T, Half>) {
    return to_float(v);
  } else {
    return v;
  }
}
template <typename T>
T rounded_to(float v) {
  if constexpr (std::is_same_v<T, Half>) {
    return to_half(v);
  } else {
    return v;
  }
}

template <typename T>
void expect_samples(std::mt19937& random, int samples, int size) {
  std::vector<T> x(static_cast<std::size_t>(samples) * static_cast<std::size_t>(size));
  for (int s = 0; s < samples; ++s) {
    // Zeros, a NaN, an infinity, denormal magnitudes, or values of any scale.
    const int kind = draw(random, 0, 7);
    const float most = kind == 3 ? 0x1p-140F : std::exp2(static_cast<float>(draw(random, -12, 12)));
    for (int i = 0; i < size; ++i)
      x[static_cast<std::size_t>(s * size + i)] = rounded_to<T>(kind == 0 ? 0 : real(random, -most, most));
    const auto any = static_cast<std::size_t>(s * size + draw(random, 0, size - 1));
    if (kind == 1) x[any] = rounded_to<T>(NAN);
    if (kind == 2) x[any] = rounded_to<T>(-kInfinity);
  }
  const Global<T> in(x);
  Global<std::int8_t> y(x.size(), 0x5A);
  Global<float> scales(static_cast<std::size_t>(samples));
  cuda::DynamicArgs args;
  args.x = in.data(), args.halves = std::is_same_v<T, Half>, args.size = size;
  args.vectors = size % 8 == 0, args.blocks = cuda::dynamic_blocks(size);
  Global<std::uint32_t> largest(static_cast<std::size_t>(samples) * static_cast<std::size_t>(args.blocks));
  args.largest = largest.data(), args.y = y.data(), args.scales = scales.data();
  Launch how = launch_of(random, samples, cuda::kDynamicThreads, 0);
  how.grid.y = static_cast<unsigned>(args.blocks);
  ASSERT_TRUE(expect_no_error(run(cuda::find_largest, how, args)));
  ASSERT_TRUE(expect_no_error(run(cuda::quantize_samples, how, args)));
  for (int s = 0; s < samples; ++s) {
    std::uint32_t bits = 0;
    for (int i = 0; i < size; ++i)
      bits = std::max(bits, magnitude_bits(number(x[static_cast<std::size_t>(s * size + i)])));
    const DynamicScale found = dynamic_scale(bits);
    const float scale = scales.data()[s];
    EXPECT_TRUE(scale == found.scale || (std::isnan(scale) && std::isnan(found.scale)))
        << "sample " << s << ": " << scale << ", not " << found.scale;
    int wrong = 0;
    for (int i = 0; i < size && wrong < 3; ++i) {
      const auto at = static_cast<std::size_t>(s * size + i);
      const int expected = requantize(number(x[at]) * found.inverse, {-127, 127}, 0);
      if (y.data()[at] == expected) continue;
      ++wrong;
      ADD_FAILURE() << "sample " << s << ", element " << i << ": " << int{y.data()[at]} << ", not "
                    << expected;
    }
  }
}

TEST(EmulatedDynamicInt8, QuantizesSamples) {
  std::mt19937 random = numbers(101);
  for (int i = 0; i < 40 && !HasFailure(); ++i) {
    const int samples = draw(random, 1, 4);
    const int size = i % 3 == 0   ? draw(random, 1, 40)
                     : i % 3 == 1 ? 8 * draw(random, 1, 2000)
                                  : draw(random, 1000, 20000);
    SCOPED_TRACE(fmt::format("case {}: {} samples of {}, seed {}", i, samples, size, gpu_seed()));
    i % 2 == 0 ? expect_samples<Half>(random, samples, size) : expect_samples<float>(random, samples, size);
  }
}

using Kernel = void (*)(cuda::ConvGemmArgs);
struct Instance {
  Kernel kernel;
  int threads, shared;
};
template <typename T>
Instance instance() {
  return {cuda::conv_gemm<T, false, cuda::DynamicEpilogue<T>>, T::kThreads, T::kShared};
}
Instance instance_of(const ConvTile& tile) {
  using cuda::ConvGemmTraits;
  using Sum = std::int32_t;
  if (tile.columns == 128) return instance<ConvGemmTraits<128, 128, 2, 4, 3, 8, 2, Sum>>();
  if (tile.rows == 128) return instance<ConvGemmTraits<128, 64, 2, 2, 3, 8, 3, Sum>>();
  if (tile.columns == 64) return instance<ConvGemmTraits<64, 64, 2, 2, 4, 8, 3, Sum>>();
  return instance<ConvGemmTraits<64, 32, 2, 2, 4, 8, 4, Sum>>();
}

// in_c in pairs of bytes.
ConvShape random_shape(std::mt19937& random, int number) {
  ConvShape s;
  s.int8 = s.real_output = true;
  s.batch = draw(random, 1, 4);
  s.in_c = 8 * draw(random, 1, number % 2 == 0 ? 40 : 12);
  s.out_c = number % 3 == 0 ? draw(random, 1, 140) : 8 * draw(random, 1, 18);
  const auto extent = [&](int& in, int& out, int& kernel, int& stride, int& pad) {
    kernel = number % 2 == 0 ? 1 : draw(random, 1, 3), stride = draw(random, 1, 2),
    pad = draw(random, 0, kernel - 1);
    in = std::max(draw(random, 1, 14), kernel - 2 * pad);
    out = (in + 2 * pad - kernel) / stride + 1;
  };
  extent(s.in_h, s.out_h, s.kernel_h, s.stride_h, s.pad_h);
  extent(s.in_w, s.out_w, s.kernel_w, s.stride_w, s.pad_w);
  return s;
}

// The largest divisor of n that is at most `most`.
int divisor_of(int n, int most) {
  while (n % most != 0) --most;
  return most;
}

// A convolution with a bias in f32 and scales of samples, and what it adds.
template <typename T>
struct Problem {
  ConvShape shape;
  RandomConv conv;
  Image x, added;
  bool adds;
  std::vector<float> scales;  // each of as many neighbouring images
  std::vector<T> expected;

  Problem(std::mt19937& random, const ConvShape& s)
      : shape(s),
        conv(random, true, s.in_c * 2, s.out_c, s.kernel_h * s.kernel_w, coin(random), 127),
        x(random, true, s.batch, s.in_h, s.in_w, conv.in_c),
        added(random, false, s.batch, s.out_h, s.out_w, s.out_c),
        adds(coin(random)),
        scales(static_cast<std::size_t>(divisor_of(s.batch, draw(random, 1, s.batch)))) {
    conv.bias.resize(static_cast<std::size_t>(s.out_c));
    for (float& v : conv.bias) v = real(random, -1, 1);
    for (float& v : scales) v = real(random, 0.001F, 0.1F);
    if (scales.size() > 1 && coin(random)) scales.back() = NAN;
    // Sums alone: no bias, multipliers of one, no bounds.
    RandomConv plain = conv;
    std::fill(plain.whole_bias.begin(), plain.whole_bias.end(), 0);
    std::fill(plain.multiplier.begin(), plain.multiplier.end(), 1.0F);
    plain.bounds = {-kInfinity, kInfinity};
    const Image sums = convolved(plain, s, x, nullptr, 0);
    const std::size_t share = sums.values.size() / scales.size();
    for (std::size_t i = 0; i < sums.values.size(); ++i) {
      const std::size_t o = i % static_cast<std::size_t>(s.out_c);
      float v = sums.values[i] * conv.multiplier[o];
      v = v * scales[i / share];
      v = v + conv.bias[o];
      if (adds) v = v + added.values[i];
      v = v < conv.bounds.low ? conv.bounds.low : v > conv.bounds.high ? conv.bounds.high : v;
      expected.push_back(rounded_to<T>(v));
    }
  }
};

template <typename T>
std::vector<T> padded(std::vector<T> values, const ConvShape& s, const ConvTile& tile) {
  const auto rows = static_cast<std::size_t>(ceil_div(s.out_c, tile.columns) * tile.columns);
  values.resize(rows);
  return cuda::in_packed_order(std::move(values), rows);
}

template <typename T>
void expect_tile(std::mt19937& random, const Problem<T>& p, const ConvTile& tile) {
  const ConvShape& s = p.shape;
  std::vector<T> residual;
  for (const float v : p.added.values) residual.push_back(rounded_to<T>(v));
  const cuda::KeptDepth all(s);
  const Global<std::byte> x(p.x.bytes(true)),
      weights(
          cuda::pack_qconv_weights(s, all, p.conv.in_c, by_input(p.conv, p.conv.bytes).data(), tile.columns));
  const Global<T> added(residual);
  const Global<float> multipliers(padded(p.conv.multiplier, s, tile)), bias(padded(p.conv.bias, s, tile)),
      scales(p.scales);
  Global<T> y(p.expected.size(), 0x5A);
  cuda::ConvGemmArgs args = cuda::conv_gemm_args(s, all, tile);
  args.x = x.data(), args.weights = weights.data(), args.bias = bias.data(), args.y = y.data();
  args.multipliers = multipliers.data();
  args.low = p.conv.bounds.low, args.high = p.conv.bounds.high;
  args.stored = std::is_same_v<T, Half> ? cuda::StoredType::f16 : cuda::StoredType::f32;
  args.dynamic.scales = scales.data();
  args.dynamic.rows = cuda::Divisor(args.rows / static_cast<int>(p.scales.size()));
  args.dynamic.residual = p.adds ? added.data() : nullptr;
  const Instance instance = instance_of(tile);
  Launch how = launch_of(random, static_cast<int>(ceil_div(args.rows, tile.rows)) * args.column_tiles,
                         instance.threads, instance.shared);
  how.grid.y = how.cluster = static_cast<unsigned>(tile.splits);
  how.cluster_along_y = true;
  how.resident = draw(random, 1, 2);
  if (!expect_no_error(run(instance.kernel, how, args))) return;
  int wrong = 0;
  for (std::size_t i = 0; i < p.expected.size() && wrong < 3; ++i) {
    const float got = number(y.data()[i]), expected = number(p.expected[i]);
    if (got == expected || (std::isnan(got) && std::isnan(expected))) continue;
    ++wrong;
    ADD_FAILURE() << "value " << i << ": " << got << ", not " << expected;
  }
}

template <typename T>
void expect_products(unsigned test) {
  std::mt19937 random = numbers(test);
  std::set<std::pair<int, int>> tiles;
  std::set<int> splits;
  for (int i = 0; i < 12; ++i) {
    const ConvShape s = random_shape(random, i);
    const Problem<T> problem(random, s);
    for (const cuda::ConvVariant& way :
         cuda::conv_variants(s, 132, true, [](const cuda::ConvVariant&) { return 0; })) {
      SCOPED_TRACE(
          fmt::format("case {}: {} images of {} x {} x {} to {}, window {} x {}, {} scales, residual {}, "
                      "tile {}, seed {}",
                      i, s.batch, s.in_h, s.in_w, problem.conv.in_c, s.out_c, s.kernel_h, s.kernel_w,
                      problem.scales.size(), problem.adds, way.name(), gpu_seed()));
      tiles.insert({way.tile.rows, way.tile.columns}), splits.insert(way.tile.splits);
      expect_tile(random, problem, way.tile);
      if (::testing::Test::HasFailure()) return;
    }
  }
  EXPECT_EQ(tiles.size(), 4U);
  EXPECT_GE(splits.size(), 3U);
}

TEST(EmulatedDynamicInt8, ScalesSumsToHalves) {
  expect_products<Half>(102);
}
TEST(EmulatedDynamicInt8, ScalesSumsToFloats) {
  expect_products<float>(103);
}

}  // namespace
}  // namespace pipit::internal::test::emulation
