// How "projected_sum" cuts up two 1x1 convolutions whose results are added: the last one of a residual block that
// changes resolution or channels, and the projection of what the block reads, in whichever order. No CUDA: tested
// without a GPU.
//
// Output positions of all images, one after the other, are cut into tiles of kUnitRows. A block of threads keeps the
// weights of both convolutions for a slice of the outputs in shared memory, and computes a range of tiles; groups of
// four warps take turns at these. What is multiplied comes in chunks of kBlockChunkBytes of a tile's positions, first
// those of the convolution that is added, then the other's, into slots of shared memory.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <variant>
#include <vector>

#include "layers/cuda/conv/chain/unit_layout.h"
#include "layers/cuda/conv/conv_tile.h"
#include "layers/cuda/epilogue/functions.h"

namespace pipit::internal::cuda {

inline constexpr int kSumGroups = 4;
inline constexpr int kSumStageOutputs = 128;                                ///< that are multiplied at once
inline constexpr int kSumStageBytes = kSumStageOutputs * kBlockChunkBytes;  ///< of weights, for a chunk of k
inline constexpr int kSumMaxChunks =
    6;  ///< of both convolutions: a tile's stay until all its outputs are computed

struct ProjectedSumShape {
  int element_bytes = 1;
  bool bf16 = false;           ///< of 2 bytes: else halves
  std::int64_t positions = 0;  ///< of the output, of all images
  int in_c[2] = {};            ///< of what is added, of the other
  int out_c = 0;
};

struct ProjectedSumPlan {
  int element_bytes = 1;
  bool bf16 = false;   ///< of 2 bytes: else halves
  int chunks[2] = {};  ///< of each convolution
  int stages = 1;      ///< of kSumStageOutputs, of a slice
  int slices = 1;
  int positions = 0, tiles = 0;
  int slots = 0;
  int workers = 1;  ///< that share the tiles of a slice; blocks of threads: workers * slices

  PIPIT_HOST_DEVICE int tile_chunks() const { return chunks[0] + chunks[1]; }
  PIPIT_HOST_DEVICE int weight_bytes() const { return stages * tile_chunks() * kSumStageBytes; }
  /// Units of the constants of a slice: in INT8 both convolutions' biases and multipliers, in fp16 and bf16 the sums of
  /// their biases.
  PIPIT_HOST_DEVICE int constant_units() const { return stages * 2 * (element_bytes == 1 ? 2 : 1); }
  PIPIT_HOST_DEVICE int constant_bytes() const {
    return constant_units() * kUnitChannels * (element_bytes == 1 ? 8 : 4);
  }
  int shared_bytes() const {
    return weight_bytes() + slots * kBlockSlotBytes + constant_bytes() + kBlockReserved;
  }
};

/// processors: of the GPU. The reason where there is no plan.
inline std::variant<ProjectedSumPlan, std::string> plan_projected_sum(const ProjectedSumShape& shape,
                                                                      int processors) {
  const int chunk_channels = kBlockChunkBytes / shape.element_bytes;
  ProjectedSumPlan plan;
  plan.element_bytes = shape.element_bytes, plan.bf16 = shape.bf16;
  for (std::size_t c = 0; c < 2; ++c) {
    if (shape.in_c[c] % chunk_channels != 0) return "channels are no multiples of 128 bytes";
    plan.chunks[c] = shape.in_c[c] / chunk_channels;
  }
  if (shape.out_c % kSumStageOutputs != 0) return "outputs are no multiple of 128";
  if (plan.tile_chunks() > kSumMaxChunks) return "more channels than there is room for";
  if (shape.positions > (1 << 30)) return "more positions than are counted";
  plan.positions = static_cast<int>(shape.positions);
  plan.tiles = (plan.positions + kUnitRows - 1) / kUnitRows;
  const int all_stages = shape.out_c / kSumStageOutputs;
  // The maximum number of outputs that leave room for two tiles, so that x is read as rarely as possible.
  for (plan.stages = all_stages; plan.stages > 0; --plan.stages) {
    if (all_stages % plan.stages != 0) continue;
    plan.slots = 0;
    plan.slots = (kBlockMaxShared - plan.shared_bytes()) / kBlockSlotBytes;
    if (plan.slots >= 2 * plan.tile_chunks()) break;
  }
  if (plan.stages == 0) return "shared memory has no room for weights and two tiles";
  plan.slots = std::min(plan.slots, (kSumGroups + 1) * plan.tile_chunks());
  plan.slices = all_stages / plan.stages;
  plan.workers = std::clamp(processors / plan.slices, 1, plan.tiles);
  return plan;
}

/// Weights of all slices as they lie in shared memory: by slice, by stage of outputs, by chunk of k. added, other:
/// [out_c][in_c].
inline std::vector<std::byte> pack_projected_sum(const ProjectedSumPlan& plan, const std::byte* added,
                                                 const std::byte* other) {
  const int channels = kBlockChunkBytes / plan.element_bytes;
  std::vector<std::byte> packed(static_cast<std::size_t>(plan.slices) *
                                static_cast<std::size_t>(plan.weight_bytes()));
  std::byte* to = packed.data();
  for (int stage = 0; stage < plan.slices * plan.stages; ++stage) {
    for (std::size_t c = 0; c < 2; ++c) {
      const int in_c = plan.chunks[c] * channels;
      for (int chunk = 0; chunk < plan.chunks[c]; ++chunk) {
        for (int unit = 0; unit < kSumStageOutputs; unit += kUnitChannels) {
          pack_unit(c == 0 ? added : other, in_c, 1, 0, chunk * channels, stage * kSumStageOutputs + unit,
                    true, plan.element_bytes, to, channels);
          to += kUnitChannels * kBlockChunkBytes;
        }
      }
    }
  }
  return packed;
}

// What the candidate "projected_sum" asks of its kernels.

/// What a convolution reads: its pixels, one for every output position.
struct SumSource {
  CUtensorMap map{};  ///< matrix_map or patch_map, in boxes of a tile and a chunk
  bool plain = true;  ///< matrix_map: positions are the output's
  ConvShape shape;
  Divisor positions, out_width;  ///< of pixel_origin()
};

struct ProjectedSumArgs {
  SumSource sources[2];  ///< of what is added, of the other
  ProjectedSumPlan plan;
  const std::byte* weights = nullptr;  ///< pack_projected_sum()
  /// The constants of every slice: in INT8 of the units of what is added, then of the other's; in fp16 and bf16 of the
  /// units of both.
  const std::byte* constants = nullptr;
  std::byte* y = nullptr;
  PairBounds added, bounds;
  float added_scale = 0;    ///< what the integers of what is added are multiplied by
  bool small_sums = false;  ///< INT8: of both (kSmallSum)
  int least_tiles = 0;      ///< of every worker; the first more_tiles have one more
  int more_tiles = 0;
};

/// Lets the kernel use its shared memory on the current GPU.
cudaError_t prepare_projected_sum(const ProjectedSumArgs& args);
/// After prepare_projected_sum: launches only.
cudaError_t launch_projected_sum(const ProjectedSumArgs& args, cudaStream_t stream);

}  // namespace pipit::internal::cuda
