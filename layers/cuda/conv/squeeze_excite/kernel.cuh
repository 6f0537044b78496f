// The kernel of "squeeze_excite" (plan.h). The copies of all weights are in flight before it waits for the previous
// kernel; after that wait it reads x once and waits twice for what the cluster's other blocks have sent.
#pragma once

#include <cstdint>

#include "layers/cuda/conv/squeeze_excite/plan.h"
#include "layers/cuda/device/ptx.cuh"
#include "layers/cuda/device/warpgroup_mma.cuh"
#include "layers/cuda/epilogue/stores.cuh"

namespace pipit::internal::cuda {

/// Halves or bfloat16, which are converted to floats in between.
template <typename Element>
struct SqueezeHalf {
  using Value = float;
  using Four = float4;
  // Words, not halves: these would be read one by one.
  using Vector = uint4;
  using Weights = uint2;
  static constexpr int kBytes = 2;

  static __device__ __forceinline__ float2 pair(const std::uint32_t& word) {
    return to_floats<Element>(word);
  }
  static __device__ __forceinline__ void add(Value (&sums)[kSqueezeVector], const Vector& v) {
    const std::uint32_t words[] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < kSqueezeVector / 2; ++i) {
      const float2 two = pair(words[i]);
      sums[2 * i] += two.x, sums[2 * i + 1] += two.y;
    }
  }
  static __device__ __forceinline__ Value multiply(Value sum, const Four& v, const Weights& w) {
    const float2 a = pair(w.x), b = pair(w.y);
    sum = fmaf(v.x, a.x, sum), sum = fmaf(v.y, a.y, sum);
    return fmaf(v.w, b.y, fmaf(v.z, b.x, sum));
  }
  static __device__ __forceinline__ Value rounded(float v) {
    return cuda::rounded<Element>(v);
  }
  static __device__ __forceinline__ Value mean(const SqueezeArgs& p, Value sum) {
    return rounded(sum * p.factor);
  }
  static __device__ __forceinline__ Value finish(const SqueezeArgs& p, int layer, Value sum, uint2 constants,
                                                 const std::uint8_t*) {
    float v[1] = {sum + __uint_as_float(constants.x)};
    apply_clamped(p.functions[layer], p.layers[layer].low, p.layers[layer].high, v);
    return rounded(v[0]);
  }
  static __device__ __forceinline__ std::uint32_t bits(Value v) {
    return __float_as_uint(v);
  }
  static __device__ __forceinline__ void store(std::byte* y, int at, Value v) {
    reinterpret_cast<Element*>(y)[at] = cuda::store<Element>(v);
  }
};

/// Bytes with zero point 0, which are converted to integers in between; the gates may have another zero point.
struct SqueezeInt8 {
  using Value = int;
  using Four = int4;
  using Vector = int2;
  using Weights = std::uint32_t;
  static constexpr int kBytes = 1;

  static __device__ __forceinline__ void add(Value (&sums)[kSqueezeVector], const Vector& v) {
    const int words[] = {v.x, v.y};
#pragma unroll
    for (int i = 0; i < kSqueezeVector; ++i) sums[i] = __dp4a(words[i / 4], 1 << i % 4 * 8, sums[i]);
  }
  static __device__ __forceinline__ Value multiply(Value sum, const Four& v, const Weights& w) {
    const auto byte = [&](int i) { return static_cast<int>(static_cast<std::int8_t>(w >> i * 8)); };
    return sum + v.x * byte(0) + v.y * byte(1) + v.z * byte(2) + v.w * byte(3);
  }
  static __device__ __forceinline__ Value mean(const SqueezeArgs& p, Value sum) {
    return whole_steps(scaled(sum, p.factor), p.mean.low, p.mean.high);
  }
  static __device__ __forceinline__ Value finish(const SqueezeArgs& p, int layer, Value sum, uint2 constants,
                                                 const std::uint8_t* tables) {
    const int whole = sum + static_cast<int>(constants.x);
    const SqueezeBounds& bounds = p.layers[layer];
    const int v = whole_steps(scaled(whole, __uint_as_float(constants.y)), bounds.low, bounds.high);
    return static_cast<std::int8_t>(tables[layer * 256 + static_cast<std::uint8_t>(v)]);
  }
  static __device__ __forceinline__ std::uint32_t bits(Value v) {
    return static_cast<std::uint32_t>(v);
  }
  static __device__ __forceinline__ void store(std::byte* y, int at, Value v) {
    reinterpret_cast<std::int8_t*>(y)[at] = static_cast<std::int8_t>(v);
  }
};

