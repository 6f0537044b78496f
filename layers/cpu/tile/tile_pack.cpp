#include "layers/cpu/tile/tile_pack.h"

#include <algorithm>
#include <cmath>

#include "layers/cpu/vector/row_kernels.h"

namespace pipit {

void pack_f32_panel(const TilePanels& panels, std::int64_t p, const WeightView& weights, std::byte* packed) {
  const std::int64_t columns = panels.columns(p);
  const std::int64_t width = (columns + panels.lanes - 1) / panels.lanes * panels.lanes;
  const float* first = weights.data + p * panels.panel * weights.output_stride;
  float* to = reinterpret_cast<float*>(packed + panels.offset(p));
  for (std::int64_t outer = 0; outer < weights.outer_count; ++outer) {
    for (std::int64_t inner = 0; inner < weights.inner_count; ++inner, to += width) {
      const float* from = first + outer * weights.outer_stride + inner * weights.inner_stride;
      for (std::int64_t o = 0; o < columns; ++o) to[o] = from[o * weights.output_stride];
      std::fill(to + columns, to + width, 0.0F);
    }
  }
}

namespace {

// As many integers of type Packed as fill a step of 4 bytes.
template <typename Packed, typename T>
void pack_integers(const TilePanels& panels, std::int64_t p, const WeightsOf<T>& weights, std::byte* packed) {
  constexpr std::int64_t kStep = 4 / sizeof(Packed);
  const std::int64_t columns = panels.columns(p);
  const std::int64_t width = (columns + panels.lanes - 1) / panels.lanes * panels.lanes;
  const T* first = weights.data + p * panels.panel * weights.output_stride;
  auto* to = reinterpret_cast<Packed*>(packed + panels.offset(p));
  for (std::int64_t outer = 0; outer < weights.outer_count; ++outer) {
    for (std::int64_t inner = 0; inner < weights.inner_count; inner += kStep, to += kStep * width) {
      std::fill_n(to, kStep * width, Packed{0});
      const std::int64_t used = std::min<std::int64_t>(kStep, weights.inner_count - inner);
      for (std::int64_t o = 0; o < columns; ++o) {
        const T* from = first + o * weights.output_stride + outer * weights.outer_stride;
        for (std::int64_t i = 0; i < used; ++i) to[kStep * o + i] = from[(inner + i) * weights.inner_stride];
      }
    }
  }
}

}  // namespace

void pack_s8_panel(const TilePanels& panels, std::int64_t p, const WeightsOf<std::int8_t>& weights,
                   std::byte* packed) {
  if (panels.step == 2) {
    pack_integers<std::int16_t>(panels, p, weights, packed);
  } else {
    pack_integers<std::int8_t>(panels, p, weights, packed);
  }
}

void pack_s16_panel(const TilePanels& panels, std::int64_t p, const WeightsOf<std::int16_t>& weights,
                    std::byte* packed) {
  pack_integers<std::int16_t>(panels, p, weights, packed);
}

namespace {

constexpr int kMostOutputs = 64;  // of a panel

// Calls body(step, j, w) for element j of every step of K, w pointing to its weight for output 0 of the panel.
template <typename Body>
void for_each_half(const WeightView& weights, const float* first, Body&& body) {
  std::int64_t step = 0;
  for (std::int64_t outer = 0; outer < weights.outer_count; ++outer) {
    for (std::int64_t inner = 0; inner < weights.inner_count; ++inner) {
      body(step + inner / 2, inner % 2, first + outer * weights.outer_stride + inner * weights.inner_stride);
    }
    step += (weights.inner_count + 1) / 2;
  }
}

// The power of two that brings magnitudes of this sum to (0.49, 0.98]; 1 where there is none.
float scale_of(double sum) {
  constexpr double kMostSum = 0.98;
  constexpr int kMostExponent = 100;  // leaves weights and the inverse normal numbers
  static_assert(kHalfStretch <= 40, "the sum is taken with 41 additions in mind");
  if (!(sum > 0) || !std::isfinite(sum)) return 1;
  const int exponent = std::clamp(std::ilogb(kMostSum / sum), -kMostExponent, kMostExponent);
  return std::ldexp(1.0F, exponent);
}

}  // namespace

void pack_f16_panel(const TilePanels& panels, std::int64_t p, const WeightView& weights, int stretch,
                    std::byte* packed, float* multipliers) {
  const std::int64_t columns = panels.columns(p);
  const bool pair = columns > panels.lanes;
  const std::int64_t width = pair ? 2 * panels.lanes : panels.lanes;
  const float* first = weights.data + p * panels.panel * weights.output_stride;

  double sums[kMostOutputs] = {};  // of the current stretch
  double most[kMostOutputs] = {};
  std::int64_t current = 0;
  const auto end_stretch = [&] {
    for (std::int64_t o = 0; o < columns; ++o) {
      most[o] = sums[o] > most[o] || std::isnan(sums[o]) ? sums[o] : most[o];
      sums[o] = 0;
    }
  };
  for_each_half(weights, first, [&](std::int64_t step, std::int64_t /*j*/, const float* w) {
    if (step / stretch != current) end_stretch();
    current = step / stretch;
    for (std::int64_t o = 0; o < columns; ++o) sums[o] += std::abs(w[o * weights.output_stride]);
  });
  end_stretch();
  float scales[kMostOutputs] = {};
  for (std::int64_t o = 0; o < columns; ++o) {
    scales[o] = scale_of(most[o]);
    multipliers[o] = 1 / scales[o];
  }

  auto* to = reinterpret_cast<Half*>(packed + panels.offset(p));
  float pairs[2 * kMostOutputs] = {};  // of one step
  std::int64_t written = 0;
  const auto write = [&] {
    row_kernels().to_half(pairs, to + written * 2 * width, 2 * width);
    std::fill(std::begin(pairs), std::end(pairs), 0.0F);
    ++written;
  };
  for_each_half(weights, first, [&](std::int64_t step, std::int64_t j, const float* w) {
    if (step != written) write();
    for (std::int64_t o = 0; o < columns; ++o) {
      const std::int64_t place = pair ? o % 2 * panels.lanes + o / 2 : o;
      pairs[2 * place + j] = w[o * weights.output_stride] * scales[o];
    }
  });
  if (panels.steps > 0) write();
}

}  // namespace pipit
