// GridSample: the elements that a position mixes and their weights are found once for all channels, of many positions
// side by side.
#include "layers/ops/grid_sample.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "engine/base/ceil_div.h"
#include "engine/platform/simd.h"
#include "layers/common/layer_kernel.h"
#include "layers/cpu/families.h"
#include "layers/cpu/vector/tap_grid.h"
#include "layers/cpu/work_sharing.h"
#include "layers/ops/operands.h"

#if PIPIT_ISA_X86
#include <immintrin.h>
#endif

namespace pipit::internal {

namespace {

// Positions that are mixed before the next channel; loops always run over all.
constexpr std::int64_t kPositions = 64;
// Beyond this, positions are outside all the same and floats resolve no elements.
constexpr float kFarOutside = 1e9F;

Refusal refuse_grid_sample(const NodeSpec& spec) {
  if (Refusal reason = refuse_unless_f32(spec)) return reason;
  std::int64_t plane = 1;
  for (int d = 2; d < spec.inputs[0]->shape.rank(); ++d) plane *= spec.inputs[0]->shape[d];
  if (plane > std::numeric_limits<std::int32_t>::max()) return "a channel has more than 2^31 elements";
  return refuse_unless_row_major(spec);
}

// One dimension of x: grid_taps of all positions, with the same bits. Taps that are left out weigh 0.
struct AxisTaps {
  std::int32_t index[4][kPositions];
  float weight[4][kPositions];
};
struct SampledAxis {
  GridSampleAttributes a;
  std::int64_t extent = 0;
};

// Vectors of floats and of what comparing them gives. All values are smaller than 2^31.
template <typename V>
using Whole = decltype(V{} < V{});

template <typename V>
PIPIT_INLINE inline void clamp_to(float low, float high, V& x) {
  x = x < low ? V{} + low : x;
  x = x > high ? V{} + high : x;
}
template <typename V>
PIPIT_INLINE inline void truncate(V& x) {
  x = __builtin_convertvector(__builtin_convertvector(x, Whole<V>), V);
}
template <typename V>
PIPIT_INLINE inline void round_down(V& x) {
  V whole = x;
  truncate(whole);
  x = whole > x ? whole - 1.0F : whole;
}
// To the even one of two neighbours that are as near.
template <typename V>
PIPIT_INLINE inline void round_to_even(V& x) {
  V below = x;
  round_down(below);
  const V rest = x - below;
  V half = below * 0.5F;
  round_down(half);
  const V even = half + half == below ? below : below + 1.0F;
  const V nearest = rest < 0.5F ? below : below + 1.0F;
  x = rest == 0.5F ? even : nearest;
}

// Reflects what is outside [low, high]; where these are the same, that is the result.
template <typename V>
PIPIT_INLINE inline void turn_back(float low, float high, V& x) {
  const float range = high > low ? high - low : 1;
  const V below = low - x, above = x - high;
  const V beyond = below > above ? below : above;
  V turns = beyond / range;
  round_down(turns);
  const V rest = beyond - turns * range;
  V half = turns * 0.5F;
  round_down(half);
  const V from_low = low + rest, from_high = high - rest;
  const V even = below > above ? from_low : from_high;
  const V odd = below > above ? from_high : from_low;
  V inside = half + half == turns ? even : odd;
  clamp_to(low, high, inside);
  x = beyond <= 0.0F ? x : inside;
}

// The taps at whole numbers; weights of 0 leave them out.
template <typename V, GridPadding kPadding>
PIPIT_INLINE inline void set_taps(const SampledAxis& axis, const V& at, const V& weight, std::int32_t* index,
                                  float* kept) {
  const auto last = static_cast<float>(axis.extent - 1);
  const float edge = axis.a.align_corners ? 0 : 0.5F;
  V weights = weight;
  if (kPadding == GridPadding::zeros) {
    weights = at < 0.0F ? V{} : weights;
    weights = at > last ? V{} : weights;
  }
  V place = at;
  if (kPadding == GridPadding::reflection) {
    turn_back(-edge, last + edge, place);
    truncate(place);
  }
  clamp_to(0, last, place);
  const Whole<V> whole = __builtin_convertvector(place, Whole<V>);
  std::memcpy(index, &whole, sizeof whole);
  store(weights, kept);
}

// The kernel of Keys in Horner's form, of distances from 1 to 2 and from 0 to 1.
constexpr float kKeys = -0.75F;
template <typename V>
PIPIT_INLINE inline void far_weight(V& d) {
  d = ((kKeys * d - 5 * kKeys) * d + 8 * kKeys) * d - 4 * kKeys;
}
template <typename V>
PIPIT_INLINE inline void near_weight(V& d) {
  d = ((kKeys + 2) * d - (kKeys + 3)) * d * d + 1.0F;
}

template <typename V, ResizeMode kMode, GridPadding kPadding>
PIPIT_INLINE inline void find_taps(const SampledAxis& axis, const float* positions, AxisTaps& taps) {
  const auto size = static_cast<float>(axis.extent);
  const float edge = axis.a.align_corners ? 0 : 0.5F;
  for (std::int64_t p = 0; p < kPositions; p += kLanes<V>) {
    V n;
    load(positions + p, n);
    V x = axis.a.align_corners ? (n + 1.0F) / 2.0F * (size - 1) : ((n + 1.0F) * size - 1.0F) / 2.0F;
    const Whole<V> number = x == x;
    x = number ? x : V{};
    clamp_to(-kFarOutside, kFarOutside, x);
    if (kMode == ResizeMode::nearest) round_to_even(x);
    // As PyTorch and ONNX Runtime have it, cubic repeats the edge instead.
    if (kPadding == GridPadding::border && kMode != ResizeMode::cubic) {
      V inside = x;
      clamp_to(0, size - 1, inside);
      x = x < -edge ? inside : x;
      x = x > size - 1 + edge ? inside : x;
    }
    if (kPadding == GridPadding::reflection) turn_back(-edge, size - 1 + edge, x);
    V first = x;
    if (kMode == ResizeMode::nearest) truncate(first);
    if (kMode != ResizeMode::nearest) round_down(first);
    V t = x - first;
    // What is no number is the first element, or outside.
    constexpr float kNowhere = kPadding == GridPadding::zeros ? -8 : 0;
    first = number ? first : V{} + kNowhere;
    t = number ? t : V{};
    if (kMode == ResizeMode::nearest) {
      set_taps<V, kPadding>(axis, first, V{} + 1.0F, taps.index[0] + p, taps.weight[0] + p);
    } else if (kMode == ResizeMode::linear) {
      set_taps<V, kPadding>(axis, first, 1.0F - t, taps.index[0] + p, taps.weight[0] + p);
      set_taps<V, kPadding>(axis, first + 1.0F, t, taps.index[1] + p, taps.weight[1] + p);
    } else {
      V weights[4] = {t + 1.0F, t, 1.0F - t, 2.0F - t};
      far_weight(weights[0]);
      near_weight(weights[1]);
      near_weight(weights[2]);
      far_weight(weights[3]);
      for (int i = 0; i < 4; ++i) {
        set_taps<V, kPadding>(axis, first + static_cast<float>(i - 1), weights[i], taps.index[i] + p,
                              taps.weight[i] + p);
      }
    }
  }
}

// Every tap of an axis with every corner of the axes before: corners [taps * corners][positions].
PIPIT_INLINE inline void cross(const AxisTaps& taps, int count, std::int32_t step, std::int64_t corners,
                               std::int32_t* offsets, float* weights) {
  // From the last tap on, as the first one replaces what the others are made of.
  for (int tap = count - 1; tap >= 0; --tap) {
    for (std::int64_t k = 0; k < corners; ++k) {
      const std::int64_t from = k * kPositions, to = (tap * corners + k) * kPositions;
      PIPIT_INDEPENDENT
      for (std::int64_t p = 0; p < kPositions; ++p) {
        offsets[to + p] = offsets[from + p] + taps.index[tap][p] * step;
        weights[to + p] = weights[from + p] * taps.weight[tap][p];
      }
    }
  }
}

// y[p] = sum over corners of weight times x, for positions up to a whole number of kMixed. Elements that weigh nothing
// do not count, whatever they are.
constexpr std::int64_t kMixed = 16;
struct Mix {
  const float* x = nullptr;
  const std::int32_t* offsets = nullptr;  // [corners][kPositions]
  const float* weights = nullptr;         // likewise
  std::int64_t corners = 0;
  std::int64_t positions = 0;
};

void mix_scalars(const Mix& mix, float* y) {
  for (std::int64_t p = 0; p < mix.positions; ++p) {
    float sum = 0;
    for (std::int64_t k = p; k < p + mix.corners * kPositions; k += kPositions)
      sum += mix.weights[k] != 0 ? mix.weights[k] * mix.x[mix.offsets[k]] : 0;
    y[p] = sum;
  }
}

#if PIPIT_ISA_X86
// GCC gathers for no processor in general, since many are slow at it; those with AVX-512 are not.
__attribute__((target("avx512f"))) void mix_gathered(const Mix& mix, float* y) {
  for (std::int64_t p = 0; p < mix.positions; p += kMixed) {
    __m512 sum = _mm512_setzero_ps();
    for (std::int64_t k = p; k < p + mix.corners * kPositions; k += kPositions) {
      const __m512 weight = _mm512_loadu_ps(mix.weights + k);
      const __mmask16 counts = _mm512_cmp_ps_mask(weight, _mm512_setzero_ps(), _CMP_NEQ_UQ);
      const __m512 x = _mm512_mask_i32gather_ps(_mm512_setzero_ps(), counts,
                                                _mm512_loadu_si512(mix.offsets + k), mix.x, sizeof(float));
      sum = _mm512_add_ps(sum, _mm512_mul_ps(weight, x));
    }
    _mm512_storeu_ps(y + p, sum);
  }
}
#endif

auto chosen_mix() {
#if PIPIT_ISA_X86
  if (chosen_isa() >= Isa::avx512) return mix_gathered;
#endif
  return mix_scalars;
}

using FindTaps = void (*)(const SampledAxis& axis, const float* positions, AxisTaps& taps);
template <GridPadding kPadding>
FindTaps find_taps_of(ResizeMode mode) {
  if (mode == ResizeMode::nearest)
    return simd<find_taps<ShortVector, ResizeMode::nearest, kPadding>,
                find_taps<Vector, ResizeMode::nearest, kPadding>>;
  if (mode == ResizeMode::linear)
    return simd<find_taps<ShortVector, ResizeMode::linear, kPadding>,
                find_taps<Vector, ResizeMode::linear, kPadding>>;
  return simd<find_taps<ShortVector, ResizeMode::cubic, kPadding>,
              find_taps<Vector, ResizeMode::cubic, kPadding>>;
}
FindTaps find_taps_of(const GridSampleAttributes& a) {
  if (a.padding == GridPadding::zeros) return find_taps_of<GridPadding::zeros>(a.mode);
  if (a.padding == GridPadding::border) return find_taps_of<GridPadding::border>(a.mode);
  return find_taps_of<GridPadding::reflection>(a.mode);
}

class GridSampler final : public Kernel {
 public:
  explicit GridSampler(const NodeSpec& spec)
      : a_(layer_as<GridSample>(spec.layer).attributes()),
        find_taps_(find_taps_of(a_)),
        x_(spec.inputs[0]->shape),
        threads_(spec.threads) {
    for (int d = 2; d < x_.rank(); ++d) {
      plane_ *= x_[d];
      corners_ *= max_grid_taps(a_.mode);
      positions_ *= spec.outputs[0].shape[d];
    }
  }

