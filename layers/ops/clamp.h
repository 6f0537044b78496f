// Clamp: the activation that convolution, linear and add can apply to their results.
#pragma once

#include <algorithm>
#include <limits>
#include <string>

namespace pipit::internal {

/// y = min(max(x, low), high). Relu is [0, inf), Relu6 is [0, 6], no activation (-inf, inf).
struct Clamp {
  float low = -std::numeric_limits<float>::infinity();
  float high = std::numeric_limits<float>::infinity();

  static constexpr Clamp relu() { return {0.0F, std::numeric_limits<float>::infinity()}; }
  bool is_identity() const { return *this == Clamp{}; }
  template <typename T>
  T operator()(T x) const {
    return std::min(std::max(x, static_cast<T>(low)), static_cast<T>(high));
  }
  friend bool operator==(const Clamp&, const Clamp&) = default;
};

/// For Layer::summary(): "" for no activation, " +relu", " +relu6", else " +clip[low,high]".
std::string clamp_summary(const Clamp& clamp);

}  // namespace pipit::internal
