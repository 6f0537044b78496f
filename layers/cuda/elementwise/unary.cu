// Element-wise functions of one tensor.
#include "layers/ops/unary.h"

#include "layers/common/scalar.h"
#include "layers/cuda/device/unary_function.cuh"
#include "layers/cuda/elementwise/map.cuh"
#include "layers/cuda/families.h"

namespace pipit::internal {

namespace {

using namespace cuda;

// min(max(x, low), high), NaN for NaN: what relu and clip are, and the cheapest map there is.
struct ClipFunction {
  float low, high;
  __device__ float operator()(const float (&x)[1]) const {
    const float y = x[0] < low ? low : x[0];
    return y > high ? high : y;
  }
};

// The powers that networks have.
struct SquareFunction {
  __device__ float operator()(const float (&x)[1]) const { return x[0] * x[0]; }
};
struct CubeFunction {
  __device__ float operator()(const float (&x)[1]) const { return x[0] * x[0] * x[0]; }
};

// One of the above with the branch taken at compile time: for what activations of networks are.
template <UnaryKind kKind>
struct FixedFunction {
  float alpha, beta;
  __device__ float operator()(const float (&x)[1]) const {
    // Half of the cost of erfc, which only matters for the relative error of results near 0.
    if constexpr (kKind == UnaryKind::gelu) return 0.5F * x[0] * (1 + erff(x[0] * 0.70710678F));
    return UnaryFunction<float>{kKind, alpha, beta}(x);
  }
};

// Integers and bool in int64, wrapping where they are stored.
struct IntegerFunction {
  UnaryKind kind;
  std::int64_t low, high;

  __device__ std::int64_t operator()(const std::int64_t (&arguments)[1]) const {
    const std::int64_t x = arguments[0];
    const auto negated = static_cast<std::int64_t>(0 - static_cast<std::uint64_t>(x));
    switch (kind) {
      case UnaryKind::relu:
        return x < 0 ? 0 : x;
      case UnaryKind::clip: {
        const std::int64_t y = x < low ? low : x;
        return y > high ? high : y;
      }
      case UnaryKind::neg:
        return negated;
      case UnaryKind::abs:
        return x < 0 ? negated : x;
      case UnaryKind::sign:
        return (x > 0) - (x < 0);
      case UnaryKind::logical_not:
        return x == 0;
      default:  // floor, ceil and round leave integers alone
        return x;
    }
  }
};

void run_float(const UnaryAttributes& a, std::span<const ConstTensorView> inputs, const TensorView& y,
               const RunContext& context) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto alpha = static_cast<float>(a.alpha);
  const auto beta = static_cast<float>(a.beta);
  switch (a.kind) {
    case UnaryKind::relu:
      return launch_float_map<1>("relu", inputs, y, ClipFunction{0, kInfinity}, context);
    case UnaryKind::clip:
      return launch_float_map<1>("clip", inputs, y, ClipFunction{alpha, beta}, context);
    case UnaryKind::silu:
      return launch_float_map<1>("silu", inputs, y, FixedFunction<UnaryKind::silu>{}, context);
    case UnaryKind::swish:
      return launch_float_map<1>("swish", inputs, y, FixedFunction<UnaryKind::swish>{alpha, beta}, context);
    case UnaryKind::sigmoid:
      return launch_float_map<1>("sigmoid", inputs, y, FixedFunction<UnaryKind::sigmoid>{}, context);
    case UnaryKind::gelu:
      return launch_float_map<1>("gelu", inputs, y, FixedFunction<UnaryKind::gelu>{}, context);
    case UnaryKind::hard_swish:
      return launch_float_map<1>("hard swish", inputs, y, FixedFunction<UnaryKind::hard_swish>{}, context);
    case UnaryKind::pow:
      if (a.alpha == 2) return launch_float_map<1>("square", inputs, y, SquareFunction{}, context);
      if (a.alpha == 3) return launch_float_map<1>("cube", inputs, y, CubeFunction{}, context);
      return launch_float_map<1>("pow", inputs, y, FixedFunction<UnaryKind::pow>{alpha, beta}, context);
    default:
      launch_float_map<1>("unary", inputs, y, UnaryFunction<float>{a.kind, alpha, beta}, context);
  }
}

void run(const Unary& layer, std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
         const RunContext& context) {
  const UnaryAttributes& a = layer.attributes();
  const TensorView& y = outputs[0];
  if (is_float_or_half(y.desc.dtype)) {
    run_float(a, inputs, y, context);
  } else if (y.desc.dtype == DType::f64) {
    launch_map<double, 1>("unary f64", inputs, y, UnaryFunction<double>{a.kind, a.alpha, a.beta}, context);
  } else {
    // The bounds of clip as the element type holds them.
    const auto bound = [&](double value) {
      return with_dtype(y.desc.dtype, [&]<typename T>(std::type_identity<T>) {
        return static_cast<std::int64_t>(saturate_cast<T>(value));
      });
    };
    const IntegerFunction f{a.kind, bound(a.alpha), bound(a.beta)};
    launch_map<std::int64_t, 1>("unary integer", inputs, y, f, context);
  }
}

}  // namespace

void register_cuda_unary(Registry& registry) {
  add_kernel<Unary>(registry, "elementwise", refuse_unless_indexable, run);
}

}  // namespace pipit::internal
