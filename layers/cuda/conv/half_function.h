// The element-wise function that an fp16 convolution computes of its results, as its kernels get it. nvcc does not get
// the host code to see that decides about it (half_follower.h).
#pragma once

#include <cstdint>

namespace pipit::cuda {

/// What x is multiplied by, or what takes its place.
enum class HalfGate : std::uint8_t {
  none,      ///< 1: there is no function
  logistic,  ///< 1 / (1 + 2^(slope x))
  linear,    ///< slope x + offset, clamped to [0, 1]
  sign,      ///< slope where x < 0, else 1
};

/// f(x) = x * gate(x) where times_x, else gate(x).
struct HalfFunction {
  HalfGate gate = HalfGate::none;
  bool times_x = true;
  float slope = 0, offset = 0;  ///< finite
};

}  // namespace pipit::cuda
