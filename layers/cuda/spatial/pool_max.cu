// Maxima over the small windows that networks use, of halves or bytes.
#include "layers/cuda/families.h"
#include "layers/cuda/spatial/pool_policies.cuh"
#include "layers/cuda/spatial/pool_small_windows.cuh"

namespace pipit {

namespace {

using namespace cuda;

template <typename Elements>
constexpr DType kType = std::is_same_v<Elements, Halves>        ? DType::f16
                        : std::is_same_v<Elements, SignedBytes> ? DType::i8
                                                                : DType::u8;

template <typename Elements>
Refusal refuse_max_pool(const NodeSpec& spec) {
  const PoolAttributes& a = layer_as<Pool>(spec.layer).attributes();
  if (a.kind != PoolKind::max) return "only maxima";
  if (spec.inputs[0]->dtype != kType<Elements> || spec.outputs[0].dtype != kType<Elements>)
    return "only " + std::string(dtype_name(kType<Elements>)) + " is handled";
  return refuse_unless_small_windows<Largest<Elements, 8>>(spec, a);
}

template <typename Elements, int Bytes>
std::unique_ptr<Kernel> make_max_pool(const NodeSpec& spec) {
  using Policy = Largest<Elements, Bytes>;
  return std::make_unique<SmallWindowsKernel<Policy>>(spec, layer_as<Pool>(spec.layer).attributes().window,
                                                      Policy{});
}

template <typename Elements>
void add_max_pool(Registry& registry, const char* name) {
  registry.add(Pool::kType, DeviceKind::cuda, {name, refuse_max_pool<Elements>, [](const NodeSpec& spec) {
                                                 return pixel_bytes(*spec.inputs[0]) % 16 == 0
                                                            ? make_max_pool<Elements, 16>(spec)
                                                            : make_max_pool<Elements, 8>(spec);
                                               }});
}

}  // namespace

void register_cuda_pool_max(Registry& registry) {
  add_max_pool<Halves>(registry, "max_half");
  add_max_pool<SignedBytes>(registry, "max_i8");
  add_max_pool<UnsignedBytes>(registry, "max_u8");
}

}  // namespace pipit
