// Softmax and LogSoftmax over contiguous elements.
#include "layers/softmax.h"

#include <algorithm>
#include <cmath>

#include "layers/cpu/chunks.h"
#include "layers/cpu/cpu.h"
#include "layers/cpu/simd.h"
#include "layers/cpu/spans.h"
#include "layers/cpu/vector_math.h"
#include "layers/layer_kernel.h"
#include "layers/operands.h"

namespace pipit {

namespace {

bool contiguous_groups(const SoftmaxAttributes& attributes, const TensorDesc& desc) {
  const SoftmaxGroups groups = softmax_groups(attributes, desc.shape);
  if (groups.end == desc.shape.rank() && is_row_major(desc)) return true;
  return groups.begin == 1 && groups.end == 2 && is_channels_last(desc);
}

Refusal refuse_softmax(const NodeSpec& spec) {
  if (Refusal reason = refuse_unless_f32(spec)) return reason;
  const SoftmaxAttributes& attributes = layer_as<Softmax>(spec.layer).attributes();
  if (!contiguous_groups(attributes, *spec.inputs[0]) || !contiguous_groups(attributes, spec.outputs[0])) {
    return "the normalised elements must be contiguous";
  }
  return std::nullopt;
}

PIPIT_SIMD_CLONES void exp_of_difference(const float* x, float shift, float* y, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) y[i] = vector_math::exp(x[i] - shift);
}
PIPIT_SIMD_CLONES void divide(float* y, float divisor, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) y[i] /= divisor;
}
PIPIT_SIMD_CLONES void subtract(const float* x, float shift, float log_sum, float* y, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) y[i] = x[i] - shift - log_sum;
}

void normalize(const float* x, std::int64_t count, bool log, float* y) {
  const float highest = max_of(x, count);
  exp_of_difference(x, highest, y, count);
  const float sum = sum_of(y, count);
  if (log) {
    subtract(x, highest, std::log(sum), y, count);
  } else {
    divide(y, sum, count);
  }
}

void run_softmax(const Softmax& layer, std::span<const ConstTensorView> inputs,
                 std::span<const TensorView> outputs, const RunContext& context) {
  const Shape& shape = inputs[0].desc.shape;
  const SoftmaxGroups groups = softmax_groups(layer.attributes(), shape);
  std::int64_t count = 1;
  for (int d = groups.begin; d < groups.end; ++d) count *= shape[d];
  if (shape.elements() == 0) return;
  const float* x = inputs[0].as<float>();
  float* y = outputs[0].as<float>();
  parallel_chunks(context.pool, shape.elements() / count, rows_per_chunk(count),
                  [&](std::int64_t begin, std::int64_t end) {
                    for (std::int64_t g = begin; g < end; ++g)
                      normalize(x + g * count, count, layer.attributes().log, y + g * count);
                  });
}

}  // namespace

void register_cpu_softmax(Registry& registry) {
  add_layer_kernel<Softmax>(registry, "contiguous", refuse_softmax, run_softmax);
}

}  // namespace pipit