  std::size_t scratch_bytes() const override { return worker_bytes() * static_cast<std::size_t>(threads_); }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const std::int64_t chunks = (positions_ + kPositions - 1) / kPositions;
    context.pool.parallel_for(x_[0] * chunks, [&](std::int64_t task, int worker) {
      const std::int64_t sample = task / chunks;
      const std::int64_t first = task % chunks * kPositions;
      const std::int64_t count = std::min(kPositions, positions_ - first);
      auto* offsets = reinterpret_cast<std::int32_t*>(context.scratch +
                                                      static_cast<std::size_t>(worker) * worker_bytes());
      auto* weights = reinterpret_cast<float*>(offsets + kPositions * corners_);
      const int axes = x_.rank() - 2;
      find_corners(inputs[1].as<float>() + (sample * positions_ + first) * axes, count, offsets, weights);
      Mix mix{nullptr, offsets, weights, corners_, round_up(count, kMixed)};
      for (std::int64_t c = 0; c < x_[1]; ++c) {
        mix.x = inputs[0].as<float>() + (sample * x_[1] + c) * plane_;
        float* y = outputs[0].as<float>() + (sample * x_[1] + c) * positions_ + first;
        float padded[kPositions];
        mix_(mix, count == mix.positions ? y : padded);
        if (count != mix.positions) std::copy_n(padded, count, y);
      }
    });
  }

