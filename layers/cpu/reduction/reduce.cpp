#include "layers/ops/reduce.h"

#include <cmath>
#include <limits>

#include "engine/platform/simd.h"
#include "layers/common/layer_kernel.h"
#include "layers/common/strided_loop.h"
#include "layers/cpu/families.h"
#include "layers/ops/operands.h"

namespace pipit {

namespace {

// x seen in memory order as [outer, reduced, inner], y as [outer, inner].
struct ReduceGeometry {
  std::int64_t outer = 1;
  std::int64_t reduced = 1;
  std::int64_t inner = 1;
};

// Nothing where the memory order mixes kept and reduced dimensions further.
std::optional<ReduceGeometry> reduce_geometry(const ReduceAttributes& attributes, const TensorDesc& x,
                                              const TensorDesc& y) {
  const auto reduced = reduced_dims(attributes, x.shape);
  const Strides from = x.strides();
  const Strides to = y.strides();
  StridedLoop<2> loop;  // operands: x, y; y stands still along reduced dimensions
  std::size_t out = 0;
  for (int axis = 0; axis < x.shape.rank(); ++axis) {
    const auto d = static_cast<std::size_t>(axis);
    loop.add(x.shape[axis], {from[d], reduced[d] ? 0 : to[out]});
    if (!reduced[d] || attributes.keep_dims) ++out;
  }
  loop.collapse();

  ReduceGeometry geometry;
  int next = 0;
  const auto take = [&](bool is_reduced, std::int64_t& extent) {
    if (next < loop.rank() && (loop.strides(next)[1] == 0) == is_reduced) extent = loop.extent(next++);
  };
  take(false, geometry.outer);
  take(true, geometry.reduced);
  const bool inner_is_dense = next >= loop.rank() || loop.strides(next)[1] == 1;
  take(false, geometry.inner);
  if (next != loop.rank() || !inner_is_dense) return std::nullopt;
  return geometry;
}

// How values are accumulated: sums in double, extrema in float (NaN wins).
struct Sum {
  using Accumulator = double;
  static constexpr double kStart = 0;
  PIPIT_INLINE static double add(double sum, double v) { return sum + v; }
};
struct SumOfMagnitudes : Sum {
  PIPIT_INLINE static double add(double sum, double v) { return sum + std::abs(v); }
};
struct SumOfSquares : Sum {
  PIPIT_INLINE static double add(double sum, double v) { return sum + v * v; }
};
struct Maximum {
  using Accumulator = float;
  static constexpr float kStart = -std::numeric_limits<float>::infinity();
  PIPIT_INLINE static float add(float best, float v) { return v > best || v != v ? v : best; }
};
struct Minimum {
  using Accumulator = float;
  static constexpr float kStart = std::numeric_limits<float>::infinity();
  PIPIT_INLINE static float add(float best, float v) { return v < best || v != v ? v : best; }
};

// Independent partial results per row and columns per task: four AVX-512 registers of doubles.
constexpr std::int64_t kLanes = 32;

// The lanes of one row as one value, in a fixed tree. Partial results are combined by plain addition.
template <typename Op>
PIPIT_INLINE inline auto combine(typename Op::Accumulator* lanes) {
  for (std::int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::int64_t i = 0; i < half; ++i) {
      if constexpr (std::is_base_of_v<Sum, Op>) {
        lanes[i] += lanes[i + half];
      } else {
        lanes[i] = Op::add(lanes[i], lanes[i + half]);
      }
    }
  }
  return lanes[0];
}

// Reduces `n` neighbouring elements.
template <typename Op>
PIPIT_INLINE inline double reduce_row(const float* x, std::int64_t n) {
  typename Op::Accumulator lanes[kLanes];
  for (auto& lane : lanes) lane = Op::kStart;
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (std::int64_t k = 0; k < kLanes; ++k) lanes[k] = Op::add(lanes[k], x[i + k]);
  }
  for (std::int64_t k = 0; i + k < n; ++k) lanes[k] = Op::add(lanes[k], x[i + k]);
  return combine<Op>(lanes);
}

