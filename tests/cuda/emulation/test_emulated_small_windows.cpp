// Pools over small windows on a CPU, against plain loops: every policy, window and stride; odd extents, images smaller
// than a window, padding of its own at every edge.
#include "tests/cuda/emulation/emulation.h"
// The emulator comes first: kernels use its declarations.
#include <algorithm>

#include "layers/cuda/pooling/small_windows_kernel.cuh"
#include "tests/cuda/emulation/reference.h"

namespace pipit::internal::test::emulation {
namespace {

using cuda::AveragedPositions;
using cuda::SmallWindows;

struct Problem {
  int images = 1, channels = 1, kernel = 3, stride = 1;
  int in[2] = {}, out[2] = {};  // height and width
  AveragedPositions positions;

  Problem(std::mt19937& random, int window, int step, int unit)
      : images(draw(random, 1, 3)), channels(unit * draw(random, 1, 5)), kernel(window), stride(step) {
    positions.include_pad = coin(random);
    for (int d = 0; d < 2; ++d) {
      in[d] = draw(random, 1, 17);
      int& begin = positions.pad_begin[d] = draw(random, 0, kernel - 1);
      int& end = positions.pad_end[d] = std::max(draw(random, 0, kernel - 1), kernel - in[d] - begin);
      positions.extent[d] = in[d];
      out[d] = (in[d] + begin + end - kernel) / stride + 1;
      // As ceil_mode has it: one more window that begins inside.
      if (coin(random) && out[d] * stride < in[d] + begin) ++out[d];
    }
  }
  int inputs() const { return images * in[0] * in[1] * channels; }
  int outputs() const { return images * out[0] * out[1] * channels; }
  // The elements that output `i` is computed of, and how many positions an average counts.
  struct Seen {
    std::vector<int> elements;
    int counted = 0;
  };
  Seen seen(int i) const {
    const int c = i % channels, w = i / channels % out[1], h = i / channels / out[1] % out[0];
    const int image = i / channels / out[1] / out[0];
    Seen result;
    for (int tap = 0; tap < kernel * kernel; ++tap) {
      const int at[2] = {h * stride - positions.pad_begin[0] + tap / kernel,
                         w * stride - positions.pad_begin[1] + tap % kernel};
      const bool inside = at[0] >= 0 && at[0] < in[0] && at[1] >= 0 && at[1] < in[1];
      const bool padded = at[0] < in[0] + positions.pad_end[0] && at[1] < in[1] + positions.pad_end[1];
      if (inside) result.elements.push_back(((image * in[0] + at[0]) * in[1] + at[1]) * channels + c);
      if (inside || (positions.include_pad && padded)) ++result.counted;
    }
    return result;
  }
};

std::string text(const Problem& p, int output) {
  return fmt::format(
      "output {} of {}x{}, {} images of {}x{}, {} channels, padding {} {} and {} {}, counted {}, seed {}",
      output, p.out[0], p.out[1], p.images, p.in[0], p.in[1], p.channels, p.positions.pad_begin[0],
      p.positions.pad_begin[1], p.positions.pad_end[0], p.positions.pad_end[1], p.positions.include_pad,
      gpu_seed());
}

// Fills x with bytes of chance, runs the kernel and hands y over.
template <typename Policy, int Kernel, int Stride, typename T>
std::vector<T> pooled(std::mt19937& random, const Problem& p, const Policy& policy, const std::vector<T>& x) {
  const Global<T> in(x);
  Global<T> y(static_cast<std::size_t>(p.outputs()), 0x5A);
  constexpr int kUnit = sizeof(typename Policy::Unit) / sizeof(T);
  const auto pairs = [](int n) { return static_cast<unsigned>((n + 1) / 2); };
  SmallWindows g;
  g.x = in.data(), g.y = y.data();
  g.channels = cuda::Divisor(static_cast<unsigned>(p.channels / kUnit));
  g.columns = cuda::Divisor(pairs(p.out[1]));
  g.rows = cuda::Divisor(pairs(p.out[0]));
  g.size = static_cast<unsigned>(p.images * (p.channels / kUnit)) * pairs(p.out[0]) * pairs(p.out[1]);
  g.in_h = p.in[0], g.in_w = p.in[1], g.out_h = p.out[0], g.out_w = p.out[1];
  g.pad_h = p.positions.pad_begin[0], g.pad_w = p.positions.pad_begin[1];
  const auto blocks = static_cast<int>((g.size + cuda::kPoolThreads - 1) / cuda::kPoolThreads);
  const Launch how = launch_of(random, blocks, static_cast<int>(cuda::kPoolThreads), 0);
  if (!expect_no_error(run(cuda::pool_small_windows<Policy, Kernel, Stride>, how, g, policy))) return {};
  return {y.data(), y.data() + p.outputs()};
}

template <int Kernel, int Stride>
void expect_maxima(std::mt19937& random) {
  const auto bytes = [&]<typename T, typename Elements, int Bytes>() {
    const Problem p(random, Kernel, Stride, Bytes);
    std::vector<T> x(static_cast<std::size_t>(p.inputs()));
    for (T& v : x) v = static_cast<T>(draw(random, 0, 255));
    using Policy = cuda::Largest<Elements, Bytes>;
    const std::vector<T> y = pooled<Policy, Kernel, Stride>(random, p, Policy{}, x);
    for (std::size_t i = 0; i < y.size(); ++i) {
      T expected = std::numeric_limits<T>::lowest();
      for (const int at : p.seen(static_cast<int>(i)).elements)
        expected = std::max(expected, x[static_cast<std::size_t>(at)]);
      ASSERT_EQ(y[i], expected) << text(p, static_cast<int>(i));
    }
  };
  bytes.template operator()<std::int8_t, cuda::SignedBytes, 16>();
  bytes.template operator()<std::int8_t, cuda::SignedBytes, 8>();
  bytes.template operator()<std::uint8_t, cuda::UnsignedBytes, 8>();
}

template <int Kernel, int Stride>
void expect_averages_of_bytes(std::mt19937& random) {
  const Problem p(random, Kernel, Stride, 8);
  std::vector<std::uint8_t> x(static_cast<std::size_t>(p.inputs()));
  for (std::uint8_t& v : x) v = static_cast<std::uint8_t>(draw(random, 0, 255));
  const bool is_signed = coin(random), to_signed = coin(random);
  const int zero = draw(random, is_signed ? -128 : 0, is_signed ? 127 : 255);
  cuda::ByteAverages policy;
  policy.positions = p.positions;
  policy.x.flip = is_signed ? 0U : 0x80808080U;
  policy.x.zero_point = zero - (is_signed ? 0 : 128);
  const int y_zero = to_signed ? 3 : 120;
  policy.average = {0.02F,
                    0.013F,
                    {to_signed ? cuda::StoredType::i8 : cuda::StoredType::u8, y_zero,
                     static_cast<float>((to_signed ? -128 : 0) - y_zero),
                     static_cast<float>((to_signed ? 127 : 255) - y_zero)}};
  const std::vector<std::uint8_t> y = pooled<cuda::ByteAverages, Kernel, Stride>(random, p, policy, x);
  for (std::size_t i = 0; i < y.size(); ++i) {
    const Problem::Seen seen = p.seen(static_cast<int>(i));
    int sum = 0;
    for (const int at : seen.elements) {
      const std::uint8_t v = x[static_cast<std::size_t>(at)];
      sum += (is_signed ? static_cast<std::int8_t>(v) : static_cast<int>(v)) - zero;
    }
    const float step = 0.013F * static_cast<float>(std::max(seen.counted, 1));
    const float value = static_cast<float>(sum) * (0.02F / step);
    const auto& store = policy.average.store;
    const float bounded = std::min(std::max(value, store.low), store.high);
    const int expected = static_cast<int>(std::nearbyint(bounded)) + y_zero;
    ASSERT_EQ(y[i], static_cast<std::uint8_t>(expected)) << text(p, static_cast<int>(i));
  }
}

template <int Kernel, int Stride>
void expect_halves(std::mt19937& random) {
  const auto halves = [&]<typename Policy>(const Problem& p, const Policy& policy, bool average) {
    std::vector<Half> x(static_cast<std::size_t>(p.inputs()));
    for (Half& v : x) v = to_half(real(random, -1, 1));
    const std::vector<Half> y = pooled<Policy, Kernel, Stride>(random, p, policy, x);
    for (std::size_t i = 0; i < y.size(); ++i) {
      const Problem::Seen seen = p.seen(static_cast<int>(i));
      double sum = 0, largest = -INFINITY;
      for (const int at : seen.elements) {
        const double v = to_float(x[static_cast<std::size_t>(at)]);
        sum += v, largest = std::max(largest, v);
      }
      const double expected = average ? sum / std::max(seen.counted, 1) : largest;
      // Rounded to half; up to nine sums of numbers below 1 and a factor in f32.
      const double tolerance = average ? std::abs(expected) * 0x1p-11 + 16 * 0x1p-24 : 0;
      const auto got = static_cast<double>(to_float(y[i]));
      ASSERT_TRUE(got == expected || std::abs(got - expected) <= tolerance)
          << got << " instead of " << expected << ", " << text(p, static_cast<int>(i));
    }
  };
  using Maxima = cuda::Largest<cuda::Halves<__half>, 16>;
  halves(Problem(random, Kernel, Stride, 8), Maxima{}, false);
  if constexpr (Kernel > Stride) {
    const Problem p(random, Kernel, Stride, cuda::HalfAverages<__half>::kChannels);
    halves(p, cuda::HalfAverages<__half>{p.positions}, true);
  }
}

template <int Kernel, int Stride>
void expect_all(unsigned test) {
  std::mt19937 random = numbers(test);
  for (int i = 0; i < 8 && !::testing::Test::HasFailure(); ++i) {
    expect_maxima<Kernel, Stride>(random);
    expect_averages_of_bytes<Kernel, Stride>(random);
    expect_halves<Kernel, Stride>(random);
  }
}

TEST(EmulatedSmallWindows, OfThree) {
  expect_all<3, 1>(111);
}
TEST(EmulatedSmallWindows, OfThreeAtStrideTwo) {
  expect_all<3, 2>(112);
}
TEST(EmulatedSmallWindows, OfTwoAtStrideTwo) {
  expect_all<2, 2>(113);
}

}  // namespace
}  // namespace pipit::internal::test::emulation