 private:
  std::size_t worker_bytes() const {
    return worker_stride(static_cast<std::size_t>(kPositions * corners_) *
                         (sizeof(std::int32_t) + sizeof(float)));
  }

  // Positions after the last one are in the middle.
  void find_corners(const float* grid, std::int64_t count, std::int32_t* offsets, float* weights) const {
    std::fill_n(offsets, kPositions, 0);
    std::fill_n(weights, kPositions, 1.0F);
    const std::int64_t axes = x_.rank() - 2;
    std::int64_t corners = 1;
    std::int64_t step = 1;
    AxisTaps taps;
    for (int d = x_.rank() - 1; d >= 2; --d) {
      float positions[kPositions] = {};
      for (std::int64_t p = 0; p < count; ++p) positions[p] = grid[p * axes + x_.rank() - 1 - d];
      find_taps_({a_, x_[d]}, positions, taps);
      simd<cross>(taps, max_grid_taps(a_.mode), static_cast<std::int32_t>(step), corners, offsets, weights);
      corners *= max_grid_taps(a_.mode);
      step *= x_[d];
    }
  }

  GridSampleAttributes a_;
  FindTaps find_taps_;
  void (*mix_)(const Mix& mix, float* y) = chosen_mix();
  Shape x_;
  int threads_;
  std::int64_t plane_ = 1;
  std::int64_t positions_ = 1;
  std::int64_t corners_ = 1;
};

}  // namespace

void register_cpu_grid_sample(Registry& registry) {
  registry.add(GridSample::kType, DeviceKind::cpu, {"corners", refuse_grid_sample, [](const NodeSpec& spec) {
                                                      return std::make_unique<GridSampler>(spec);
                                                    }});
}

}  // namespace pipit::internal
