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

#include <cstddef>
#include <string>
#include <variant>
#include <vector>

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

/// With clusters of `blocks` blocks, whether or not that fits. shape.channels: as plan_squeeze_excite() takes them.
SqueezePlan lay_out_squeeze_excite(const SqueezeShape& shape, int blocks);
/// The reason where there is no plan.
std::variant<SqueezePlan, std::string> plan_squeeze_excite(const SqueezeShape& shape, int processors);

/// A fully connected layer: weights [outputs][depth] of elements, words of biases and multipliers.
struct SqueezeLayer {
  std::vector<std::byte> weights, biases, multipliers;  ///< multipliers: empty in halves
  std::vector<std::byte> table;                         ///< 256 bytes in INT8, else empty
};
/// What every block copies, one block after the other.
std::vector<std::byte> pack_squeeze_excite(const SqueezePlan& plan, const SqueezeLayer& first,
                                           const SqueezeLayer& second);

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
cudaError_t prepare_squeeze_excite(int element_bytes);
/// After prepare_squeeze_excite: launches only.
cudaError_t launch_squeeze_excite(const SqueezeArgs& args, cudaStream_t stream);

}  // namespace pipit::internal::cuda
