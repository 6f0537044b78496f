// Averages over the small windows that networks use, of halves.
#include "layers/cuda/families.h"
#include "layers/cuda/spatial/pool_small_windows.cuh"

namespace pipit {

namespace {

using namespace cuda;

struct HalfAverages {
  static constexpr int kChannels = 4;  // eight take twice the registers, and longer
  struct alignas(kChannels * 2) Unit {
    unsigned words[kChannels / 2];  // of two halves, so that they are read and written together
  };
  struct Value {
    float sum[kChannels];
  };
  AveragedPositions positions;

  __device__ __forceinline__ Value value(const Unit& unit) const {
    Value value;
#pragma unroll
    for (int v = 0; v < kChannels; v += 2) {
      const float2 pair = __half22float2(*reinterpret_cast<const __half2*>(&unit.words[v / 2]));
      value.sum[v] = pair.x, value.sum[v + 1] = pair.y;
    }
    return value;
  }
  __device__ __forceinline__ Value outside() const {
    return {};
  }
  __device__ __forceinline__ Value join(const Value& a, const Value& b) const {
    Value both;
#pragma unroll
    for (int v = 0; v < kChannels; ++v) both.sum[v] = a.sum[v] + b.sum[v];
    return both;
  }
  __device__ __forceinline__ Unit result(const Value& value, int h, int w, int kernel) const {
    // Rounded once more than a quotient, which halves do not show.
    const float factor = 1 / static_cast<float>(max(positions.divisor(h, w, kernel), 1));
    Unit unit;
#pragma unroll
    for (int v = 0; v < kChannels; v += 2) {
      const __half2 pair = __floats2half2_rn(value.sum[v] * factor, value.sum[v + 1] * factor);
      unit.words[v / 2] = *reinterpret_cast<const unsigned*>(&pair);
    }
    return unit;
  }
};

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
                      spec, a.window, HalfAverages{AveragedPositions(a, spec.inputs[0]->shape)}));
                }});
}

}  // namespace pipit
