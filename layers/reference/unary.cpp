#include "layers/unary.h"

#include <cmath>
#include <numbers>

#include "layers/dispatch.h"
#include "layers/layer_kernel.h"
#include "layers/operands.h"
#include "layers/reference/integer.h"
#include "layers/reference/reference.h"
#include "layers/scalar.h"
#include "layers/strided.h"

namespace pipit {

namespace {

// min(max(x, low), high), NaN for NaN.
double clip(double x, double low, double high) {
  x = x < low ? low : x;
  return x > high ? high : x;
}

// The formulas of the ONNX operators, written so that no argument overflows on the way to a finite result.
double apply(const UnaryAttributes& a, double x) {
  switch (a.kind) {
    case UnaryKind::relu:
      return x < 0 ? 0 : x;
    case UnaryKind::leaky_relu:
      return x < 0 ? a.alpha * x : x;
    case UnaryKind::elu:
      return x < 0 ? a.alpha * std::expm1(x) : x;
    case UnaryKind::selu:
      return a.beta * (x < 0 ? a.alpha * std::expm1(x) : x);
    case UnaryKind::celu:
      return x < 0 ? a.alpha * std::expm1(x / a.alpha) : x;
    case UnaryKind::thresholded_relu:
      return x <= a.alpha ? 0 : x;
    case UnaryKind::clip:
      return clip(x, a.alpha, a.beta);
    case UnaryKind::sigmoid:
      return 1 / (1 + std::exp(-x));
    case UnaryKind::tanh:
      return std::tanh(x);
    case UnaryKind::hard_sigmoid:
      return clip(a.alpha * x + a.beta, 0, 1);
    case UnaryKind::hard_swish:
      return x * clip(x / 6 + 0.5, 0, 1);
    case UnaryKind::silu:
      return x / (1 + std::exp(-x));
    case UnaryKind::mish:
      return x * std::tanh(x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x)));
    case UnaryKind::gelu:
      return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
    case UnaryKind::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    case UnaryKind::erf:
      return std::erf(x);
    case UnaryKind::exp:
      return std::exp(x);
    case UnaryKind::log:
      return std::log(x);
    case UnaryKind::sqrt:
      return std::sqrt(x);
    case UnaryKind::reciprocal:
      return 1 / x;
    case UnaryKind::softplus:
      return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
    case UnaryKind::softsign:
      return x / (1 + std::abs(x));
    case UnaryKind::neg:
      return -x;
    case UnaryKind::abs:
      return std::abs(x);
    case UnaryKind::sign:
      return x > 0 ? 1 : x < 0 ? -1 : x;
    case UnaryKind::floor:
      return std::floor(x);
    case UnaryKind::ceil:
      return std::ceil(x);
    case UnaryKind::round:
      return std::nearbyint(x);  // half to even in the default rounding mode
    case UnaryKind::sin:
      return std::sin(x);
    case UnaryKind::cos:
      return std::cos(x);
    case UnaryKind::logical_not:
      break;
  }
  fail("Unary {}: not defined on floating point", unary_name(a.kind));
}

template <typename T>
T apply_integer(const UnaryAttributes& a, T x) {
  switch (a.kind) {
    case UnaryKind::relu:
      return x < 0 ? T{0} : x;
    case UnaryKind::clip:
      return std::min(std::max(x, saturate_cast<T>(a.alpha)), saturate_cast<T>(a.beta));
    case UnaryKind::neg:
      return static_cast<T>(wrapping::subtract(0, x));
    case UnaryKind::abs:
      return static_cast<T>(wrapping::absolute(x));
    case UnaryKind::sign:
      return static_cast<T>((x > 0) - (x < 0));
    case UnaryKind::floor:
    case UnaryKind::ceil:
    case UnaryKind::round:
      return x;
    default:
      fail("Unary {}: not defined on integers", unary_name(a.kind));
  }
}

void run(const Unary& layer, std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
         const RunContext& /*context*/) {
  const auto loop = broadcast_loop<2>({&outputs[0].desc, &inputs[0].desc});
  with_dtype(outputs[0].desc.dtype, [&]<typename T>(std::type_identity<T>) {
    const T* x = inputs[0].as<T>();
    T* y = outputs[0].as<T>();
    loop.for_each([&](const auto& at) {
      if constexpr (std::is_same_v<T, bool>) {
        y[at[0]] = !x[at[1]];
      } else if constexpr (std::is_integral_v<T>) {
        y[at[0]] = apply_integer(layer.attributes(), x[at[1]]);
      } else {
        y[at[0]] = static_cast<T>(apply(layer.attributes(), static_cast<double>(x[at[1]])));
      }
    });
  });
}

}  // namespace

void register_reference_unary(Registry& registry) {
  add_layer_kernel<Unary>(registry, kReference, refuse_reduced_precision, run);
}

}  // namespace pipit
