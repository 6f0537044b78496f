// Plain loops for convolutions of any window, as cuda::ConvShape describes them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "layers/cuda/conv/conv_tile.h"
#include "tests/cuda/emulation/reference.h"

namespace pipit::internal::test::emulation {

/// output_of() in INT8 where it is not requantized.
inline float real_output_of(const RandomConv& conv, int output, const std::vector<float>& patch,
                            const float* added, float added_scale) {
  const auto o = static_cast<std::size_t>(output);
  std::int32_t sum = conv.whole_bias[o];
  for (std::size_t k = 0; k < patch.size(); ++k)
    sum += static_cast<std::int32_t>(patch[k]) * conv.bytes[o * patch.size() + k];
  float v = static_cast<float>(sum) * conv.multiplier[o];
  if (added != nullptr) v += *added * added_scale;
  return std::min(std::max(v, conv.bounds.low), conv.bounds.high);
}

/// The convolution of any window.
inline Image convolved(const RandomConv& conv, const cuda::ConvShape& s, const Image& x, const Image* added,
                       float added_scale) {
  Image y(s.batch, s.out_h, s.out_w, s.out_c);
  std::vector<float> patch(static_cast<std::size_t>(conv.taps) * conv.in_c);
  std::size_t to = 0;
  for (int n = 0; n < s.batch; ++n) {
    for (int p = 0; p < s.out_h * s.out_w; ++p) {
      const int h = p / s.out_w * s.stride_h - s.pad_h, w = p % s.out_w * s.stride_w - s.pad_w;
      std::size_t k = 0;
      for (int tap = 0; tap < conv.taps; ++tap) {
        for (int c = 0; c < conv.in_c; ++c)
          patch[k++] = x.at(n, h + tap / s.kernel_w * s.dilation_h, w + tap % s.kernel_w * s.dilation_w, c);
      }
      for (int o = 0; o < s.out_c; ++o, ++to) {
        const float* held = added == nullptr ? nullptr : &added->values[to];
        y.values[to] = s.real_output ? real_output_of(conv, o, patch, held, added_scale)
                                     : output_of(conv, o, patch, held, added_scale);
      }
    }
  }
  return y;
}

/// [output][tap][input] to [output][input][tap].
template <typename T>
std::vector<T> by_input(const RandomConv& conv, const std::vector<T>& weights) {
  std::vector<T> moved;
  const auto taps = static_cast<std::size_t>(conv.taps), inputs = static_cast<std::size_t>(conv.in_c);
  for (std::size_t first = 0; first < weights.size(); first += taps * inputs) {
    for (std::size_t c = 0; c < inputs; ++c) {
      for (std::size_t tap = 0; tap < taps; ++tap) moved.push_back(weights[first + tap * inputs + c]);
    }
  }
  return moved;
}

}  // namespace pipit::internal::test::emulation
