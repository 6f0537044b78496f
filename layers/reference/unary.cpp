#include "layers/ops/unary.h"

#include <bit>
#include <cmath>

#include "layers/common/dispatch.h"
#include "layers/common/integer.h"
#include "layers/common/layer_kernel.h"
#include "layers/common/scalar.h"
#include "layers/common/strided_loop.h"
#include "layers/ops/operands.h"
#include "layers/reference/reference.h"

namespace pipit::internal {

namespace {

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

// x in double precision, for functions with a step at 0 denormal as it is: a thread that treats denormals as zero would
// lose it in the conversion.
template <typename T>
double widened(UnaryKind kind, T x) {
  const bool step = kind == UnaryKind::sign || kind == UnaryKind::floor || kind == UnaryKind::ceil;
  if constexpr (std::is_same_v<T, float>) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    const std::uint32_t magnitude = bits & 0x7fffffffU;
    if (step && magnitude < 0x800000U)
      return std::copysign(static_cast<double>(magnitude) * 0x1p-149, bits == magnitude ? 1.0 : -1.0);
  }
  return static_cast<double>(x);
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
        y[at[0]] =
            static_cast<T>(unary_value(layer.attributes(), widened(layer.attributes().kind, x[at[1]])));
      }
    });
  });
}

}  // namespace

void register_reference_unary(Registry& registry) {
  add_layer_kernel<Unary>(registry, kReference, refuse_reduced_precision, run);
}

}  // namespace pipit::internal
