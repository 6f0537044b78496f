// Reductions of floats over any dimensions, in any memory order.
#include "layers/ops/reduce.h"

#include <bit>
#include <cmath>
#include <limits>

#include "engine/platform/simd.h"
#include "layers/common/layer_kernel.h"
#include "layers/cpu/families.h"
#include "layers/cpu/reduction/reduction_loops.h"
#include "layers/cpu/vector/vector_math.h"
#include "layers/ops/operands.h"

namespace pipit::internal {

namespace {

constexpr std::int64_t kLanes = kReducedLanes;  // four AVX-512 registers of doubles

// How values are accumulated: sums and products in double, extrema in float (NaN wins).
struct Sum {
  using Accumulator = double;
  static constexpr double kStart = 0;
  PIPIT_INLINE static double add(double sum, double v, double /*origin*/) { return sum + v; }
  PIPIT_INLINE static double join(double a, double b) { return a + b; }
};
struct SumOfMagnitudes : Sum {
  PIPIT_INLINE static double add(double sum, double v, double /*origin*/) { return sum + std::abs(v); }
};
struct SumOfSquares : Sum {
  PIPIT_INLINE static double add(double sum, double v, double /*origin*/) { return sum + v * v; }
};
struct SumOfExponentials : Sum {
  PIPIT_INLINE static double add(double sum, float v, float origin) {
    return sum + static_cast<double>(vector_math::exp(v - origin));
  }
};
struct Product {
  using Accumulator = double;
  static constexpr double kStart = 1;
  PIPIT_INLINE static double add(double product, double v, double /*origin*/) { return product * v; }
  PIPIT_INLINE static double join(double a, double b) { return a * b; }
};
struct Maximum {
  using Accumulator = float;
  static constexpr float kStart = -std::numeric_limits<float>::infinity();
  PIPIT_INLINE static float add(float best, float v, float /*origin*/) { return join(best, v); }
  PIPIT_INLINE static float join(float best, float v) { return v > best || v != v ? v : best; }
};
struct Minimum {
  using Accumulator = float;
  static constexpr float kStart = std::numeric_limits<float>::infinity();
  PIPIT_INLINE static float add(float best, float v, float /*origin*/) { return join(best, v); }
  PIPIT_INLINE static float join(float best, float v) { return v < best || v != v ? v : best; }
};

// What was accumulated so far: in double or in float.
struct Lanes {
  double sums[kLanes];
  float extrema[kLanes];
  double* of(double /*start*/) { return sums; }
  float* of(float /*start*/) { return extrema; }
};

// A row of neighbours: element i goes to lane i % kLanes.
template <typename Op>
PIPIT_INLINE inline void add_row(const float* x, const Reduction& part, const float* origins, Lanes& lanes) {
  typename Op::Accumulator sums[kLanes];
  auto* kept = lanes.of(Op::kStart);
  for (std::int64_t k = 0; k < kLanes; ++k) sums[k] = kept[k];
  const float origin = origins[0];
  const std::int64_t n = part.depth;
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (std::int64_t k = 0; k < kLanes; ++k) sums[k] = Op::add(sums[k], x[i + k], origin);
  }
  for (std::int64_t k = 0; k < kLanes; ++k) kept[k] = sums[k];
  for (std::int64_t k = 0; i + k < n; ++k) kept[k] = Op::add(kept[k], x[i + k], origin);
}

// Rows of results, one after the other.
template <typename Op>
PIPIT_INLINE inline void add_columns(const float* x, const Reduction& part, const float* origins,
                                     Lanes& lanes) {
  typename Op::Accumulator sums[kLanes];
  auto* kept = lanes.of(Op::kStart);
  for (std::int64_t k = 0; k < kLanes; ++k) sums[k] = kept[k];
  const std::int64_t columns = part.columns, step = part.column_step;
  for (std::int64_t r = 0; r < part.depth; ++r, x += part.depth_step) {
    if (step == 1 && columns == kLanes) {
      for (std::int64_t k = 0; k < kLanes; ++k) sums[k] = Op::add(sums[k], x[k], origins[k]);
    } else if (step == 1) {
      for (std::int64_t k = 0; k < columns; ++k) sums[k] = Op::add(sums[k], x[k], origins[k]);
    } else if (columns == kLanes) {
      for (std::int64_t k = 0; k < kLanes; ++k) sums[k] = Op::add(sums[k], x[k * step], origins[k]);
    } else {
      for (std::int64_t k = 0; k < columns; ++k) sums[k] = Op::add(sums[k], x[k * step], origins[k]);
    }
  }
  for (std::int64_t k = 0; k < kLanes; ++k) kept[k] = sums[k];
}

enum class Step : std::uint8_t { start, add, finish };

// One step from a Reduction to its results. A row's lanes are joined in a fixed tree.
template <typename Op>
PIPIT_INLINE inline void take_step(Step step, const float* x, const Reduction& part, const float* origins,
                                   Lanes& lanes, double* results) {
  if (step == Step::add) {
    if (part.row) return add_row<Op>(x, part, origins, lanes);
    return add_columns<Op>(x, part, origins, lanes);
  }
  auto* kept = lanes.of(Op::kStart);
  if (step == Step::start) {
    for (std::int64_t k = 0; k < kLanes; ++k) kept[k] = Op::kStart;
    return;
  }
  for (std::int64_t half = kLanes / 2; part.row && half > 0; half /= 2) {
    for (std::int64_t k = 0; k < half; ++k) kept[k] = Op::join(kept[k], kept[k + half]);
  }
  for (std::int64_t k = 0; k < part.columns; ++k) results[k] = kept[k];
}

PIPIT_INLINE inline void take_step_of(ReduceKind kind, Step step, const float* x, const Reduction& part,
                                      const float* origins, Lanes& lanes, double* results) {
  switch (kind) {
    case ReduceKind::sum:
    case ReduceKind::mean:
    case ReduceKind::log_sum:
      return take_step<Sum>(step, x, part, origins, lanes, results);
    case ReduceKind::l1:
      return take_step<SumOfMagnitudes>(step, x, part, origins, lanes, results);
    case ReduceKind::l2:
    case ReduceKind::sum_square:
      return take_step<SumOfSquares>(step, x, part, origins, lanes, results);
    case ReduceKind::log_sum_exp:
      return take_step<SumOfExponentials>(step, x, part, origins, lanes, results);
    case ReduceKind::prod:
      return take_step<Product>(step, x, part, origins, lanes, results);
    case ReduceKind::max:
      return take_step<Maximum>(step, x, part, origins, lanes, results);
    case ReduceKind::min:
      return take_step<Minimum>(step, x, part, origins, lanes, results);
  }
}

void reduce_part(ReduceKind kind, const float* x, const Reduction& part, const float* origins,
                 double* results) {
  Lanes lanes;
  simd<take_step_of>(kind, Step::start, x, part, origins, lanes, results);
  part.outer->for_each(
      [&](const auto& at) { simd<take_step_of>(kind, Step::add, x + at[0], part, origins, lanes, results); });
  simd<take_step_of>(kind, Step::finish, x, part, origins, lanes, results);
}

float finish(ReduceKind kind, double value, float origin, std::int64_t count) {
  if (kind == ReduceKind::mean) value /= static_cast<double>(count);
  if (kind == ReduceKind::l2) value = std::sqrt(value);
  if (kind == ReduceKind::log_sum) value = std::log(value);
  // Infinite and NaN maxima are the result: e^(x - infinity) says nothing.
  if (kind == ReduceKind::log_sum_exp) value = std::isfinite(origin) ? origin + std::log(value) : origin;
  return static_cast<float>(value);
}

class ReduceKernel final : public Kernel {
 public:
  explicit ReduceKernel(const NodeSpec& spec)
      : kind_(attributes(spec).kind),
        loops_(*spec.inputs[0], spec.outputs[0], reduced_dims(attributes(spec), spec.inputs[0]->shape),
               attributes(spec).keep_dims) {}

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const auto* x = inputs[0].as<float>();
    auto* y = outputs[0].as<float>();
    loops_.for_each(context.pool,
                    [&](const Reduction& part, std::int64_t from, std::int64_t to, std::int64_t step) {
                      double results[kLanes];
                      float origins[kLanes] = {};  // maxima, so that no exponential overflows
                      if (kind_ == ReduceKind::log_sum_exp) {
                        reduce_part(ReduceKind::max, x + from, part, origins, results);
                        for (std::int64_t k = 0; k < part.columns; ++k)
                          origins[k] = static_cast<float>(results[k]);
                      }
                      reduce_part(kind_, x + from, part, origins, results);
                      for (std::int64_t k = 0; k < part.columns; ++k) {
                        y[to + k * step] = finish(kind_, results[k], origins[k], loops_.reduced());
                      }
                    });
  }

