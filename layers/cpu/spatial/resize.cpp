// Linear resizing of any dimensions, in any memory order. (Nearest pixels are only moved:
// layers/cpu/movement/table_movement.cpp.)
#include "layers/ops/resize.h"

#include <array>
#include <limits>
#include <utility>
#include <vector>

#include "engine/platform/simd.h"
#include "layers/common/layer_kernel.h"
#include "layers/cpu/families.h"
#include "layers/cpu/work_sharing.h"
#include "layers/ops/operands.h"

namespace pipit::internal {

namespace {

Refusal refuse_resize(const NodeSpec& spec) {
  if (Refusal reason = refuse_unless_f32(spec)) return reason;
  if (layer_as<Resize>(spec.layer).attributes().mode != ResizeMode::linear)
    return "only linear mixes are computed";
  if (is_filtered(layer_as<Resize>(spec.layer).attributes())) return "more than two neighbours are mixed";
  const TensorDesc& x = *spec.inputs[0];
  const TensorDesc& y = spec.outputs[0];
  if (!(is_channels_last(x) && is_channels_last(y)) && !(is_row_major(x) && is_row_major(y))) {
    return "input and output must have one layout";
  }
  if (x.elements() > std::numeric_limits<std::int32_t>::max()) return "the input has 2^31 elements or more";
  return std::nullopt;
}

// Weighted rows of x that one row of the result is mixed from.
constexpr std::size_t kMaxCorners = std::size_t{1} << (kMaxRank - 1);
struct Corners {
  std::size_t count = 0;
  std::array<const float*, kMaxCorners> rows;
  std::array<float, kMaxCorners> weights;
};

// The innermost axis that is resized, with `inner` floats at every position.
struct RowTaps {
  std::int64_t inner = 1;
  std::vector<std::int32_t> low, high;  // offsets, of every position, or of every float where these are few
  std::vector<float> weights;
};

PIPIT_INLINE inline void mix_rows(const Corners& corners, float* y, std::int64_t count) {
  const float *a = corners.rows[0], *b = corners.rows[1];
  const float u = corners.weights[0], v = corners.weights[1];
  for (std::int64_t i = 0; i < count; ++i) y[i] = u * a[i] + v * b[i];
  for (std::size_t c = 2; c < corners.count; ++c) {
    const float* x = corners.rows[c];
    const float w = corners.weights[c];
    for (std::int64_t i = 0; i < count; ++i) y[i] += w * x[i];
  }
}

PIPIT_INLINE inline void mix_floats(const float* x, const RowTaps& taps, float* y) {
  const std::int32_t *low = taps.low.data(), *high = taps.high.data();
  const float* weights = taps.weights.data();
  const auto count = static_cast<std::int64_t>(taps.weights.size());
  for (std::int64_t i = 0; i < count; ++i) y[i] = (1 - weights[i]) * x[low[i]] + weights[i] * x[high[i]];
}

// Along the row, and between two rows at once: each element of x is read once.
PIPIT_INLINE inline void mix_pixels(const Corners& corners, const RowTaps& taps, float* y) {
  const std::int64_t inner = taps.inner;
  const float *top = corners.rows[0], *bottom = corners.rows[1];
  const float u = corners.weights[0], v = corners.weights[1];
  for (std::size_t p = 0; p < taps.weights.size(); ++p, y += inner) {
    const std::int64_t low = taps.low[p], high = taps.high[p];
    const float w = taps.weights[p];
    if (corners.count == 1) {
      for (std::int64_t i = 0; i < inner; ++i) y[i] = (1 - w) * top[low + i] + w * top[high + i];
    } else if (w == 0) {
      for (std::int64_t i = 0; i < inner; ++i) y[i] = u * top[low + i] + v * bottom[low + i];
    } else {
      for (std::int64_t i = 0; i < inner; ++i) {
        const float above = (1 - w) * top[low + i] + w * top[high + i];
        const float below = (1 - w) * bottom[low + i] + w * bottom[high + i];
        y[i] = u * above + v * below;
      }
    }
  }
}

class LinearResize final : public Kernel {
 public:
  explicit LinearResize(const NodeSpec& spec) : threads_(spec.threads) {
    const ResizeAttributes& a = layer_as<Resize>(spec.layer).attributes();
    const TensorDesc& x = *spec.inputs[0];
    const TensorDesc& y = spec.outputs[0];
    const bool by_rows = is_row_major(x) && is_row_major(y);
    std::vector<int> order;  // of the axes in memory
    for (int axis = 0; axis < a.rank; ++axis) {
      if (by_rows || axis != 1) order.push_back(axis);
    }
    if (!by_rows) order.push_back(1);
    // What is not resized at the end belongs to every position.
    while (!order.empty() && !resizes_axis(a, order.back(), x.shape[order.back()])) {
      taps_.inner *= x.shape[order.back()];
      order.pop_back();
    }
    if (order.empty()) order.push_back(0), taps_.inner /= std::max<std::int64_t>(1, x.shape[0]);
    set_row(axis_taps(a, order.back(), x.shape, y.shape));
    row_floats_ = x.shape[order.back()] * taps_.inner;
    std::int64_t step = row_floats_;
    for (std::size_t d = order.size() - 1; d-- > 0;) {
      outer_.insert(outer_.begin(), {step, axis_taps(a, order[d], x.shape, y.shape)});
      rows_ *= y.shape[order[d]];
      step *= x.shape[order[d]];
    }
    grows_ = rows_ * row_floats_ > x.elements();
  }
  std::size_t scratch_bytes() const override { return worker_bytes() * static_cast<std::size_t>(threads_); }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    if (outputs[0].desc.elements() == 0) return;
    const float* x = inputs[0].as<float>();
    const std::int64_t length = pixels_ * taps_.inner;
    const std::int64_t step = rows_per_chunk(length);
    context.pool.parallel_for((rows_ + step - 1) / step, [&](std::int64_t chunk, int worker) {
      Stage stage;
      stage.rows =
          reinterpret_cast<float*>(context.scratch + static_cast<std::size_t>(worker) * worker_bytes());
      for (std::int64_t row = chunk * step; row < std::min(rows_, (chunk + 1) * step); ++row) {
        run_row(corners_of(x, row), stage, outputs[0].as<float>() + row * length);
      }
    });
  }

