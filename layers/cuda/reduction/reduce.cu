// Reductions over dimensions, and the position of the maximum.
#include "layers/ops/reduce.h"

#include "layers/cuda/families.h"
#include "layers/cuda/reduction/team.cuh"

namespace pipit::internal {

namespace {

using namespace cuda;

template <typename W>
constexpr bool kFloating = !std::is_same_v<W, std::int64_t>;

// What the elements are turned into before they are combined.
template <typename W>
__device__ W prepared(ReduceKind kind, W x, W top) {
  switch (kind) {
    case ReduceKind::l1:
      return x < 0 ? -x : x;
    case ReduceKind::l2:
    case ReduceKind::sum_square:
      return x * x;
    case ReduceKind::log_sum_exp:
      if constexpr (kFloating<W>) return exp(x - top);
      return x;
    default:
      return x;
  }
}

template <typename W>
struct Combine {
  ReduceKind kind;
  __device__ W operator()(W a, W b) const {
    switch (kind) {
      case ReduceKind::max:
        return a > b || a != a ? a : b;
      case ReduceKind::min:
        return a < b || a != a ? a : b;
      case ReduceKind::prod:
        return a * b;
      default:
        return a + b;
    }
  }
};

// The value of no elements.
template <typename W>
__host__ __device__ W neutral(ReduceKind kind) {
  const bool largest = kind == ReduceKind::min;
  if (kind == ReduceKind::prod) return 1;
  if (kind != ReduceKind::max && !largest) return 0;
  if constexpr (kFloating<W>) {
    return largest ? static_cast<W>(INFINITY) : -static_cast<W>(INFINITY);
  } else {
    return largest ? INT64_MAX : INT64_MIN;
  }
}

template <typename W>
__device__ W fold(const Team& team, const DeviceLoop<1>& inside, const In& x, std::int64_t start,
                  ReduceKind kind, W top, W* shared) {
  const Combine<W> combine{kind};
  W value = neutral<W>(kind);
  if (team.active) {
    for (unsigned i = team.lane; i < inside.size; i += team.lanes) {
      int at[1];
      inside.offsets(i, at);
      value = combine(value, prepared(kind, load<W>(x, start + at[0]), top));
    }
  }
  return team.reduce(value, shared, combine);
}

// Loops: groups (output, input), inside (input).
template <typename W>
__global__ void reduce_kernel(TeamPlan plan, DeviceLoop<2> groups, DeviceLoop<1> inside, ReduceKind kind,
                              Out y, In x) {
  __shared__ W shared[kTeamShared];
  const Team team(plan);
  int at[2] = {0, 0};
  if (team.active) groups.offsets(team.group, at);
  W top = 0;
  if (kind == ReduceKind::log_sum_exp) top = fold<W>(team, inside, x, at[1], ReduceKind::max, 0, shared);
  W value = fold<W>(team, inside, x, at[1], kind, top, shared);
  if (!team.active || team.lane != 0) return;
  if (kind == ReduceKind::mean) value /= static_cast<W>(inside.size);
  if constexpr (kFloating<W>) {
    if (kind == ReduceKind::l2) value = sqrt(value);
    if (kind == ReduceKind::log_sum) value = log(value);
    if (kind == ReduceKind::log_sum_exp) value = isfinite(top) ? top + log(value) : top;
  }
  store<W>(y, at[0], value);
}

template <typename W>
struct Best {
  W value;
  std::int64_t position;  // -1: none yet
};

// The better of two candidates: by value, NaN before all numbers, then by position.
template <typename W>
struct Better {
  bool minimum, last;
  __device__ Best<W> operator()(const Best<W>& a, const Best<W>& b) const {
    if (a.position < 0) return b;
    if (b.position < 0) return a;
    if (beats(a.value, b.value)) return a;
    if (beats(b.value, a.value)) return b;
    return (a.position < b.position) != last ? a : b;
  }
  __device__ bool beats(W a, W b) const {
    if (a != a || b != b) return a != a && b == b;
    return minimum ? a < b : a > b;
  }
};

template <typename W>
__global__ void arg_kernel(TeamPlan plan, DeviceLoop<2> groups, DeviceLoop<1> inside, Better<W> better,
                           std::int64_t* y, In x) {
  __shared__ Best<W> shared[kTeamShared];
  const Team team(plan);
  int at[2] = {0, 0};
  if (team.active) groups.offsets(team.group, at);
  Best<W> best{0, -1};
  if (team.active) {
    for (unsigned i = team.lane; i < inside.size; i += team.lanes) {
      int step[1];
      inside.offsets(i, step);
      best = better(best, {load<W>(x, static_cast<std::int64_t>(at[1]) + step[0]), i});
    }
  }
  best = team.reduce(best, shared, better);
  if (team.active && team.lane == 0) y[at[0]] = best.position;
}

struct Loops {
  StridedLoop<2> groups;
  StridedLoop<1> inside;

