// How "squeeze_excite" shares its work among the blocks of a cluster, and what lies where in their shared memory. No
// CUDA: tested without a GPU.
//
// It computes the gates of a squeeze-and-excitation block (Hu, Shen and Sun 2018): of every image the mean of each
// channel, a fully connected layer to fewer values, and another one to a gate for each channel; both are 1x1
// convolutions of one position, with a function after each. A cluster of blocks has an image. Each of its blocks adds
// up a slice of the channels over a range of the positions, and sends these sums to all; then all have the means. Each
// computes a share of the first layer's outputs, sends them to all, and computes a share of the gates.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <variant>
#include <vector>

#include "engine/base/ceil_div.h"
#include "layers/cuda/conv/conv_tile.h"
#include "layers/cuda/epilogue/functions.h"

namespace pipit::internal::cuda {

inline constexpr int kSqueezeThreads = 512;
inline constexpr int kSqueezeVector = 8;          ///< channels that a thread reads at once
inline constexpr int kSqueezeGateLanes = 4;       ///< that compute a gate together
inline constexpr int kSqueezeMaxBlocks = 8;       ///< of a cluster: what every GPU with clusters can launch
inline constexpr int kSqueezeShared = 220 << 10;  ///< bytes that a block may take beside its barriers

struct SqueezeShape {
  int images = 1, positions = 1;
  int channels = 8;  ///< a multiple of kSqueezeVector
  int squeezed = 1;  ///< outputs of the first layer
  int gates = 8;     ///< outputs of the second
  int element_bytes = 2;
  bool bf16 = false;  ///< of 2 bytes: else halves
};

struct SqueezePlan {
  SqueezeShape shape;
  int blocks = 1;   ///< of a cluster, a power of two
  int slices = 1;   ///< of channels, a power of two; as many neighbouring blocks add up the same positions
  int vectors = 1;  ///< of a position
  int slice_vectors = 1;                   ///< of a slice; the last one may have fewer, or none
  int rows = 1;                            ///< positions that a block reads at once
  int squeezed_share = 1, gate_share = 1;  ///< outputs of a block; the last blocks may have fewer, or none
  int depth = 0;  ///< values of the first layer as the second reads them: zeros at the end

