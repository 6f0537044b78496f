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

#include <cstddef>
#include <string>
#include <variant>
#include <vector>

#include "layers/cuda/conv/conv_tile.h"
#include "layers/cuda/conv/resident_block/plan.h"
#include "layers/cuda/epilogue/functions.h"

namespace pipit::internal::cuda {

inline constexpr int kSumGroups = 4;
inline constexpr int kSumStageOutputs = 128;                                ///< that are multiplied at once
inline constexpr int kSumStageBytes = kSumStageOutputs * kBlockChunkBytes;  ///< of weights, for a chunk of k
inline constexpr int kSumMaxChunks =
    6;  ///< of both convolutions: a tile's stay until all its outputs are computed

struct ProjectedSumShape {
  int element_bytes = 1;
  std::int64_t positions = 0;  ///< of the output, of all images
  int in_c[2] = {};            ///< of what is added, of the other
  int out_c = 0;
};

struct ProjectedSumPlan {
  int element_bytes = 1;
  int chunks[2] = {};  ///< of each convolution
  int stages = 1;      ///< of kSumStageOutputs, of a slice
  int slices = 1;
  int positions = 0, tiles = 0;
  int slots = 0;
  int workers = 1;  ///< that share the tiles of a slice; blocks of threads: workers * slices

  PIPIT_HOST_DEVICE int tile_chunks() const { return chunks[0] + chunks[1]; }
  PIPIT_HOST_DEVICE int weight_bytes() const { return stages * tile_chunks() * kSumStageBytes; }
  /// Units of the constants of a slice: in INT8 both convolutions' biases and multipliers, in fp16 the sums of their
  /// biases.
  PIPIT_HOST_DEVICE int constant_units() const { return stages * 2 * (element_bytes == 1 ? 2 : 1); }
  PIPIT_HOST_DEVICE int constant_bytes() const {
    return constant_units() * kUnitChannels * (element_bytes == 1 ? 8 : 4);
  }
  int shared_bytes() const {
    return weight_bytes() + slots * kBlockSlotBytes + constant_bytes() + kBlockReserved;
  }
};

/// processors: of the GPU. The reason where there is no plan.
std::variant<ProjectedSumPlan, std::string> plan_projected_sum(const ProjectedSumShape& shape,
                                                               int processors);

/// Weights of all slices as they lie in shared memory: by slice, by stage of outputs, by chunk of k. added, other:
/// [out_c][in_c].
std::vector<std::byte> pack_projected_sum(const ProjectedSumPlan& plan, const std::byte* added,
                                          const std::byte* other);

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
  /// The constants of every slice: in INT8 of the units of what is added, then of the other's; in fp16 of the units of
  /// both.
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
