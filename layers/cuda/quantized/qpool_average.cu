// Averages over the small windows that networks use, from integers to integers.
#include "layers/cuda/families.h"
#include "layers/cuda/quantized/qpool_policy.cuh"
#include "layers/cuda/spatial/pool_small_windows.cuh"

namespace pipit {

namespace {

using namespace cuda;

Refusal refuse_small_average(const NodeSpec& spec) {
  const DType y = spec.outputs[0].dtype;
  if (y != DType::i8 && y != DType::u8) return "only from integers to integers";
  return refuse_unless_small_windows<ByteAverages>(spec,
                                                   layer_as<QAveragePool>(spec.layer).attributes().pool);
}

}  // namespace

void register_cuda_qpool_average(Registry& registry) {
  registry.add(QAveragePool::kType, DeviceKind::cuda,
               {"average_bytes", refuse_small_average, [](const NodeSpec& spec) {
                  const QAveragePoolAttributes& a = layer_as<QAveragePool>(spec.layer).attributes();
                  const ByteAverages policy{averaged_positions(a.pool, spec.inputs[0]->shape),
                                            IntegerOperand(a.x), store_of(a, spec.outputs[0].dtype)};
                  return std::unique_ptr<Kernel>(
                      std::make_unique<SmallWindowsKernel<ByteAverages>>(spec, a.pool.window, policy));
                }});
}

}  // namespace pipit