  Loops(const TensorDesc& x, const TensorDesc& y, const std::array<bool, kMaxRank>& reduced, bool keep_dims) {
    const Strides from = x.strides();
    const Strides to = y.strides();
    std::size_t out = 0;
    for (int axis = 0; axis < x.shape.rank(); ++axis) {
      const auto d = static_cast<std::size_t>(axis);
      if (reduced[d]) {
        inside.add(x.shape[axis], {from[d]});
      } else {
        groups.add(x.shape[axis], {to[out], from[d]});
      }
      if (!reduced[d] || keep_dims) ++out;
    }
    groups.collapse();
    inside.collapse();
  }
};

// f with float, double or int64: what the type is computed in.
template <typename F>
void with_wide(DType type, F&& f) {
  if (is_float_or_half(type)) {
    f(float{});
  } else if (type == DType::f64) {
    f(double{});
  } else {
    f(std::int64_t{});
  }
}

void run_reduce(const Reduce& layer, std::span<const ConstTensorView> inputs,
                std::span<const TensorView> outputs, const RunContext& context) {
  const ReduceAttributes& a = layer.attributes();
  const TensorDesc& x = inputs[0].desc;
  const Loops loops(x, outputs[0].desc, reduced_dims(a, x.shape), a.keep_dims);
  with_wide(x.dtype, [&]<typename W>(W) {
    launch_teams("reduce", reduce_kernel<W>, TeamPlan(loops.groups, 1, loops.inside, 0), context,
                 DeviceLoop<2>(loops.groups), DeviceLoop<1>(loops.inside), a.kind, Out(outputs[0]),
                 In(inputs[0]));
  });
}

void run_arg_max(const ArgMax& layer, std::span<const ConstTensorView> inputs,
                 std::span<const TensorView> outputs, const RunContext& context) {
  const ArgMaxAttributes& a = layer.attributes();
  const TensorDesc& x = inputs[0].desc;
  std::array<bool, kMaxRank> reduced{};
  reduced[static_cast<std::size_t>(normalize_axis(a.axis, x.shape.rank(), "ArgMax"))] = true;
  const Loops loops(x, outputs[0].desc, reduced, a.keep_dims);
  with_wide(x.dtype, [&]<typename W>(W) {
    launch_teams("arg", arg_kernel<W>, TeamPlan(loops.groups, 1, loops.inside, 0), context,
                 DeviceLoop<2>(loops.groups), DeviceLoop<1>(loops.inside),
                 Better<W>{a.minimum, a.select_last}, outputs[0].as<std::int64_t>(), In(inputs[0]));
  });
}

Refusal refuse_reduce(const NodeSpec& spec) {
  if (Refusal reason = refuse_unless_indexable(spec)) return reason;
  const bool integer = !is_float_or_half(spec.inputs[0]->dtype) && spec.inputs[0]->dtype != DType::f64;
  // The CPU throws there.
  if (integer && spec.inputs[0]->elements() == 0) return "the mean of no integers could not be reported";
  return std::nullopt;
}

}  // namespace

void register_cuda_reduce(Registry& registry) {
  add_kernel<Reduce>(registry, "teams", refuse_reduce, run_reduce);
  add_kernel<ArgMax>(registry, "teams", refuse_unless_indexable, run_arg_max);
}

}  // namespace pipit::internal
