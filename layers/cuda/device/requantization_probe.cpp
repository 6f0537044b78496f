#include "layers/cuda/device/requantization_probe.h"

#include <cmath>
#include <random>

namespace pipit::internal::cuda {

namespace {

struct Numbers {
  std::int32_t bias;
  float multiplier;
  std::int8_t residual;
};

float product(float a, float b) {
  volatile float p = a * b;  // rounded whatever the compiler may contract
  return p;
}

float value_of(const Numbers& n, bool has_residual) {
  const float scaled = product(static_cast<float>(n.bias), n.multiplier);
  return has_residual ? scaled + product(static_cast<float>(n.residual), RequantizationProbe::kResidualScale)
                      : scaled;
}

enum class Wrong { contracts_sum, contracts_residual, keeps_sum };

// Whether wrong rounding (a product that is not rounded by itself, or a sum of more digits than f32 has) gives another
// result.
bool tells_apart(const Numbers& n, bool has_residual, Wrong wrong, const StepBounds& bounds) {
  const auto sum = static_cast<float>(n.bias);
  const auto r = static_cast<float>(n.residual);
  float value = 0;
  switch (wrong) {
    case Wrong::contracts_sum:
      value = std::fma(sum, n.multiplier, product(r, RequantizationProbe::kResidualScale));
      break;
    case Wrong::contracts_residual:
      value = std::fma(r, RequantizationProbe::kResidualScale, product(sum, n.multiplier));
      break;
    case Wrong::keeps_sum:
      value = static_cast<float>(static_cast<double>(n.bias) * n.multiplier);
      break;
  }
  return requantize(value, bounds, 0) != requantize(value_of(n, has_residual), bounds, 0);
}

class Search {
 public:
  explicit Search(const StepBounds& bounds) : bounds_(bounds) {}

  // A value at, or next to, a tie within the bounds.
  Numbers tie(bool has_residual) {
    Numbers n{};
    const float target = std::floor(between(bounds_.low, bounds_.high)) + 0.5F;
    n.bias = static_cast<std::int32_t>(1 + random_() % (coin() ? 1U << 22 : 1U << 30));
    n.residual = static_cast<std::int8_t>(has_residual ? std::floor(between(-127, 127)) : 0);
    const float rest =
        has_residual ? product(static_cast<float>(n.residual), RequantizationProbe::kResidualScale) : 0.0F;
    n.multiplier = (target - rest) / static_cast<float>(n.bias);
    const int steps = static_cast<int>(between(-2, 3));
    for (int i = 0; i < std::abs(steps); ++i)
      n.multiplier = std::nextafter(n.multiplier, steps < 0 ? -INFINITY : INFINITY);
    return n;
  }
  Numbers beyond(bool has_residual) {
    const float sign = coin() ? 1.0F : -1.0F;
    return {static_cast<std::int32_t>(between(1, 1 << 22)), sign * between(1, 50),
            static_cast<std::int8_t>(has_residual ? std::floor(between(-127, 127)) : 0)};
  }
  bool coin() { return random_() % 2 == 0; }

 private:
  // Not std::uniform_real_distribution, whose numbers differ between standard libraries.
  float between(float low, float high) {
    return low + (high - low) * static_cast<float>(random_() % (1U << 24)) / static_cast<float>(1U << 24);
  }

  StepBounds bounds_;
  std::mt19937 random_{20};
};

}  // namespace

RequantizationProbe requantization_probe(std::size_t channels, bool residual, const StepBounds& bounds) {
  constexpr int kTries = 2000;
  Search search(bounds);
  RequantizationProbe probe;
  const bool room = bounds.high - bounds.low >= 1;
  for (std::size_t c = 0; c < channels; ++c) {
    const Wrong wrong = !residual    ? Wrong::keeps_sum
                        : c % 2 == 0 ? Wrong::contracts_sum
                                     : Wrong::contracts_residual;
    Numbers n = search.beyond(residual);
    if (room && c % 4 != 3) {
      n = search.tie(residual);
      // Without a residual plain ties are to be among them.
      const bool searches = residual || c % 4 == 0;
      for (int i = 0; searches && i < kTries && !tells_apart(n, residual, wrong, bounds); ++i)
        n = search.tie(residual);
    }
    probe.bias.push_back(n.bias);
    probe.multiplier.push_back(n.multiplier);
    probe.residual.push_back(n.residual);
    probe.value.push_back(value_of(n, residual));
  }
  return probe;
}

}  // namespace pipit::internal::cuda
