// Maxima over the small windows that networks use, of halves or bytes.
#include "layers/cuda/families.h"
#include "layers/cuda/pooling/small_windows.cuh"
#include "layers/cuda/pooling/small_windows_kernel.cuh"

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

// Averages over the small windows that networks use, of halves.

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

// Averages over the small windows that networks use, from integers to integers.

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
