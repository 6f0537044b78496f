#include "layers/cuda/requantisation_probe.h"

#include <cmath>
#include <random>

namespace pipit::cuda {

namespace {

struct Numbers {
  float bias, multiplier;
  std::int8_t residual;
};

float product(float a, float b) {
  volatile float p = a * b;  // rounded whatever the compiler may contract
  return p;
}

float value_of(const Numbers& n, bool has_residual) {
  const float scaled = product(n.bias, n.multiplier);
  return has_residual ? scaled + product(static_cast<float>(n.residual), RequantisationProbe::kResidualScale)
                      : scaled;
}

// Whether rounding only once, `first` (of bias * multiplier) or the other product being left exact, ends elsewhere.
bool tells_apart(const Numbers& n, bool first, const StepBounds& bounds) {
  const float r = static_cast<float>(n.residual);
  const float contracted =
      first ? std::fma(n.bias, n.multiplier, product(r, RequantisationProbe::kResidualScale))
            : std::fma(r, RequantisationProbe::kResidualScale, product(n.bias, n.multiplier));
  return requantise(contracted, bounds, 0) != requantise(value_of(n, true), bounds, 0);
}

class Search {
 public:
  explicit Search(const StepBounds& bounds) : bounds_(bounds) {}

  // A value at, or next to, a tie within the bounds.
  Numbers tie(bool has_residual) {
    Numbers n{};
    const float target = std::floor(between(bounds_.low, bounds_.high)) + 0.5F;
    n.bias = std::floor(between(1, 1 << 22));
    n.residual = static_cast<std::int8_t>(has_residual ? std::floor(between(-127, 127)) : 0);
    const float rest =
        has_residual ? product(static_cast<float>(n.residual), RequantisationProbe::kResidualScale) : 0.0F;
    n.multiplier = (target - rest) / n.bias;
    const int steps = static_cast<int>(between(-2, 3));
    for (int i = 0; i < std::abs(steps); ++i)
      n.multiplier = std::nextafter(n.multiplier, steps < 0 ? -INFINITY : INFINITY);
    return n;
  }
  Numbers beyond(bool has_residual) {
    const float sign = coin() ? 1.0F : -1.0F;
    return {std::floor(between(1, 1 << 22)), sign * between(1, 50),
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

RequantisationProbe requantisation_probe(std::size_t channels, bool residual, const StepBounds& bounds) {
  constexpr int kTries = 2000;
  Search search(bounds);
  RequantisationProbe probe;
  const bool room = bounds.high - bounds.low >= 1;
  for (std::size_t c = 0; c < channels; ++c) {
    Numbers n = search.beyond(residual);
    if (room && c % 4 != 3) {
      n = search.tie(residual);
      for (int i = 0; residual && i < kTries && !tells_apart(n, c % 2 == 0, bounds); ++i)
        n = search.tie(true);
    }
    probe.bias.push_back(n.bias);
    probe.multiplier.push_back(n.multiplier);
    probe.residual.push_back(n.residual);
    probe.value.push_back(value_of(n, residual));
  }
  return probe;
}

}  // namespace pipit::cuda
