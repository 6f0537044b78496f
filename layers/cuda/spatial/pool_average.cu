// Averages over the small windows that networks use, of halves.
#include "layers/cuda/families.h"
#include "layers/cuda/spatial/pool_policies.cuh"
#include "layers/cuda/spatial/pool_small_windows.cuh"

namespace pipit {

namespace {

using namespace cuda;

Refusal refuse_average_pool(const NodeSpec& spec) {
  const PoolAttributes& a = layer_as<Pool>(spec.layer).attributes();
  if (a.kind != PoolKind::average) return "only averages";
  if (spec.inputs[0]->dtype != DType::f16 || spec.outputs[0].dtype != DType::f16)
    return "only f16 is handled";
  if (a.window.kernel[0] <= a.window.stride[0]) return "the windows share no pixels";
  return refuse_unless_small_windows<HalfAverages>(spec, a);
}

}  // namespace

void register_cuda_pool_average(Registry& registry) {
  registry.add(Pool::kType, DeviceKind::cuda,
               {"average_half", refuse_average_pool, [](const NodeSpec& spec) {
                  const PoolAttributes& a = layer_as<Pool>(spec.layer).attributes();
                  return std::unique_ptr<Kernel>(std::make_unique<SmallWindowsKernel<HalfAverages>>(
                      spec, a.window, HalfAverages{averaged_positions(a, spec.inputs[0]->shape)}));
                }});
}

}  // namespace pipit