  // In shared memory, in bytes. What a block brings: rows of weights of the first layer and of the second, for each
  // output a bias and a multiplier, in INT8 a table of 256 bytes for each layer.
  int gate_weights_at = 0, constants_at = 0, tables_at = 0, weight_bytes = 0;
  // After it words: sums of positions by rows, the sums that every block has sent, means, the first layer's results.
  int sums_at = 0, received_at = 0, means_at = 0, squeezed_at = 0, shared_bytes = 0;
};

/// A fully connected layer: weights [outputs][depth] of elements, words of biases and multipliers.
struct SqueezeLayer {
  std::vector<std::byte> weights, biases, multipliers;  ///< multipliers: empty in halves
  std::vector<std::byte> table;                         ///< 256 bytes in INT8, else empty
};

inline constexpr int kSqueezeConstantBytes = 8;

inline constexpr int kSqueezeSliceVectors = 8;

inline int whole_squeeze(std::int64_t size, int step) {
  return static_cast<int>(round_up(size, step));
}

/// With clusters of `blocks` blocks, whether or not that fits. shape.channels: as plan_squeeze_excite() takes them.
inline SqueezePlan lay_out_squeeze_excite(const SqueezeShape& shape, int blocks) {
  constexpr int kWord = 4, kAligned = 16, kTable = 256;
  SqueezePlan plan;
  plan.shape = shape, plan.blocks = blocks;
  plan.vectors = shape.channels / kSqueezeVector;
  // As many slices as leave each a few sectors of memory of a position: more slices send less.
  while (plan.slices < blocks && plan.vectors >= 2 * plan.slices * kSqueezeSliceVectors) plan.slices *= 2;
  plan.slice_vectors = static_cast<int>(ceil_div(plan.vectors, plan.slices));
  const auto of_a_block = [&](int all) { return static_cast<int>(ceil_div(all, blocks)); };
  const int parts = blocks / plan.slices;
  plan.rows =
      std::min(kSqueezeThreads / plan.slice_vectors, static_cast<int>(ceil_div(shape.positions, parts)));
  plan.squeezed_share = of_a_block(shape.squeezed), plan.gate_share = of_a_block(shape.gates);
  plan.depth = whole_squeeze(shape.squeezed, 4 * kSqueezeGateLanes);
  const auto weights = [&](int outputs, int depth) {
    return whole_squeeze(std::int64_t{outputs} * depth * shape.element_bytes, kAligned);
  };
  plan.gate_weights_at = weights(plan.squeezed_share, shape.channels);
  plan.constants_at = plan.gate_weights_at + weights(plan.gate_share, plan.depth);
  plan.tables_at = plan.constants_at +
                   whole_squeeze((plan.squeezed_share + plan.gate_share) * kSqueezeConstantBytes, kAligned);
  plan.weight_bytes = plan.tables_at + (shape.element_bytes == 1 ? 2 * kTable : 0);
  plan.sums_at = plan.weight_bytes;
  plan.received_at = plan.sums_at + plan.rows * plan.slice_vectors * kSqueezeVector * kWord;
  plan.means_at = plan.received_at + parts * shape.channels * kWord;
  plan.squeezed_at = plan.means_at + shape.channels * kWord;
  plan.shared_bytes = plan.squeezed_at + plan.depth * kWord;
  return plan;
}

/// The reason where there is no plan.
inline std::variant<SqueezePlan, std::string> plan_squeeze_excite(const SqueezeShape& shape, int processors) {
  constexpr int kMaxChannels = kSqueezeThreads * kSqueezeVector;
  if (shape.channels % kSqueezeVector != 0 || shape.channels > kMaxChannels || shape.gates > kMaxChannels ||
      shape.squeezed > kMaxChannels)
    return "channels must be a multiple of 8, and no layer wider than 4096";
  // An image gets more blocks while the multiprocessors can hold them all (two blocks an image: two on each
  // multiprocessor), and while a thread still reads kMinVectors before they are doubled: measured with EfficientNet-B0
  // at batch 1 to 128 (docs/benchmarks/gpu.md).
  constexpr int kMinVectors = 4;
  const std::int64_t vectors = std::int64_t{shape.positions} * (shape.channels / kSqueezeVector);
  const auto has_room = [&](int blocks) {
    return std::int64_t{shape.images} * blocks <= std::int64_t{processors} * (blocks == 2 ? 2 : 1);
  };
  int blocks = 1;
  while (blocks < kSqueezeMaxBlocks && has_room(blocks * 2) &&
         vectors >= std::int64_t{kMinVectors} * kSqueezeThreads * blocks)
    blocks *= 2;
  SqueezePlan plan = lay_out_squeeze_excite(shape, blocks);
  while (plan.shared_bytes > kSqueezeShared && plan.blocks < kSqueezeMaxBlocks)
    plan = lay_out_squeeze_excite(shape, plan.blocks * 2);
  if (plan.shared_bytes > kSqueezeShared) return "shared memory has no room for the weights";
  return plan;
}

/// What every block copies, one block after the other.
inline std::vector<std::byte> pack_squeeze_excite(const SqueezePlan& plan, const SqueezeLayer& first,
                                                  const SqueezeLayer& second) {
  const int bytes = plan.weight_bytes, element = plan.shape.element_bytes;
  std::vector<std::byte> packed(static_cast<std::size_t>(plan.blocks) * static_cast<std::size_t>(bytes));
  for (int block = 0; block < plan.blocks; ++block) {
    std::byte* to = packed.data() + std::ptrdiff_t{block} * bytes;
    const auto layer = [&](const SqueezeLayer& from, int outputs, int share, int depth, int stride,
                           std::byte* weights, std::byte* constants) {
      const int begin = std::min(block * share, outputs), end = std::min(begin + share, outputs);
      for (int o = begin; o < end; ++o) {
        std::memcpy(weights + std::ptrdiff_t{o - begin} * stride * element,
                    from.weights.data() + std::ptrdiff_t{o} * depth * element,
                    static_cast<std::size_t>(depth) * static_cast<std::size_t>(element));
        std::byte* constant = constants + std::ptrdiff_t{o - begin} * kSqueezeConstantBytes;
        std::memcpy(constant, from.biases.data() + std::ptrdiff_t{o} * 4, 4);
        if (!from.multipliers.empty())
          std::memcpy(constant + 4, from.multipliers.data() + std::ptrdiff_t{o} * 4, 4);
      }
    };
    const int share = plan.squeezed_share;
    std::byte* constants = to + plan.constants_at;
    layer(first, plan.shape.squeezed, share, plan.shape.channels, plan.shape.channels, to, constants);
    layer(second, plan.shape.gates, plan.gate_share, plan.shape.squeezed, plan.depth,
          to + plan.gate_weights_at, constants + std::ptrdiff_t{share} * kSqueezeConstantBytes);
    if (element == 2) continue;
    std::memcpy(to + plan.tables_at, first.table.data(), 256);
    std::memcpy(to + plan.tables_at + 256, second.table.data(), 256);
  }
  return packed;
}

// What the candidate "squeeze_excite" asks of its kernels.

/// What a mean or a layer's result is clamped to, in INT8 in steps.
struct SqueezeBounds {
  float low = 0, high = 0;
};

struct SqueezeArgs {
  SqueezePlan plan;
  int block_bits = 0, slice_bits = 0;  ///< plan.blocks and plan.slices are powers of two
  Divisor slice_quads;                 ///< of a quarter of a slice's channels
  float factor = 1;                    ///< of a sum to a mean, in INT8 in steps
  SqueezeBounds mean;                  ///< in halves not used
  SqueezeBounds layers[2];
  HalfFunction functions[2];           ///< in halves; never HalfGate::none
  const std::byte* x = nullptr;        ///< NHWC
  const std::byte* weights = nullptr;  ///< pack_squeeze_excite()
  std::byte* y = nullptr;
};

/// All that follows from the plan.
inline SqueezeArgs squeeze_args(const SqueezePlan& plan) {
  SqueezeArgs args;
  args.plan = plan;
  while (1 << args.block_bits < plan.blocks) ++args.block_bits;
  while (1 << args.slice_bits < plan.slices) ++args.slice_bits;
  args.slice_quads = Divisor(plan.slice_vectors * (kSqueezeVector / 4));
  return args;
}

/// Lets the kernel use its shared memory on the current GPU.
cudaError_t prepare_squeeze_excite(const SqueezeShape& shape);
/// After prepare_squeeze_excite: launches only.
cudaError_t launch_squeeze_excite(const SqueezeArgs& args, cudaStream_t stream);

}  // namespace pipit::internal::cuda
