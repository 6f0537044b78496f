#include "layers/ops/quantize_axis.h"

#include "layers/common/dispatch.h"
#include "layers/common/layer_kernel.h"
#include "layers/common/strided_loop.h"
#include "layers/ops/operands.h"
#include "layers/ops/quantization.h"
#include "layers/reference/reference.h"

namespace pipit::internal {

namespace {

// A tensor that broadcasts to `shape` and holds one element per scale: its offsets are the scales' indices.
TensorDesc scale_desc(const AxisQuantization& q, const Shape& shape) {
  std::array<std::int64_t, kMaxRank> dims;
  dims.fill(1);
  if (!q.per_tensor()) dims[static_cast<std::size_t>(q.axis)] = static_cast<std::int64_t>(q.scales.size());
  return TensorDesc{
      Shape(std::span<const std::int64_t>(dims.data(), static_cast<std::size_t>(shape.rank())))};
}

void run_quantize(const QuantizeAxis& layer, std::span<const ConstTensorView> inputs,
                  std::span<const TensorView> outputs, const RunContext& /*context*/) {
  const AxisQuantization& q = layer.y();
  const TensorDesc scales = scale_desc(q, outputs[0].desc.shape);
  const auto loop = broadcast_loop<3>({&outputs[0].desc, &inputs[0].desc, &scales});
  const float* x = inputs[0].as<float>();
  loop.for_each([&](const auto& at) {
    const auto i = static_cast<std::size_t>(at[2]);
    const StepBounds bounds =
        step_bounds({q.scales[i], q.zero_points[i], q.dtype, true}, -INFINITY, INFINITY);
    outputs[0].data[at[0]] =
        static_cast<std::byte>(requantize(x[at[1]] / q.scales[i], bounds, q.zero_points[i]));
  });
}

void run_dequantize(const DequantizeAxis& layer, std::span<const ConstTensorView> inputs,
                    std::span<const TensorView> outputs, const RunContext& /*context*/) {
  const AxisQuantization& q = layer.x();
  const TensorDesc scales = scale_desc(q, outputs[0].desc.shape);
  const auto loop = broadcast_loop<3>({&outputs[0].desc, &inputs[0].desc, &scales});
  auto* y = outputs[0].as<float>();
  const auto each = [&]<typename T>(const T* x) {
    loop.for_each([&](const auto& at) {
      const auto i = static_cast<std::size_t>(at[2]);
      const std::int64_t steps = static_cast<std::int64_t>(x[at[1]]) - q.zero_points[i];
      y[at[0]] = static_cast<float>(steps) * q.scales[i];
    });
  };
  if (q.dtype == DType::i8) return each(inputs[0].as<std::int8_t>());
  if (q.dtype == DType::u8) return each(inputs[0].as<std::uint8_t>());
  each(inputs[0].as<std::int32_t>());
}

}  // namespace

void register_reference_quantize_axis(Registry& registry) {
  add_layer_kernel<QuantizeAxis>(registry, kReference, refuse_reduced_precision, run_quantize);
  add_layer_kernel<DequantizeAxis>(registry, kReference, refuse_reduced_precision, run_dequantize);
}

}  // namespace pipit::internal