 private:
  // A register of AVX-512. Positions with fewer floats are interpolated one float at a time.
  static constexpr std::int64_t kMinRowFloats = 16;
  struct Axis {
    std::int64_t step;  // floats between positions of x
    std::vector<LinearTap> taps;
  };

  static std::vector<LinearTap> axis_taps(const ResizeAttributes& a, int axis, const Shape& x,
                                          const Shape& y) {
    std::vector<LinearTap> taps;
    for (std::int64_t i = 0; i < y[axis]; ++i) {
      taps.push_back(resizes_axis(a, axis, x[axis])
                         ? linear_tap(source_coordinate(a, axis, i, x[axis], y[axis]), x[axis])
                         : LinearTap{i, i, 0});
    }
    return taps;
  }

  void set_row(const std::vector<LinearTap>& taps) {
    pixels_ = std::ssize(taps);
    const std::int64_t each = taps_.inner < kMinRowFloats ? taps_.inner : 1;
    for (const LinearTap& tap : taps) {
      const std::int64_t high =
          tap.weight == 0 ? tap.low : tap.high;  // what counts for nothing may be infinite
      for (std::int64_t i = 0; i < each; ++i) {
        taps_.low.push_back(static_cast<std::int32_t>(tap.low * taps_.inner + i));
        taps_.high.push_back(static_cast<std::int32_t>(high * taps_.inner + i));
        taps_.weights.push_back(tap.weight);
      }
    }
  }

  Corners corners_of(const float* x, std::int64_t row) const {
    Corners corners;
    corners.count = 1;
    corners.rows[0] = x;
    corners.weights[0] = 1;
    for (std::size_t d = outer_.size(); d-- > 0;) {
      const auto& [step, taps] = outer_[d];
      const LinearTap& tap = taps[static_cast<std::size_t>(row % std::ssize(taps))];
      row /= std::ssize(taps);
      const std::size_t count = corners.count;
      for (std::size_t c = 0; c < count; ++c) {
        if (tap.weight != 0) {
          corners.rows[corners.count] = corners.rows[c] + tap.high * step;
          corners.weights[corners.count++] = corners.weights[c] * tap.weight;
        }
        corners.rows[c] += tap.low * step;
        corners.weights[c] *= 1 - tap.weight;
      }
    }
    return corners;
  }

  // A row of x that is mixed from several; or rows of x that are resized, each for several rows of the result.
  struct Stage {
    float* rows = nullptr;
    const float* sources[2] = {};
  };

  std::size_t worker_bytes() const {
    return worker_stride(static_cast<std::size_t>(std::max(row_floats_, 2 * pixels_ * taps_.inner)) *
                         sizeof(float));
  }

  const float* resized(const float* row, const float* other, Stage& stage) const {
    const int slot = stage.sources[0] == row || (stage.sources[1] != row && stage.sources[1] == other) ? 0
                     : stage.sources[1] == row || stage.sources[0] == other                            ? 1
                                                                                                       : 0;
    float* to = stage.rows + slot * pixels_ * taps_.inner;
    if (stage.sources[slot] != row) simd<mix_floats>(row, taps_, to);
    stage.sources[slot] = row;
    return to;
  }

  void run_row(Corners corners, Stage& stage, float* y) const {
    const bool few = taps_.inner < kMinRowFloats;
    if (few && grows_ && corners.count == 2) {
      const auto [first, second] = std::pair(corners.rows[0], corners.rows[1]);
      corners.rows[0] = resized(first, second, stage);
      corners.rows[1] = resized(second, first, stage);
      return simd<mix_rows>(corners, y, pixels_ * taps_.inner);
    }
    if (corners.count > 1 && (few || corners.count > 2)) {
      simd<mix_rows>(corners, stage.rows, row_floats_);
      corners.count = 1;
      corners.rows[0] = stage.rows;
      stage.sources[0] = stage.sources[1] = nullptr;
    }
    if (few) {
      simd<mix_floats>(corners.rows[0], taps_, y);
    } else {
      simd<mix_pixels>(corners, taps_, y);
    }
  }

  int threads_;
  RowTaps taps_;
  std::int64_t pixels_ = 0;      // of a row of the result
  std::int64_t row_floats_ = 0;  // of a row of x
  std::int64_t rows_ = 1;        // of the result
  bool grows_ = false;           // it has more rows than x
  std::vector<Axis> outer_;
};

}  // namespace

void register_cpu_resize(Registry& registry) {
  registry.add(Resize::kType, DeviceKind::cpu, {"linear", refuse_resize, [](const NodeSpec& spec) {
                                                  return std::make_unique<LinearResize>(spec);
                                                }});
}

}  // namespace pipit::internal
