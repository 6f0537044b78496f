#include "layers/ops/reduce.h"

#include <cmath>

#include "layers/common/dispatch.h"
#include "layers/common/integer.h"
#include "layers/common/layer_kernel.h"
#include "layers/common/strided_loop.h"
#include "layers/ops/operands.h"
#include "layers/reference/reference.h"

namespace pipit::internal {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The values that one output element reduces: x[0] and what the loop reaches from there.
template <typename T>
struct Group {
  const T* x;
  const StridedLoop<1>& loop;

  std::int64_t size() const { return loop.size(); }
  template <typename Value, typename Step>
  Value fold(Value value, Step step) const {
    loop.for_each([&](const auto& at) { value = step(value, static_cast<Value>(x[at[0]])); });
    return value;
  }
};

template <typename T>
double reduce_floats(ReduceKind kind, const Group<T>& group) {
  switch (kind) {
    case ReduceKind::sum:
      return group.fold(0.0, [](double s, double v) { return s + v; });
    case ReduceKind::mean:
      return reduce_floats(ReduceKind::sum, group) / static_cast<double>(group.size());
    case ReduceKind::max:
      return group.fold(-kInfinity, [](double m, double v) { return v > m || std::isnan(v) ? v : m; });
    case ReduceKind::min:
      return group.fold(kInfinity, [](double m, double v) { return v < m || std::isnan(v) ? v : m; });
    case ReduceKind::prod:
      return group.fold(1.0, [](double p, double v) { return p * v; });
    case ReduceKind::l1:
      return group.fold(0.0, [](double s, double v) { return s + std::abs(v); });
    case ReduceKind::l2:
      return std::sqrt(reduce_floats(ReduceKind::sum_square, group));
    case ReduceKind::sum_square:
      return group.fold(0.0, [](double s, double v) { return s + v * v; });
    case ReduceKind::log_sum:
      return std::log(reduce_floats(ReduceKind::sum, group));
    case ReduceKind::log_sum_exp: {
      // Shifted by the maximum, so that no exponential overflows.
      const double top = reduce_floats(ReduceKind::max, group);
      if (!std::isfinite(top)) return top;
      return top + std::log(group.fold(0.0, [top](double s, double v) { return s + std::exp(v - top); }));
    }
  }
  fail("Reduce {}: no such reduction", reduce_name(kind));
}

template <typename T>
std::int64_t reduce_integers(ReduceKind kind, const Group<T>& group) {
  using I = std::int64_t;
  switch (kind) {
    case ReduceKind::sum:
      return group.fold(I{0}, wrapping::add);
    case ReduceKind::mean:
      return wrapping::divide(reduce_integers(ReduceKind::sum, group), group.size());
    case ReduceKind::max:
      return group.fold(std::numeric_limits<I>::min(), [](I m, I v) { return std::max(m, v); });
    case ReduceKind::min:
      return group.fold(std::numeric_limits<I>::max(), [](I m, I v) { return std::min(m, v); });
    case ReduceKind::prod:
      return group.fold(I{1}, wrapping::multiply);
    case ReduceKind::l1:
      return group.fold(I{0}, [](I s, I v) { return wrapping::add(s, wrapping::absolute(v)); });
    case ReduceKind::sum_square:
      return group.fold(I{0}, [](I s, I v) { return wrapping::add(s, wrapping::multiply(v, v)); });
    default:
      fail("Reduce {}: not supported on integers", reduce_name(kind));
  }
}

// Loops over the kept dimensions (operands: output, input) and over the reduced ones (input).
struct ReduceLoops {
  StridedLoop<2> kept;
  StridedLoop<1> reduced;

  ReduceLoops(const TensorDesc& x, const TensorDesc& y, const std::array<bool, kMaxRank>& marks,
              bool keep_dims) {
    const Strides from = x.strides();
    const Strides to = y.strides();
    std::size_t out = 0;
    for (int axis = 0; axis < x.shape.rank(); ++axis) {
      const auto d = static_cast<std::size_t>(axis);
      if (marks[d]) {
        reduced.add(x.shape[axis], {from[d]});
      } else {
        kept.add(x.shape[axis], {to[out], from[d]});
      }
      if (!marks[d] || keep_dims) ++out;
    }
  }
};

void run_reduce(const Reduce& layer, std::span<const ConstTensorView> inputs,
                std::span<const TensorView> outputs, const RunContext& /*context*/) {
  const TensorDesc& desc = inputs[0].desc;
  const ReduceAttributes& a = layer.attributes();
  const ReduceLoops loops(desc, outputs[0].desc, reduced_dims(a, desc.shape), a.keep_dims);
  with_dtype(desc.dtype, [&]<typename T>(std::type_identity<T>) {
    const T* x = inputs[0].as<T>();
    T* y = outputs[0].as<T>();
    loops.kept.for_each([&](const auto& at) {
      const Group<T> group{x + at[1], loops.reduced};
      if constexpr (std::is_floating_point_v<T>) {
        y[at[0]] = static_cast<T>(reduce_floats(a.kind, group));
      } else {
        y[at[0]] = static_cast<T>(reduce_integers(a.kind, group));
      }
    });
  });
}

// True where v beats the best so far; NaN beats every number.
template <typename T>
bool beats(T v, T best, bool minimum) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(v) || std::isnan(best)) return std::isnan(v) && !std::isnan(best);
  }
  return minimum ? v < best : v > best;
}

void run_arg_max(const ArgMax& layer, std::span<const ConstTensorView> inputs,
                 std::span<const TensorView> outputs, const RunContext& /*context*/) {
  const TensorDesc& desc = inputs[0].desc;
  const ArgMaxAttributes& a = layer.attributes();
  std::array<bool, kMaxRank> marks{};
  marks[static_cast<std::size_t>(normalize_axis(a.axis, desc.shape.rank(), "ArgMax"))] = true;
  const ReduceLoops loops(desc, outputs[0].desc, marks, a.keep_dims);
  auto* y = outputs[0].as<std::int64_t>();
  with_dtype(desc.dtype, [&]<typename T>(std::type_identity<T>) {
    const T* x = inputs[0].as<T>();
    loops.kept.for_each([&](const auto& at) {
      std::int64_t best = 0;
      T best_value{};
      std::int64_t position = 0;
      loops.reduced.for_each([&](const auto& step) {
        const T value = x[at[1] + step[0]];
        const bool ties = a.select_last && !beats(best_value, value, a.minimum);
        if (position == 0 || ties || beats(value, best_value, a.minimum)) {
          best = position;
          best_value = value;
        }
        ++position;
      });
      y[at[0]] = best;
    });
  });
}

}  // namespace

void register_reference_reduce(Registry& registry) {
  add_layer_kernel<Reduce>(registry, kReference, refuse_reduced_precision, run_reduce);
  add_layer_kernel<ArgMax>(registry, kReference, refuse_reduced_precision, run_arg_max);
}

}  // namespace pipit::internal
