// What tests of emulated kernels share: random convolutions, and the plain loops that say what they compute.
#pragma once

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "engine/graph/half.h"
#include "layers/cuda/conv/chain/unit_layout.h"
#include "layers/cuda/epilogue/functions.h"
#include "layers/ops/quantization.h"
#include "tests/cuda/conv/random_chain.h"
#include "tests/cuda/emulation/emulation.h"
#include "tests/cuda/seed.h"

namespace pipit::internal::test::emulation {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

inline float real(std::mt19937& random, float low, float high) {
  return std::uniform_real_distribution(low, high)(random);
}
inline bool coin(std::mt19937& random) {
  return draw(random, 0, 1) == 1;
}

/// What every test begins with: numbers of its own.
inline std::mt19937 numbers(unsigned test) {
  return std::mt19937(gpu_seed() * 1000 + test);
}

/// Values in NHWC, INT8 or halves, as numbers.
struct Image {
  int images, height, width, channels;
  std::vector<float> values;

  Image(int n, int h, int w, int c)
      : images(n), height(h), width(w), channels(c), values(static_cast<std::size_t>(n) * h * w * c) {}
  Image(std::mt19937& random, bool int8, int n, int h, int w, int c) : Image(n, h, w, c) {
    for (float& v : values)
      v = int8 ? static_cast<float>(draw(random, -127, 127)) : to_float(to_half(real(random, -1, 1)));
  }
  /// Zero outside.
  float at(int n, int h, int w, int c) const {
    if (h < 0 || w < 0 || h >= height || w >= width) return 0;
    return values[((static_cast<std::size_t>(n) * height + h) * width + w) * channels + c];
  }
  std::vector<std::byte> bytes(bool int8) const {
    std::vector<std::byte> to(values.size() * (int8 ? 1 : 2));
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (int8) {
        to[i] = static_cast<std::byte>(static_cast<std::int8_t>(values[i]));
      } else {
        const Half v = to_half(values[i]);
        std::memcpy(&to[i * 2], &v, 2);
      }
    }
    return to;
  }
};

/// A random convolution: weights [output][tap][input], a bias and, in INT8, a multiplier per output, and bounds of what
/// it computes. Outputs come out about as large as inputs.
struct RandomConv {
  bool int8;
  int in_c, out_c, taps;
  std::vector<std::int8_t> bytes;
  std::vector<Half> halves;
  std::vector<std::int32_t> whole_bias;
  std::vector<float> multiplier, bias;
  StepBounds bounds;

  /// largest: of weights in INT8. bounded: below by zero, as ReLU does.
  RandomConv(std::mt19937& random, bool of_int8, int in, int out, int window, bool bounded, int largest = 40)
      : int8(of_int8), in_c(in), out_c(out), taps(window) {
    const std::size_t depth = static_cast<std::size_t>(in) * static_cast<std::size_t>(window), outputs = out;
    const bool biased = coin(random), clipped = coin(random), open = coin(random);
    if (int8) {
      bytes.resize(depth * outputs), whole_bias.resize(outputs), multiplier.resize(outputs);
      for (auto& v : bytes) v = static_cast<std::int8_t>(draw(random, -largest, largest));
      for (auto& v : whole_bias) v = biased ? draw(random, -3000, 3000) : 0;
      const float scale = 1 / static_cast<float>(largest) / std::sqrt(static_cast<float>(depth));
      for (auto& v : multiplier) v = scale * real(random, 1, 4);
      bounds = {bounded ? 0 : open ? -127.0F : -41.7F, clipped ? 88.3F : 127.0F};
    } else {
      halves.resize(depth * outputs), bias.resize(outputs);
      const float bound = std::sqrt(3 / static_cast<float>(depth));
      for (auto& v : halves) v = to_half(real(random, -bound, bound));
      for (auto& v : bias) v = biased ? real(random, -1, 1) : 0;
      bounds = {bounded ? 0 : open ? -kInfinity : -1.5F, clipped ? 2.25F : kInfinity};
    }
  }
  const std::byte* weights() const {
    return int8 ? reinterpret_cast<const std::byte*>(bytes.data())
                : reinterpret_cast<const std::byte*>(halves.data());
  }
  /// Constants of four bytes for each output: the bias, and the multiplier where there is one.
  std::vector<const std::byte*> constants() const {
    const auto raw = [](const auto& v) { return reinterpret_cast<const std::byte*>(v.data()); };
    return int8 ? std::vector{raw(whole_bias), raw(multiplier)} : std::vector{raw(bias)};
  }
  /// As kernels want them, which round what they bound.
  cuda::PairBounds unit_bounds() const {
    if (int8) return cuda::PairBounds::of({bounds.low, bounds.high});
    return {cuda::PairBounds::pair_of(to_half(bounds.low).bits),
            cuda::PairBounds::pair_of(to_half(bounds.high).bits)};
  }
};