namespace squeeze_excite {

/// The sum over `quads` groups of four values, shared by neighbouring lanes, a power of two; all of them get it.
template <typename E, int Lanes>
__device__ __forceinline__ typename E::Value dot(const typename E::Value* values, const std::uint8_t* weights,
                                                 int quads) {
  const int thread = static_cast<int>(threadIdx.x) & 31;
  typename E::Value sum = 0;
#pragma unroll 4
  for (int quad = thread % Lanes; quad < quads; quad += Lanes)
    sum = E::multiply(sum, *reinterpret_cast<const typename E::Four*>(values + quad * 4),
                      *reinterpret_cast<const typename E::Weights*>(weights + quad * 4 * E::kBytes));
#pragma unroll
  for (int lanes = Lanes / 2; lanes > 0; lanes /= 2) sum += __shfl_sync(~0U, sum, thread ^ lanes);
  return sum;
}

}  // namespace squeeze_excite

template <typename E>
__global__ void __launch_bounds__(kSqueezeThreads, 2)
    run_squeeze_excite(const __grid_constant__ SqueezeArgs p) {
#ifdef PIPIT_WARPGROUP_MMA
  using Value = typename E::Value;
  using Vector = typename E::Vector;
  extern __shared__ __align__(128) std::uint8_t dynamic[];
  __shared__ __align__(8) std::uint64_t barriers[3];
  const SqueezePlan& plan = p.plan;
  const SqueezeShape& shape = plan.shape;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  constexpr int kWarps = kSqueezeThreads / 32;
  const auto rank = static_cast<int>(ptx::cluster_rank());
  const int image = static_cast<int>(blockIdx.x) >> p.block_bits;
  const int channels = shape.channels, depth = plan.depth;
  const std::uint32_t base = ptx::shared_address(dynamic);
  const std::uint32_t have_weights = ptx::shared_address(barriers), have_sums = have_weights + 8,
                      have_squeezed = have_weights + 16;
  const auto words = [&](int at) { return reinterpret_cast<Value*>(dynamic + at); };
  Value *const sums = words(plan.sums_at), *const received = words(plan.received_at),
               *const means = words(plan.means_at), *const squeezed = words(plan.squeezed_at);

  // One block alone is no cluster: it stores where others send, and all of its threads meet where others wait.
  const bool alone = plan.blocks == 1;
  if (thread == 0) {
    for (const std::uint32_t barrier : {have_weights, have_sums, have_squeezed})
      ptx::init_barrier(barrier, 1);
    ptx::publish_barriers();
    ptx::arrive_expecting(have_weights, plan.weight_bytes);
    ptx::copy_bytes(base, p.weights + rank * plan.weight_bytes, plan.weight_bytes, have_weights);
    if (!alone) {
      ptx::arrive_expecting(have_sums, plan.blocks / plan.slices * channels * 4);
      ptx::arrive_expecting(have_squeezed, shape.squeezed * 4);
    }
  }
  // No block sends before all have their barriers, which publish_barriers() has made visible.
  if (!alone) ptx::arrive_in_cluster();
  for (int i = shape.squeezed + thread; i < depth; i += kSqueezeThreads) squeezed[i] = 0;
  // Where this block's sums begin: neighbouring blocks have other channels, then come other positions.
  const int slice = rank & (plan.slices - 1), part = rank >> p.slice_bits,
            part_bits = p.block_bits - p.slice_bits;
  const int first_vector = slice * plan.slice_vectors;
  const int slice_vectors = min(plan.slice_vectors, plan.vectors - first_vector);
  const int row = thread / plan.slice_vectors, vector = thread - row * plan.slice_vectors;
  const auto border = [&](int of) {
    return static_cast<int>(std::int64_t{shape.positions} * of >> part_bits);
  };
  const int begin = border(part), end = border(part + 1);
  const auto* x = reinterpret_cast<const Vector*>(p.x) + first_vector + vector +
                  (std::int64_t{image} * shape.positions + begin + row) * plan.vectors;
  const int stride = plan.slice_vectors * kSqueezeVector;  // of sums
  ptx::wait_for_previous_kernel();
  ptx::release_next_kernel();

  if (row < plan.rows && vector < slice_vectors) {
    constexpr int kReads = 8;  // in flight at a time
    Value sum[kSqueezeVector] = {};
    const int step = plan.rows * plan.vectors;
    for (int at = begin + row; at < end; at += kReads * plan.rows, x += kReads * step) {
      Vector read[kReads];
#pragma unroll
      for (int r = 0; r < kReads; ++r) read[r] = at + r * plan.rows < end ? x[r * step] : Vector{};
#pragma unroll
      for (int r = 0; r < kReads; ++r) E::add(sum, read[r]);
    }
    auto* to = reinterpret_cast<typename E::Four*>(sums + row * stride + vector * kSqueezeVector);
    to[0] = {sum[0], sum[1], sum[2], sum[3]};
    to[1] = {sum[4], sum[5], sum[6], sum[7]};
  }
  __syncthreads();
  if (!alone) ptx::wait_in_cluster();
  const int slice_quads = slice_vectors * (kSqueezeVector / 4);
  for (int i = thread; i < plan.slice_vectors * (kSqueezeVector / 4) << p.block_bits; i += kSqueezeThreads) {
    // Neighbouring threads have neighbouring channels.
    const int to = p.slice_quads.divide(i), quad = i - to * (plan.slice_vectors * (kSqueezeVector / 4));
    if (quad >= slice_quads) continue;
    Value sum[4] = {};
#pragma unroll 8
    for (int r = 0; r < plan.rows; ++r) {
      const auto v = *reinterpret_cast<const typename E::Four*>(sums + r * stride + quad * 4);
      sum[0] += v.x, sum[1] += v.y, sum[2] += v.z, sum[3] += v.w;
    }
    Value* here = received + part * channels + first_vector * kSqueezeVector + quad * 4;
    if (alone) {
      *reinterpret_cast<typename E::Four*>(here) = {sum[0], sum[1], sum[2], sum[3]};
      continue;
    }
    const auto block = static_cast<std::uint32_t>(to);
    ptx::send<4>(ptx::in_block(ptx::shared_address(here), block),
                 {E::bits(sum[0]), E::bits(sum[1]), E::bits(sum[2]), E::bits(sum[3])},
                 ptx::in_block(have_sums, block));
  }
  const auto wait_for_all = [&](std::uint32_t barrier) {
    alone ? __syncthreads() : ptx::wait_cluster_barrier(barrier, 0);
  };
  wait_for_all(have_sums);
  const int parts = 1 << part_bits;
  for (int c = thread; c < channels; c += kSqueezeThreads) {
    Value sum = 0;
    for (int of = 0; of < parts; ++of) sum += received[of * channels + c];
    means[c] = E::mean(p, sum);
  }
  ptx::wait_barrier(have_weights, 0);
  __syncthreads();

  const auto* constants = reinterpret_cast<const uint2*>(dynamic + plan.constants_at);
  const std::uint8_t* tables = dynamic + plan.tables_at;
  const int share = plan.squeezed_share, first = rank * share;
  for (int o = warp; o < share && first + o < shape.squeezed; o += kWarps) {
    const Value sum = squeeze_excite::dot<E, 32>(means, dynamic + o * channels * E::kBytes, channels / 4);
    const Value v = E::finish(p, 0, sum, constants[o], tables);
    if (lane >= plan.blocks) continue;
    if (alone) {
      squeezed[first + o] = v;
      continue;
    }
    const auto block = static_cast<std::uint32_t>(lane);
    ptx::send<1>(ptx::in_block(ptx::shared_address(squeezed + first + o), block), {E::bits(v)},
                 ptx::in_block(have_squeezed, block));
  }
  wait_for_all(have_squeezed);
  constexpr int kOutputs = 32 / kSqueezeGateLanes;  // of a warp
  const int gate_share = plan.gate_share, first_gate = rank * gate_share;
  const int gates = min(gate_share, shape.gates - first_gate);
  const std::uint8_t* gate_weights = dynamic + plan.gate_weights_at;
  for (int begin_of_warp = warp * kOutputs; begin_of_warp < gates; begin_of_warp += kWarps * kOutputs) {
    const int o = begin_of_warp + lane / kSqueezeGateLanes, known = min(o, gates - 1);
    const Value sum = squeeze_excite::dot<E, kSqueezeGateLanes>(
        squeezed, gate_weights + known * depth * E::kBytes, depth / 4);
    const Value v = E::finish(p, 1, sum, constants[share + known], tables);
    if (lane % kSqueezeGateLanes == 0 && o < gates) E::store(p.y, image * shape.gates + first_gate + o, v);
  }
#endif
}

}  // namespace pipit::internal::cuda
