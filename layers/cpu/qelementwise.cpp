// Quantize, Dequantize and the sum of two INT8 tensors.
#include "layers/qelementwise.h"

#include "layers/cpu/byte_spans.h"
#include "layers/cpu/chunks.h"
#include "layers/cpu/cpu.h"
#include "layers/layer_kernel.h"
#include "layers/operands.h"
#include "layers/quantize.h"

namespace pipit {

namespace {

// Elements of a piece: what is read and written of each is 2 to 5 bytes.
constexpr std::int64_t kChunk = kChunkBytes;

Refusal refuse_layouts(const NodeSpec& spec) {
  if (Refusal reason = refuse_reduced_precision(spec)) return reason;
  for (const TensorDesc* input : spec.inputs) {
    if (input->layout != spec.outputs[0].layout && !spec.outputs[0].layouts_coincide()) {
      return "inputs and output have different layouts";
    }
  }
  return std::nullopt;
}

void run_quantize(const Quantize& layer, std::span<const ConstTensorView> inputs,
                  std::span<const TensorView> outputs, const RunContext& context) {
  const ByteTarget target(layer.y());
  const auto* x = inputs[0].as<float>();
  parallel_chunks(context.pool, outputs[0].desc.elements(), kChunk,
                  [&](std::int64_t begin, std::int64_t end) {
                    quantize_span(x + begin, layer.y().scale, target, outputs[0].data + begin, end - begin);
                  });
}

void run_dequantize(const Dequantize& layer, std::span<const ConstTensorView> inputs,
                    std::span<const TensorView> outputs, const RunContext& context) {
  auto* y = outputs[0].as<float>();
  parallel_chunks(
      context.pool, outputs[0].desc.elements(), kChunk, [&](std::int64_t begin, std::int64_t end) {
        dequantize_span({inputs[0].data + begin, layer.x()}, layer.x().scale, y + begin, end - begin);
      });
}

void run_qadd(const QAdd& layer, std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
              const RunContext& context) {
  const QAddAttributes& attributes = layer.attributes();
  const ByteTarget target(attributes.y, attributes.activation.low, attributes.activation.high);
  const float a_scale = attributes.a.scale / attributes.y.scale;
  const float b_scale = attributes.b.scale / attributes.y.scale;
  parallel_chunks(
      context.pool, outputs[0].desc.elements(), kChunk, [&](std::int64_t begin, std::int64_t end) {
        add_span({inputs[0].data + begin, attributes.a}, a_scale, {inputs[1].data + begin, attributes.b},
                 b_scale, target, outputs[0].data + begin, end - begin);
      });
}

}  // namespace

void register_cpu_qelementwise(Registry& registry) {
  add_layer_kernel<Quantize>(registry, "vector", refuse_layouts, run_quantize);
  add_layer_kernel<Dequantize>(registry, "vector", refuse_layouts, run_dequantize);
  add_layer_kernel<QAdd>(registry, "vector", refuse_layouts, run_qadd);
}

}  // namespace pipit
