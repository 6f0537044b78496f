#include "layers/ops/cast.h"

#include "layers/common/dispatch.h"
#include "layers/common/layer_kernel.h"
#include "layers/common/scalar.h"
#include "layers/common/strided_loop.h"
#include "layers/ops/operands.h"
#include "layers/reference/reference.h"

namespace pipit::internal {

namespace {

template <typename To, typename From>
To convert(From x) {
  if constexpr (std::is_same_v<To, bool>) {
    return x != From{0};
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    return saturate_cast<To>(static_cast<double>(x));
  } else {
    return static_cast<To>(x);
  }
}

void run(const Cast& layer, std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
         const RunContext& /*context*/) {
  const auto loop = broadcast_loop<2>({&outputs[0].desc, &inputs[0].desc});
  with_dtype(layer.attributes().to, [&]<typename To>(std::type_identity<To>) {
    with_dtype(inputs[0].desc.dtype, [&]<typename From>(std::type_identity<From>) {
      const From* x = inputs[0].as<From>();
      To* y = outputs[0].as<To>();
      loop.for_each([&](const auto& at) { y[at[0]] = convert<To>(x[at[1]]); });
    });
  });
}

Refusal refuse(const NodeSpec& spec) {
  const auto& cast = static_cast<const Cast&>(spec.layer);
  if (is_stored_float(cast.attributes().to) || is_stored_float(spec.inputs[0]->dtype))
    return "one side is stored in 16 bits";
  return refuse_reduced_precision(spec);
}

}  // namespace

void register_reference_cast(Registry& registry) {
  add_layer_kernel<Cast>(registry, kReference, refuse, run);
}

}  // namespace pipit::internal