// Reduces `rows` rows that lie `stride` apart to `columns` <= kLanes results.
template <typename Op>
PIPIT_INLINE inline void reduce_columns(const float* x, std::int64_t rows, std::int64_t stride,
                                        std::int64_t columns, double* results) {
  typename Op::Accumulator sums[kLanes];
  for (auto& sum : sums) sum = Op::kStart;
  for (std::int64_t r = 0; r < rows; ++r, x += stride) {
    if (columns == kLanes) {
      for (std::int64_t k = 0; k < kLanes; ++k) sums[k] = Op::add(sums[k], x[k]);
    } else {
      for (std::int64_t k = 0; k < columns; ++k) sums[k] = Op::add(sums[k], x[k]);
    }
  }
  for (std::int64_t k = 0; k < columns; ++k) results[k] = sums[k];
}

// The block of results [first, first + columns) of one outer index.
template <typename Op>
PIPIT_INLINE inline void reduce_block(const float* x, const ReduceGeometry& g, std::int64_t columns,
                                      double* results) {
  if (g.inner == 1) {
    results[0] = reduce_row<Op>(x, g.reduced);
  } else {
    reduce_columns<Op>(x, g.reduced, g.inner, columns, results);
  }
}

PIPIT_INLINE inline void reduce_block_of(ReduceKind kind, const float* x, const ReduceGeometry& g,
                                         std::int64_t columns, double* results) {
  switch (kind) {
    case ReduceKind::sum:
    case ReduceKind::mean:
      return reduce_block<Sum>(x, g, columns, results);
    case ReduceKind::l1:
      return reduce_block<SumOfMagnitudes>(x, g, columns, results);
    case ReduceKind::l2:
    case ReduceKind::sum_square:
      return reduce_block<SumOfSquares>(x, g, columns, results);
    case ReduceKind::max:
      return reduce_block<Maximum>(x, g, columns, results);
    case ReduceKind::min:
      return reduce_block<Minimum>(x, g, columns, results);
    default:
      fail("Reduce {}: no vector loop", reduce_name(kind));
  }
}

float finish(ReduceKind kind, double value, std::int64_t count) {
  if (kind == ReduceKind::mean) value /= static_cast<double>(count);
  if (kind == ReduceKind::l2) value = std::sqrt(value);
  return static_cast<float>(value);
}

class ReduceKernel final : public Kernel {
 public:
  ReduceKernel(ReduceKind kind, const ReduceGeometry& geometry) : kind_(kind), geometry_(geometry) {}

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const auto* x = inputs[0].as<float>();
    auto* y = outputs[0].as<float>();
    const ReduceGeometry& g = geometry_;
    const std::int64_t blocks = (g.inner + kLanes - 1) / kLanes;
    context.pool.parallel_for(g.outer * blocks, [&](std::int64_t task, int /*worker*/) {
      const std::int64_t outer = task / blocks;
      const std::int64_t first = task % blocks * kLanes;
      const std::int64_t columns = std::min(kLanes, g.inner - first);
      double results[kLanes];
      simd<reduce_block_of>(kind_, x + outer * g.reduced * g.inner + first, g, columns, results);
      for (std::int64_t k = 0; k < columns; ++k) {
        y[outer * g.inner + first + k] = finish(kind_, results[k], g.reduced);
      }
    });
  }

 private:
  ReduceKind kind_;
  ReduceGeometry geometry_;
};

Refusal refuse(const NodeSpec& spec) {
  if (Refusal reason = refuse_unless_f32(spec)) return reason;
  const ReduceAttributes& a = layer_as<Reduce>(spec.layer).attributes();
  if (a.kind == ReduceKind::prod || a.kind == ReduceKind::log_sum || a.kind == ReduceKind::log_sum_exp) {
    return std::string(reduce_name(a.kind)) + " is left to the reference";
  }
  if (spec.inputs[0]->elements() == 0) return "the input is empty";
  if (!reduce_geometry(a, *spec.inputs[0], spec.outputs[0])) {
    return "the reduced dimensions are not neighbours in memory";
  }
  return std::nullopt;
}

std::unique_ptr<Kernel> create(const NodeSpec& spec) {
  const ReduceAttributes& a = layer_as<Reduce>(spec.layer).attributes();
  const auto geometry = reduce_geometry(a, *spec.inputs[0], spec.outputs[0]);
  return std::make_unique<ReduceKernel>(a.kind, geometry.value());
}

}  // namespace

void register_cpu_reduce(Registry& registry) {
  registry.add(Reduce::kType, DeviceKind::cpu, {"vector", refuse, create});
}

}  // namespace pipit
