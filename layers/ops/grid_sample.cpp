#include "layers/ops/grid_sample.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "layers/ops/inference_checks.h"
#include "layers/ops/samples.h"

namespace pipit::internal {

namespace {

// Beyond this, positions are outside all the same and floats resolve no elements.
constexpr float kFarAway = 1e9F;

float reflected(float x, float low, float high) {
  const float range = high - low;
  if (!(range > 0)) return low;
  const float beyond = x < low ? low - x : x - high;
  if (beyond <= 0) return x;
  const float turns = std::floor(beyond / range);
  const float rest = beyond - turns * range;
  const bool from_low = (x < low) == (std::fmod(turns, 2.0F) == 0);
  return std::clamp(from_low ? low + rest : high - rest, low, high);
}

// The element for a whole position, -1 for none.
std::int64_t element_at(const GridSampleAttributes& a, float x, std::int64_t extent) {
  const auto last = static_cast<float>(extent - 1);
  if (a.padding == GridPadding::zeros && !(x >= 0 && x <= last)) return -1;
  if (a.padding == GridPadding::reflection) {
    const float edge = a.align_corners ? 0 : 0.5F;
    x = std::trunc(reflected(x, -edge, last + edge));
  }
  return static_cast<std::int64_t>(std::clamp(x, 0.0F, last));
}

std::array<float, 4> cubic_weights(float t) {
  constexpr float kA = -0.75F;
  const auto far_weight = [&](float d) { return ((kA * d - 5 * kA) * d + 8 * kA) * d - 4 * kA; };
  const auto near_weight = [&](float d) { return ((kA + 2) * d - (kA + 3)) * d * d + 1; };
  return {far_weight(t + 1), near_weight(t), near_weight(1 - t), far_weight(2 - t)};
}

}  // namespace

std::vector<TensorDesc> GridSample::infer(std::span<const TensorDesc* const> inputs) const {
  check_inputs(inputs, kType, 2);
  const TensorDesc& x = *inputs[0];
  const TensorDesc& grid = *inputs[1];
  check_float(x, kType, "x");
  const int rank = x.shape.rank();
  const bool fits = rank >= 3 && grid.shape.rank() == rank && grid.dtype == x.dtype &&
                    grid.shape[0] == x.shape[0] && grid.shape[rank - 1] == rank - 2;
  if (!fits) fail("GridSample: the grid is {} for x {}", grid.str(), x.str());
  std::vector<std::int64_t> dims{x.shape[0], x.shape[1]};
  for (int d = 1; d < rank - 1; ++d) {
    if (x.shape[d + 1] < 1 || static_cast<float>(x.shape[d + 1]) > kFarAway / 64)
      fail("GridSample: dimension {} of x {}", d + 1, x.shape.str());
    dims.push_back(grid.shape[d]);
  }
  return {{Shape(dims), x.dtype}};
}

bool GridSample::is_batch_independent(const SampledInputs& inputs) const {
  return sampled_exactly(inputs, {0, 1});
}

Work GridSample::work(std::span<const TensorDesc* const> inputs, std::span<const TensorDesc> outputs) const {
  std::int64_t taps = 1;
  for (int d = 2; d < inputs[0]->shape.rank(); ++d) taps *= max_grid_taps(attributes_.mode);
  return {attributes_.mode == ResizeMode::nearest ? 0 : saturating_product(outputs[0].elements(), taps)};
}

std::string GridSample::summary() const {
  static constexpr const char* kModes[] = {"nearest", "linear", "cubic"};
  static constexpr const char* kPaddings[] = {"zeros", "border", "reflection"};
  return fmt::format("{} {}{}", kModes[static_cast<std::size_t>(attributes_.mode)],
                     kPaddings[static_cast<std::size_t>(attributes_.padding)],
                     attributes_.align_corners ? " align corners" : "");
}

GridTaps grid_taps(const GridSampleAttributes& a, double position, std::int64_t extent) {
  const auto n = static_cast<float>(position);
  const auto size = static_cast<float>(extent);
  float x = a.align_corners ? (n + 1) / 2 * (size - 1) : ((n + 1) * size - 1) / 2;
  GridTaps taps;
  if (std::isnan(x)) {
    taps.count = a.padding == GridPadding::zeros ? 0 : 1;
    taps.weight[0] = 1;
    return taps;
  }
  x = std::clamp(x, -kFarAway, kFarAway);
  if (a.mode == ResizeMode::nearest) x = std::nearbyint(x);
  const float edge = a.align_corners ? 0 : 0.5F;
  if (x < -edge || x > size - 1 + edge) {
    // As PyTorch and ONNX Runtime have it, cubic repeats the edge instead.
    if (a.padding == GridPadding::border && a.mode != ResizeMode::cubic) x = std::clamp(x, 0.0F, size - 1);
    if (a.padding == GridPadding::reflection) x = reflected(x, -edge, size - 1 + edge);
  }
  const float first = a.mode == ResizeMode::nearest ? std::trunc(x) : std::floor(x);
  const float t = x - first;
  const auto add = [&](float at, float weight) {
    const std::int64_t index = element_at(a, at, extent);
    if (index < 0 || weight == 0) return;
    taps.index[static_cast<std::size_t>(taps.count)] = index;
    taps.weight[static_cast<std::size_t>(taps.count++)] = weight;
  };
  if (a.mode == ResizeMode::nearest) {
    add(first, 1);
  } else if (a.mode == ResizeMode::linear) {
    add(first, 1 - t);
    add(first + 1, t);
  } else {
    const std::array<float, 4> weights = cubic_weights(t);
    for (std::size_t i = 0; i < weights.size(); ++i) add(first + static_cast<float>(i) - 1, weights[i]);
  }
  return taps;
}

}  // namespace pipit::internal
