#include "layers/cpu/conv/winograd_cost.h"

#include <fmt/format.h>

namespace pipit {

Refusal refuse_beside_pruned(const Shape& x, const Shape& y, const WinogradTiles& tiles, double kept_share,
                             double rate) {
  if (kept_share >= 1) return std::nullopt;
  // What transforms take at least, for each value of the input and of the output, in products: 35 to 120 of 32-bit
  // floats on Zen 3, 40 of widened bytes.
  constexpr double kTransform = 24;
  constexpr double kTaps = 9;
  const auto channels = static_cast<double>(x[1]);
  const auto outputs = static_cast<double>(y[1]);
  const auto pixels = static_cast<double>(y[0] * y[2] * y[3]);
  const double products = static_cast<double>(tiles.plane_rows()) * channels * outputs;
  const double transforms = pixels * (channels + outputs) * kTransform;
  const double direct = pixels * kTaps * channels * outputs * kept_share;
  const double transformed = (products + transforms) * rate;
  if (direct > transformed) return std::nullopt;
  return fmt::format(
      "the direct sums keep {:.1f} % of K, {:.1f} M multiply-accumulates; Winograd would take at least as "
      "long "
      "as {:.1f} M, transforms included",
      100 * kept_share, 1e-6 * direct, 1e-6 * transformed);
}

}  // namespace pipit