/// One output of the convolution of `patch` ([tap][input]), to which `added` is added if it is not null: in INT8 as the
/// specification says (docs/quantization.md), in halves with one rounding at the end.
inline float output_of(const RandomConv& conv, int output, const std::vector<float>& patch,
                       const float* added, float added_scale) {
  const auto o = static_cast<std::size_t>(output), first = o * patch.size();
  if (conv.int8) {
    std::int32_t sum = conv.whole_bias[o];
    for (std::size_t k = 0; k < patch.size(); ++k)
      sum += static_cast<std::int32_t>(patch[k]) * conv.bytes[first + k];
    float v = static_cast<float>(sum) * conv.multiplier[o];
    if (added != nullptr) v += *added * added_scale;
    return static_cast<float>(requantize(v, conv.bounds, 0));
  }
  float sum = conv.bias[o];
  for (std::size_t k = 0; k < patch.size(); ++k) sum += patch[k] * to_float(conv.halves[first + k]);
  if (added != nullptr) sum += *added;
  return to_float(to_half(std::min(std::max(sum, conv.bounds.low), conv.bounds.high)));
}

/// The convolution, 1x1 or 3x3 with padding, of an image.
inline Image convolved(const RandomConv& conv, const Image& x, const Image* added = nullptr,
                       float added_scale = 0) {
  Image y(x.images, x.height, x.width, conv.out_c);
  const int size = conv.taps == 9 ? 3 : 1;
  std::vector<float> patch(static_cast<std::size_t>(conv.taps) * conv.in_c);
  std::size_t to = 0;
  for (int n = 0; n < x.images; ++n) {
    for (int p = 0; p < x.height * x.width; ++p) {
      for (std::size_t k = 0; k < patch.size(); ++k) {
        const int tap = static_cast<int>(k) / conv.in_c, channel = static_cast<int>(k) % conv.in_c;
        patch[k] = x.at(n, p / x.width + tap / size - size / 2, p % x.width + tap % size - size / 2, channel);
      }
      for (int o = 0; o < conv.out_c; ++o, ++to)
        y.values[to] =
            output_of(conv, o, patch, added == nullptr ? nullptr : &added->values[to], added_scale);
    }
  }
  return y;
}

/// Constants of a convolution, unit by unit; stored: of one whose outputs are stored (unit_layout.h).
inline void append_constants(std::vector<std::byte>& to, const RandomConv& conv, bool stored) {
  for (int first = 0; first < conv.out_c; first += cuda::kUnitChannels) {
    for (const std::byte* values : conv.constants()) {
      to.resize(to.size() + cuda::kUnitChannels * 4);
      cuda::pack_unit_constants(values + first * 4, stored, conv.int8 ? 1 : 2,
                                &to[to.size() - cuda::kUnitChannels * 4]);
    }
  }
}

/// A grid of `blocks` blocks; chance is the test's.
inline Launch launch_of(std::mt19937& random, int blocks, int threads, int shared) {
  Launch how;
  how.grid = dim3(static_cast<unsigned>(blocks));
  how.block = dim3(static_cast<unsigned>(threads));
  how.shared = static_cast<std::size_t>(shared);
  how.seed = random();
  how.lateness = draw(random, 0, 4) == 0 ? 0 : 1;
  return how;
}

inline bool expect_no_error(const Outcome& outcome) {
  if (!outcome.error.empty()) ADD_FAILURE() << outcome.error;
  return outcome.error.empty();
}

/// What lies in memory as numbers.
inline std::vector<float> numbers_in(const Global<std::byte>& memory, bool int8) {
  std::vector<float> values(memory.size() / (int8 ? 1 : 2));
  for (std::size_t i = 0; i < values.size(); ++i) {
    Half half{};
    if (!int8) std::memcpy(&half, memory.data() + i * 2, 2);
    values[i] = int8 ? static_cast<float>(static_cast<std::int8_t>(memory.data()[i])) : to_float(half);
  }
  return values;
}

/// Halves: float sums in another order round to the neighbouring half at times, 2^-10 of a value away at most. Of inner
/// values that do so, weights of sqrt(3 / depth) at most let less than that through each, and few do: four steps.
inline void expect_values(const Global<std::byte>& y, const std::vector<float>& expected, bool int8,
                          float steps = 4) {
  const std::vector<float> values = numbers_in(y, int8);
  ASSERT_EQ(values.size(), expected.size());
  int shown = 0;
  for (std::size_t i = 0; i < values.size() && shown < 3; ++i) {
    const float tolerance = int8 ? 0 : steps * 0x1p-10F * std::max(1.0F, std::abs(expected[i]));
    if (std::abs(values[i] - expected[i]) <= tolerance) continue;
    ++shown;
    ADD_FAILURE() << "value " << i << " of " << values.size() << " is " << values[i] << ", not "
                  << expected[i];
  }
}

}  // namespace pipit::internal::test::emulation
