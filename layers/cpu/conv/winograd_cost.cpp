#include "layers/cpu/conv/winograd_cost.h"

#include <fmt/format.h>

namespace pipit::internal {

namespace {

// A result of the direct sums: epilogue and store.
constexpr double kStore = 14;
constexpr double kStepBytes = 4;

// Values of pixels of `channels` channels. Transforms take vectors of channels: one that channels do not fill takes as
// long as a full one, and its values are moved one by one, for half as long again.
double moved_values(std::int64_t pixels, std::int64_t channels, int lanes) {
  const std::int64_t rest = channels % lanes;
  const std::int64_t moved = channels - rest + (rest > 0 ? lanes + rest / 2 : 0);
  return static_cast<double>(pixels) * static_cast<double>(moved);
}

std::int64_t pixels_of(const Shape& y) {
  return y[1] == 0 ? 0 : y.elements() / y[1];
}

}  // namespace

// Least squares over 60 to 110 layers of 8 to 512 channels and 7 to 112 pixels a side on one thread of an Emerald
// Rapids server, with PIPIT_ISA for the instruction sets that it contains; medians are off by 5 to 10 %. On Zen 3 and
// Zen 5 a value takes 30 to 80 steps.
WinogradRates float_winograd_rates(int m, Isa isa) {
  const double product = isa >= Isa::avx512 ? 0.92 : 0.78;
  if (m == 2) return {product, 62, 66};
  return {product, 34, 44};
}

WinogradRates byte_winograd_rates(Isa direct) {
  if (direct >= Isa::avx512vnni) return {0.87, 24, 60};
  if (direct == Isa::avxvnni) return {0.73, 20, 50};
  return {0.5, 14, 36};  // direct sums widen bytes before they multiply them
}

double direct_steps(const Shape& y, const TileKernels& kernels, const KeptSteps& kept) {
  double steps = static_cast<double>(kept.bytes()) / kStepBytes * kept.macs_cost();
  if (kernels.stretch > 0) {
    // Halves: a panel of one vector takes as long as one of two.
    steps = 0;
    for (std::int64_t p = 0; p < kept.panels(); ++p)
      steps += static_cast<double>(kept.steps(p).count() * kernels.panel());
  }
  if (kernels.isa == Isa::amx && kept.mean_runs() > 0) {
    const double runs = kept.mean_runs();
    steps *= amx_cost(runs, kept.run()) / (runs * kept.run());
  }
  return steps * static_cast<double>(pixels_of(y));
}

double WinogradLayer::direct_cost() const {
  return direct_steps + kStore * static_cast<double>(y.elements());
}

double WinogradLayer::winograd_cost(double transforms) const {
  const double moved = rates.input * moved_values(pixels_of(x), x[1], lanes) +
                       rates.output * moved_values(pixels_of(y), y[1], lanes);
  return rates.product * product_steps + transforms * moved;
}

Refusal refuse_beside_pruned(const WinogradLayer& layer, double kept) {
  constexpr double kMinTransforms = 0.6;
  const double direct = layer.direct_cost();
  const double winograd = layer.winograd_cost(kMinTransforms);
  if (kept >= 1 || direct > winograd) return std::nullopt;
  return fmt::format("the direct sums keep {:.1f} % of K; Winograd would take at least {:.1f} times as long",
                     100 * kept, winograd / direct);
}

}  // namespace pipit::internal
