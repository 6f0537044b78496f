// Maxima over the small windows that networks use, of halves or bytes.
#include "layers/cuda/families.h"
#include "layers/cuda/spatial/pool_small_windows.cuh"

namespace pipit {

namespace {

using namespace cuda;

// What is compared: four bytes of elements at once.
struct Halves {
  static constexpr DType kType = DType::f16;
  static constexpr unsigned kLowest = 0xFC00FC00U;  // -inf twice: what padding is
  // NaN where either is.
  static __device__ __forceinline__ unsigned larger(unsigned p, unsigned q) {
    const __half2 m =
        __hmax2_nan(*reinterpret_cast<const __half2*>(&p), *reinterpret_cast<const __half2*>(&q));
    return *reinterpret_cast<const unsigned*>(&m);
  }
};
struct SignedBytes {
  static constexpr DType kType = DType::i8;
  static constexpr unsigned kLowest = 0x80808080U;
  static __device__ __forceinline__ unsigned larger(unsigned p, unsigned q) { return __vmaxs4(p, q); }
};
struct UnsignedBytes {
  static constexpr DType kType = DType::u8;
  static constexpr unsigned kLowest = 0;
  static __device__ __forceinline__ unsigned larger(unsigned p, unsigned q) { return __vmaxu4(p, q); }
};

template <typename Elements, int Bytes>
struct Largest {
  static constexpr int kWords = Bytes / 4;
  struct alignas(Bytes) Unit {
    unsigned words[kWords];
  };
  using Value = Unit;
  __device__ __forceinline__ Value value(const Unit& unit) const { return unit; }
  __device__ __forceinline__ Value outside() const {
    Value lowest;
#pragma unroll
    for (unsigned& word : lowest.words) word = Elements::kLowest;
    return lowest;
  }
  __device__ __forceinline__ Value join(const Value& a, const Value& b) const {
    Value larger;
#pragma unroll
    for (int w = 0; w < kWords; ++w) larger.words[w] = Elements::larger(a.words[w], b.words[w]);
    return larger;
  }
  __device__ __forceinline__ Unit result(const Value& value, int /*h*/, int /*w*/, int /*kernel*/) const {
    return value;
  }
};

template <typename Elements>
Refusal refuse_max_pool(const NodeSpec& spec) {
  const PoolAttributes& a = layer_as<Pool>(spec.layer).attributes();
  if (a.kind != PoolKind::max) return "only maxima";
  if (spec.inputs[0]->dtype != Elements::kType || spec.outputs[0].dtype != Elements::kType)
    return "only " + std::string(dtype_name(Elements::kType)) + " is handled";
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
