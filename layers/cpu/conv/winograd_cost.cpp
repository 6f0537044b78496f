#include "layers/cpu/conv/winograd_cost.h"

#include <fmt/format.h>

namespace pipit {

namespace {

// What transforms take for each value of the input and of the output, in products. On Zen 3 35 to 120 of 32-bit floats,
// 40 of widened bytes; on Zen 5 30 while activations stay in the second-level cache, 80 where they come from memory,
// and 40 to 65 of bytes.
constexpr double kLeastTransform = 24;
constexpr double kTransform = 48;

double direct_macs(const BesidePruned& layer) {
  constexpr double kTaps = 9;
  const auto pixels = static_cast<double>(layer.y[0] * layer.y[2] * layer.y[3]);
  return pixels * kTaps * static_cast<double>(layer.x[1] * layer.y[1]) * layer.kept_direct;
}

// Of the direct convolution as many as take as long.
double winograd_macs(const BesidePruned& layer, double transform) {
  const auto pixels = static_cast<double>(layer.y[0] * layer.y[2] * layer.y[3]);
  const double products = static_cast<double>(layer.tiles.plane_rows()) *
                          static_cast<double>(layer.x[1] * layer.y[1]) * layer.kept_winograd;
  return (products + pixels * static_cast<double>(layer.x[1] + layer.y[1]) * transform) * layer.rate;
}

}  // namespace

Refusal refuse_beside_pruned(const BesidePruned& layer) {
  if (layer.kept_direct >= 1) return std::nullopt;
  const double direct = direct_macs(layer);
  const double winograd = winograd_macs(layer, kLeastTransform);
  if (direct > winograd) return std::nullopt;
  return fmt::format(
      "the direct sums keep {:.1f} % of K, {:.1f} M multiply-accumulates; Winograd would take at least as "
      "long as {:.1f} M, transforms included",
      100 * layer.kept_direct, 1e-6 * direct, 1e-6 * winograd);
}

bool yields_beside_pruned(const BesidePruned& layer) {
  return layer.kept_direct < 1 && direct_macs(layer) <= winograd_macs(layer, kTransform);
}

}  // namespace pipit
