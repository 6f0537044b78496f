// How "image_chain" divides residual blocks among the blocks of threads of a cluster, which keep an image's values in
// their shared memory from the first convolution to the last. No CUDA: tested without a GPU.
//
// Every residual block is a 1x1 convolution to 256 channels (the head), a 3x3 of 256 to 256 (the window), and a 1x1 to
// as many channels as its x has (the tail), to which x is added, in INT8; the result is the next one's x. A cluster
// computes an image, then another: each rank (block of threads) has some rows of it, x and what lies inside for those
// rows alone, and around them the rows of its neighbours that its window reads, which these send. Weights come in
// stages of 128 outputs and 128 elements of k, or for the tail of 64 and 256, in the order of their use; each rank
// fetches its share of a stage and the copy engine gives it to all of them. Groups of four warps multiply: a half of
// them takes the even stages, which hold the first 128 of 256 outputs, the other half the odd ones.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "layers/cuda/conv/resident_block/plan.h"
#include "layers/cuda/epilogue/functions.h"

namespace pipit::cuda {

inline constexpr int kImageGroups = 4;  ///< of four warps
inline constexpr int kImageInner = 256;
inline constexpr int kImageStageOutputs = 128, kImageStageDepth = 128;
inline constexpr int kImageStageBytes = kImageStageOutputs * kImageStageDepth;
inline constexpr int kImageHalves = kImageInner / kImageStageOutputs;
inline constexpr int kImageInnerChunks = kImageInner / kImageStageDepth;
inline constexpr int kImageMostRanks = 8;
inline constexpr int kImageMostTiles = 2;                      ///< of kUnitRows positions, for a rank
inline constexpr int kImageMostRing = 8;                       ///< stages of weights in shared memory
inline constexpr int kImageMostBlocks = 22;                    ///< residual blocks of a launch
inline constexpr int kImageConstantBytes = kUnitChannels * 8;  ///< of a unit of outputs

struct ImageChainPlan {
  int channels = 0;  ///< of x
  int blocks = 0;    ///< residual blocks
  int images = 0, height = 0, width = 0;
  int ranks = 1;
  int rows = 0;      ///< of an image for a rank; the last one may have fewer
  int tiles = 1;     ///< of a rank's positions
  int ring = 0;      ///< stages of weights in shared memory, an even number
  int clusters = 1;  ///< that the GPU holds

  PIPIT_HOST_DEVICE int chunks() const { return channels / kImageStageDepth; }
  PIPIT_HOST_DEVICE int positions() const { return rows * width; }  ///< of a rank, at most
  /// Stages of weights of a residual block.
  PIPIT_HOST_DEVICE int stages() const {
    return (chunks() + kBlockTaps * kImageInnerChunks + chunks() / kImageHalves * kImageInnerChunks) *
           kImageHalves;
  }
  PIPIT_HOST_DEVICE int constant_units() const { return (2 * kImageInner + channels) / kUnitChannels; }
  /// x lies in chunks of kImageStageDepth channels.
  PIPIT_HOST_DEVICE int chunk_bytes() const { return (positions() + 7) / 8 * 8 * kImageStageDepth; }
  /// Products read whole tiles: of the last chunk beyond its end.
  PIPIT_HOST_DEVICE int x_bytes() const {
    return (chunks() - 1) * chunk_bytes() + tiles * kUnitRows * kImageStageDepth;
  }
  PIPIT_HOST_DEVICE int inner_rows() const { return (rows + 2) * width; }
  int shared_bytes() const;
};

/// clusters: how many of a plan the GPU holds at a time. The reason where there is no plan.
std::variant<ImageChainPlan, std::string> plan_image_chain(
    const ConvChainShape& shape, const std::function<int(const ImageChainPlan&)>& clusters);

/// Whether one launch is faster than one for each convolution, as far as that was measured.
bool image_chain_pays(const ImageChainPlan& plan);

/// Appends the weights of a residual block, stage by stage in the order of their use, of [out_c][taps][in_c] each.
void append_image_weights(const ImageChainPlan& plan, const std::byte* head, const std::byte* window,
                          const std::byte* tail, std::vector<std::byte>& to);

/// Adds kMagicBits to the biases among units' constants.
void begin_with_magic(std::vector<std::byte>& constants);

// What the candidate "image_chain" asks of its kernels.

/// The bounds of a residual block.
struct ImageChainBounds {
  PairBounds head, window, tail;
  float residual_scale = 0;
};

struct ImageChainArgs {
  CUtensorMap x{};  ///< matrix_map of x, in boxes of a rank's positions and kImageStageDepth channels
  ImageChainPlan plan;
  Divisor image, row;  ///< positions of an image and of a row
  int clusters = 1;
  const std::byte* weights = nullptr;    ///< append_image_weights() of every block
  const std::byte* constants = nullptr;  ///< of the units of head, window and tail, of every block
  std::byte* y = nullptr;
  ImageChainBounds bounds[kImageMostBlocks];
  bool small_sums =
      false;  ///< of all convolutions (kSmallSum); constants then have kMagicBits in their biases
};

/// Clusters of the plan that the current GPU holds at a time; 0: it lacks what the kernels need. Lets them use their
/// shared memory.
cudaError_t image_chain_clusters(const ImageChainPlan& plan, int& clusters);
/// After image_chain_clusters: launches only.
cudaError_t launch_image_chain(const ImageChainArgs& args, cudaStream_t stream);

}  // namespace pipit::cuda