 private:
  static const ReduceAttributes& attributes(const NodeSpec& spec) {
    return layer_as<Reduce>(spec.layer).attributes();
  }
  ReduceKind kind_;
  ReductionLoops loops_;
};

Refusal refuse(const NodeSpec& spec) {
  if (Refusal reason = refuse_unless_f32(spec)) return reason;
  if (spec.inputs[0]->elements() == 0) return "the input is empty";
  return std::nullopt;
}

// ---- positions of extrema

// Numbers in their order, all zeros alike and NaN above them.
PIPIT_INLINE inline std::int32_t key_of(float v, std::int32_t flip) {
  const auto bits = std::bit_cast<std::int32_t>(v + 0.0F);
  const std::int32_t ordered = (bits ^ ((bits >> 31) & 0x7fffffff)) ^ flip;
  return v != v ? std::numeric_limits<std::int32_t>::max() : ordered;
}

struct ArgMaxJob {
  const float* x;
  const Reduction& part;
  std::int32_t flip;  // all ones: minima
  bool last;          // of equal ones
};

template <bool Last>
PIPIT_INLINE inline void take(std::int32_t key, std::int32_t position, std::int32_t& best, std::int32_t& at) {
  const bool better = Last ? key >= best : key > best;
  best = better ? key : best;
  at = better ? position : at;
}

