#include "layers/cpu/tile/tile_pack.h"

#include <algorithm>
#include <cmath>

#include "engine/base/ceil_div.h"
#include "layers/cpu/vector/row_kernels.h"

namespace pipit::internal {

namespace {

// What is packed of a panel: its outputs, and those that a step has room for.
struct PanelShape {
  std::int64_t columns;
  std::int64_t width;

  PanelShape(const TilePanels& panels, std::int64_t p)
      : columns(panels.columns(p)), width(panels.step_bytes(p) / 4) {}
};

}  // namespace

void pack_f32_panel(const TilePanels& panels, std::int64_t p, const WeightView& weights,
                    const PanelSteps& steps, std::byte* to) {
  const PanelShape shape(panels, p);
  const float* first = weights.data + p * panels.panel * weights.output_stride;
  auto* row = reinterpret_cast<float*>(to);
  steps.for_each([&](std::int64_t k) {
    const float* from = first + k / weights.inner_count * weights.outer_stride +
                        k % weights.inner_count * weights.inner_stride;
    for (std::int64_t o = 0; o < shape.columns; ++o) row[o] = from[o * weights.output_stride];
    std::fill(row + shape.columns, row + shape.width, 0.0F);
    row += shape.width;
  });
}

void pack_f32_panel(const TilePanels& panels, std::int64_t p, const WeightView& weights, std::byte* packed) {
  constexpr std::int32_t kFirst = 0;
  const PanelSteps all{std::span(&kFirst, 1), static_cast<std::int32_t>(panels.steps)};
  pack_f32_panel(panels, p, weights, all, packed + panels.offset(p));
}

namespace {

// As many integers of type Packed as fill a step of 4 bytes; of the panel's own weights.
template <typename Packed, typename T>
void pack_integers(const TilePanels& panels, std::int64_t p, const WeightsOf<T>& weights,
                   const PanelSteps& steps, std::byte* packed) {
  constexpr std::int64_t kStep = 4 / sizeof(Packed);
  const PanelShape shape(panels, p);
  const std::int64_t inner_steps = ceil_div(weights.inner_count, kStep);
  auto* to = reinterpret_cast<Packed*>(packed);
  steps.for_each([&](std::int64_t k) {
    const std::int64_t inner = k % inner_steps * kStep;
    const std::int64_t used = std::min<std::int64_t>(kStep, weights.inner_count - inner);
    const T* from = weights.data + k / inner_steps * weights.outer_stride + inner * weights.inner_stride;
    std::fill_n(to, kStep * shape.width, Packed{0});
    for (std::int64_t o = 0; o < shape.columns; ++o, from += weights.output_stride) {
      for (std::int64_t i = 0; i < used; ++i) to[kStep * o + i] = from[i * weights.inner_stride];
    }
    to += kStep * shape.width;
  });
}

}  // namespace

void pack_s8_panel(const TilePanels& panels, std::int64_t p, const WeightsOf<std::int8_t>& weights,
                   const PanelSteps& steps, std::byte* to) {
  if (panels.step == 2) {
    pack_integers<std::int16_t>(panels, p, weights, steps, to);
  } else {
    pack_integers<std::int8_t>(panels, p, weights, steps, to);
  }
}

void pack_s16_panel(const TilePanels& panels, std::int64_t p, const WeightsOf<std::int16_t>& weights,
                    const PanelSteps& steps, std::byte* to) {
  pack_integers<std::int16_t>(panels, p, weights, steps, to);
}

namespace {

constexpr int kMaxOutputs = 64;  // of a panel

// Calls body(step, j, w) for element j of every step, counted from 0, w pointing to its weight for output 0 of the
// panel.
template <typename Body>
void for_each_half(const WeightView& weights, const PanelSteps& steps, const float* first, Body&& body) {
  const std::int64_t inner_steps = ceil_div(weights.inner_count, 2);
  std::int64_t step = 0;
  steps.for_each([&](std::int64_t k) {
    const float* from = first + k / inner_steps * weights.outer_stride;
    const std::int64_t begin = 2 * (k % inner_steps);
    const std::int64_t end = std::min(begin + 2, weights.inner_count);
    for (std::int64_t inner = begin; inner < end; ++inner)
      body(step, inner - begin, from + inner * weights.inner_stride);
    ++step;
  });
}

// The power of two that brings magnitudes of this sum to (0.49, 0.98]; 1 where there is none.
float scale_of(double sum) {
  constexpr double kMaxSum = 0.98;
  constexpr int kMaxExponent = 100;  // leaves weights and the inverse normal numbers
  static_assert(kHalfStretch <= 40, "the sum is taken with 41 additions in mind");
  if (!(sum > 0) || !std::isfinite(sum)) return 1;
  const int exponent = std::clamp(std::ilogb(kMaxSum / sum), -kMaxExponent, kMaxExponent);
  return std::ldexp(1.0F, exponent);
}

}  // namespace

void pack_f16_panel(const TilePanels& panels, std::int64_t p, const WeightView& weights,
                    const PanelSteps& steps, int stretch, std::byte* packed, float* multipliers) {
  const PanelShape shape(panels, p);
  const std::int64_t columns = shape.columns;
  const std::int64_t width = shape.width;
  const bool pair = columns > panels.lanes;
  const float* first = weights.data + p * panels.panel * weights.output_stride;

  double sums[kMaxOutputs] = {};  // of the current stretch
  double most[kMaxOutputs] = {};
  std::int64_t current = 0;
  const auto end_stretch = [&] {
    for (std::int64_t o = 0; o < columns; ++o) {
      most[o] = sums[o] > most[o] || std::isnan(sums[o]) ? sums[o] : most[o];
      sums[o] = 0;
    }
  };
  for_each_half(weights, steps, first, [&](std::int64_t step, std::int64_t /*j*/, const float* w) {
    if (step / stretch != current) end_stretch();
    current = step / stretch;
    for (std::int64_t o = 0; o < columns; ++o) sums[o] += std::abs(w[o * weights.output_stride]);
  });
  end_stretch();
  float scales[kMaxOutputs] = {};
  for (std::int64_t o = 0; o < columns; ++o) {
    scales[o] = scale_of(most[o]);
    multipliers[o] = 1 / scales[o];
  }

  auto* to = reinterpret_cast<Half*>(packed);
  float pairs[2 * kMaxOutputs] = {};  // of one step
  std::int64_t written = 0;
  const auto write = [&] {
    narrow_row(pairs, to + written * 2 * width, 2 * width);
    std::fill(std::begin(pairs), std::end(pairs), 0.0F);
    ++written;
  };
  for_each_half(weights, steps, first, [&](std::int64_t step, std::int64_t j, const float* w) {
    if (step != written) write();
    for (std::int64_t o = 0; o < columns; ++o) {
      const std::int64_t place = pair ? o % 2 * panels.lanes + o / 2 : o;
      pairs[2 * place + j] = w[o * weights.output_stride] * scales[o];
    }
  });
  if (steps.count() > 0) write();
}

void pack_bf16_panel(const TilePanels& panels, std::int64_t p, const WeightView& weights,
                     const PanelSteps& steps, std::byte* packed) {
  const PanelShape shape(panels, p);
  auto* to = reinterpret_cast<BFloat16*>(packed);
  std::fill_n(to, steps.count() * 2 * shape.width, BFloat16{});
  for_each_half(weights, steps, weights.data + p * panels.panel * weights.output_stride,
                [&](std::int64_t step, std::int64_t j, const float* w) {
                  BFloat16* row = to + step * 2 * shape.width + j;
                  for (std::int64_t o = 0; o < shape.columns; ++o)
                    row[2 * o] = to_bfloat16(w[o * weights.output_stride]);
                });
}

}  // namespace pipit::internal
