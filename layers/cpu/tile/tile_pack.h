// Weights in the order in which the tile kernel reads them.
#pragma once

#include <cstdint>
#include <span>

#include "layers/cpu/tile/tile_kernel.h"

namespace pipit::internal {

/// How a matrix [steps of K, outputs] is cut into panels of kernels.panel() outputs, or of one vector of kernels.lanes;
/// the last one holds the rest, in as few vectors as that takes. Panel p is [steps][vectors * lanes] elements of 4
/// bytes, the last vector filled up with zeros.
struct TilePanels {
  std::int64_t steps = 0;
  std::int64_t outputs = 0;
  int lanes = 0;
  int panel = 0;
  int step = 0;  ///< elements of K in one of the steps

  TilePanels() = default;
  TilePanels(const TileKernels& kernels, std::int64_t k_steps, std::int64_t output_count)
      : steps(k_steps),
        outputs(output_count),
        lanes(kernels.lanes),
        panel(kernels.panel()),
        step(kernels.step) {}

  TilePanels of_one_vector() const {
    TilePanels narrow = *this;
    narrow.panel = lanes;
    return narrow;
  }

  std::int64_t count() const { return (outputs + panel - 1) / panel; }
  std::int32_t columns(std::int64_t p) const {
    return static_cast<std::int32_t>(outputs - p * panel < panel ? outputs - p * panel : panel);
  }
  /// Where panel p starts, in bytes; a multiple of 64 where lanes * 4 is.
  std::int64_t offset(std::int64_t p) const { return p * panel * steps * 4; }
  std::int64_t panel_bytes(std::int64_t p) const { return step_bytes(p) * steps; }
  /// Bytes of one step of panel p.
  std::int64_t step_bytes(std::int64_t p) const { return (columns(p) + lanes - 1) / lanes * lanes * 4; }
  /// Bytes of all panels.
  std::int64_t bytes() const { return padded_outputs() * steps * 4; }
  /// With those that fill up the last vector.
  std::int64_t padded_outputs() const { return (outputs + lanes - 1) / lanes * lanes; }
};

/// Weights as they come: output o, step (outer, inner) of K = [outer_count][inner_count] is
/// data[o * output_stride + outer * outer_stride + inner * inner_stride].
template <typename T>
struct WeightsOf {
  const T* data = nullptr;
  std::int64_t output_stride = 0;
  std::int64_t outer_count = 1;
  std::int64_t outer_stride = 0;
  std::int64_t inner_count = 0;
  std::int64_t inner_stride = 1;
};

using WeightView = WeightsOf<float>;

/// Steps of K: `run` neighbours from each of `starts` on.
struct PanelSteps {
  std::span<const std::int32_t> starts;
  std::int32_t run = 1;

  std::int64_t count() const { return std::ssize(starts) * run; }
  /// Calls body(k) for every step.
  template <typename Body>
  void for_each(Body&& body) const {
    for (const std::int64_t start : starts) {
      for (std::int64_t k = start; k < start + run; ++k) body(k);
    }
  }
};

/// Writes these steps of panel p to `to`: [steps.count()][vectors * lanes]. panels.steps must be outer_count *
/// inner_count.
void pack_f32_panel(const TilePanels& panels, std::int64_t p, const WeightView& weights,
                    const PanelSteps& steps, std::byte* to);
/// All of them, to `packed` + panels.offset(p).
void pack_f32_panel(const TilePanels& panels, std::int64_t p, const WeightView& weights, std::byte* packed);
/// The same for s8, of the panel's own weights (output 0 is its first): panels.step neighbours of the inner dimension
/// are one step, widened to 16 bits where that is 2, the last one filled up with zeros, so panels.steps must be
/// outer_count * ceil(inner_count / panels.step).
void pack_s8_panel(const TilePanels& panels, std::int64_t p, const WeightsOf<std::int8_t>& weights,
                   const PanelSteps& steps, std::byte* to);

/// The same for s16, two neighbours in a step.
void pack_s16_panel(const TilePanels& panels, std::int64_t p, const WeightsOf<std::int16_t>& weights,
                    const PanelSteps& steps, std::byte* to);

/// The same for f16: two neighbours of the inner dimension are one step, the last one filled up with zeros, so
/// panels.steps must be outer_count * ceil(inner_count / 2). `stretch`: steps that are summed up in halves. The weights
/// of an output are multiplied by the power of two with which the magnitudes of no stretch add up to more than 0.98.
/// Products with any finite halves then add up to no more than 65504 * 0.98, and with what additions round up
/// (kHalfStretch + 1 times up to 2^-11) to less than 65504: no sum in halves overflows. Writes what undoes the scaling
/// to `multipliers` [columns].
void pack_f16_panel(const TilePanels& panels, std::int64_t p, const WeightView& weights,
                    const PanelSteps& steps, int stretch, std::byte* to, float* multipliers);

/// The same for bf16, as the weights are.
void pack_bf16_panel(const TilePanels& panels, std::int64_t p, const WeightView& weights,
                     const PanelSteps& steps, std::byte* to);

}  // namespace pipit::internal