template <bool Last>
PIPIT_INLINE inline void arg_max_row(const ArgMaxJob& job, std::int64_t* results) {
  const std::int64_t n = job.part.depth;
  std::int32_t best[kLanes], at[kLanes];
  for (std::int64_t k = 0; k < kLanes; ++k) {
    best[k] = std::numeric_limits<std::int32_t>::min();
    at[k] = static_cast<std::int32_t>(k);
  }
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (std::int64_t k = 0; k < kLanes; ++k)
      take<Last>(key_of(job.x[i + k], job.flip), static_cast<std::int32_t>(i + k), best[k], at[k]);
  }
  for (std::int64_t k = 0; i + k < n; ++k)
    take<Last>(key_of(job.x[i + k], job.flip), static_cast<std::int32_t>(i + k), best[k], at[k]);
  // Lanes that nothing came to have no number's key.
  std::int32_t highest = best[0];
  for (std::int64_t k = 1; k < kLanes; ++k) highest = best[k] > highest ? best[k] : highest;
  std::int32_t first = std::numeric_limits<std::int32_t>::max(), final = -1;
  for (std::int64_t k = 0; k < kLanes; ++k) {
    const std::int32_t low = best[k] == highest ? at[k] : std::numeric_limits<std::int32_t>::max();
    const std::int32_t high = best[k] == highest ? at[k] : -1;
    first = low < first ? low : first;
    final = high > final ? high : final;
  }
  results[0] = Last ? final : first;
}

template <bool Last>
PIPIT_INLINE inline void arg_max_columns(const ArgMaxJob& job, std::int64_t* results) {
  const Reduction& part = job.part;
  const std::int64_t columns = part.columns, step = part.column_step;
  std::int32_t best[kLanes], at[kLanes] = {};
  for (auto& b : best) b = std::numeric_limits<std::int32_t>::min();
  const float* x = job.x;
  for (std::int64_t r = 0; r < part.depth; ++r, x += part.depth_step) {
    const auto position = static_cast<std::int32_t>(r);
    if (step == 1 && columns == kLanes) {
      for (std::int64_t k = 0; k < kLanes; ++k) take<Last>(key_of(x[k], job.flip), position, best[k], at[k]);
    } else if (columns == kLanes) {
      for (std::int64_t k = 0; k < kLanes; ++k)
        take<Last>(key_of(x[k * step], job.flip), position, best[k], at[k]);
    } else {
      for (std::int64_t k = 0; k < columns; ++k)
        take<Last>(key_of(x[k * step], job.flip), position, best[k], at[k]);
    }
  }
  for (std::int64_t k = 0; k < columns; ++k) results[k] = at[k];
}

PIPIT_INLINE inline void arg_max_part(const ArgMaxJob& job, std::int64_t* results) {
  if (job.part.row) return job.last ? arg_max_row<true>(job, results) : arg_max_row<false>(job, results);
  return job.last ? arg_max_columns<true>(job, results) : arg_max_columns<false>(job, results);
}

class ArgMaxKernel final : public Kernel {
 public:
  explicit ArgMaxKernel(const NodeSpec& spec)
      : attributes_(layer_as<ArgMax>(spec.layer).attributes()),
        loops_(*spec.inputs[0], spec.outputs[0], marks(attributes_, spec.inputs[0]->shape.rank()),
               attributes_.keep_dims) {}

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const auto* x = inputs[0].as<float>();
    auto* y = outputs[0].as<std::int64_t>();
    loops_.for_each(context.pool, [&](const Reduction& part, std::int64_t from, std::int64_t to,
                                      std::int64_t step) {
      std::int64_t results[kLanes];
      simd<arg_max_part>({x + from, part, attributes_.minimum ? -1 : 0, attributes_.select_last}, results);
      for (std::int64_t k = 0; k < part.columns; ++k) y[to + k * step] = results[k];
    });
  }

 private:
  static std::array<bool, kMaxRank> marks(const ArgMaxAttributes& a, int rank) {
    std::array<bool, kMaxRank> reduced{};
    reduced[static_cast<std::size_t>(normalize_axis(a.axis, rank, "ArgMax"))] = true;
    return reduced;
  }
  ArgMaxAttributes attributes_;
  ReductionLoops loops_;
};

Refusal refuse_arg_max(const NodeSpec& spec) {
  if (spec.precision != Precision::fp32) return refuse_reduced_precision(spec);
  if (spec.inputs[0]->dtype != DType::f32) return "the input is not f32";
  if (spec.inputs[0]->elements() > std::numeric_limits<std::int32_t>::max())
    return "the input has 2^31 elements or more";
  return std::nullopt;
}

}  // namespace

void register_cpu_reduce(Registry& registry) {
  registry.add(Reduce::kType, DeviceKind::cpu,
               {"vector", refuse, [](const NodeSpec& spec) { return std::make_unique<ReduceKernel>(spec); }});
  registry.add(ArgMax::kType, DeviceKind::cpu, {"vector", refuse_arg_max, [](const NodeSpec& spec) {
                                                  return std::make_unique<ArgMaxKernel>(spec);
                                                }});
}

}  // namespace pipit::internal
