// How "resident_gemm" lays a convolution out: which weights a block holds, how its part of x passes through shared
// memory, and where the products find their operands. Plain C++, so that it is tested without a GPU.
//
// A block computes a range of output positions, kResidentRows at a time, for the outputs of one column tile. It holds
// their weights for as long as it lives. Of x it holds a ring of rows: row i of its stream is row i mod (rows of an
// image) of an image with its padding, images one after the other. Every row is copied once, for all taps.
#pragma once

#include <cuda.h>

#include <optional>
#include <string>
#include <vector>

#include "layers/cuda/conv/conv_tile.h"
#include "layers/cuda/conv/gemm_args.h"

namespace pipit::internal::cuda {

inline constexpr int kResidentRows = 64;  ///< output positions that one group of four warps computes at once
inline constexpr int kResidentMaxRing = 48;  ///< rows of x in shared memory
inline constexpr int kResidentMaxSteps = 32;
inline constexpr int kResidentShared = 227 << 10;  ///< bytes that one block of a Hopper GPU may take
/// The bytes of these that are not for weights, x or places but for biases, multipliers, a table, barriers.
inline constexpr int kResidentReserved = 3 << 10;

/// Groups of four warps that a block may have; more registers than that leaves are not needed.
constexpr int most_resident_groups(int columns) {
  return columns == 128 ? 3 : 4;
}

struct ResidentPlan {
  int columns = 128;    ///< outputs of a block: 128 or 64
  int groups = 2;       ///< of four warps that share the positions of a block
  int pixel_bytes = 0;  ///< of a pixel in one plane: 128 or 64, swizzled in chunks of 16 bytes
  int planes = 1;       ///< that a pixel's channels take
  int box_pixels = 0;   ///< of a row of x as copied, its padding included
  int pitch = 0;    ///< pixels from row to row: box_pixels, rounded up so that the swizzle's pattern stays
  int in_rows = 0;  ///< rows of an image as copied, its padding included
  int ring_rows = 0;
  int steps = 0;   ///< of kTileDepth units, of the column tile that has the most
  int places = 0;  ///< of one half of every product, of a column tile: resident_places
  int shared_bytes = 0;

  PIPIT_HOST_DEVICE int plane_bytes() const { return pitch * pixel_bytes; }  ///< of a row
  PIPIT_HOST_DEVICE int row_bytes() const { return planes * plane_bytes(); }
  std::string name() const;  ///< "128/3"
};

/// Why there is no plan; nothing where resident_plans is not empty.
std::optional<std::string> refuse_resident(const ConvShape& shape, const KeptDepth& depth);
/// The plans that there are for a shape (in_c in units, as in memory), the one that is likely to be fastest first.
std::vector<ResidentPlan> resident_plans(const ConvShape& shape, const KeptDepth& depth);

/// Blocks of k, of eight units, that a column tile multiplies. Two of them are a product.
int resident_blocks(const ConvShape& shape, const KeptDepth& depth, int tile, int columns);
/// Where they lie, in bytes from a position's first pixel: for every column tile first those of the first half of every
/// product, then those of the second, plan.places of each. What fills them up may be read and is not multiplied.
std::vector<int> resident_places(const ConvShape& shape, const KeptDepth& depth, const ResidentPlan& plan);

/// Whether the places of every other product are those of the one before + 32, within 64 bytes: they then need not be
/// looked up. So it is where nothing is left out and channels are a multiple of 64 bytes.
bool places_are_paired(const ResidentPlan& plan, const std::vector<int>& places);

// What the candidates ask of their kernels (launch.cu).

struct ResidentArgs {
  ConvGemmArgs conv;  ///< without x and weights; of its depth nothing counts
  CUtensorMap x{};    ///< row_map of x
  CUtensorMap weights{};
  ResidentPlan plan;
  const int* places = nullptr;  ///< resident_places
  const int* tile_blocks =
      nullptr;  ///< resident_blocks of every column tile, or null where all have `blocks`
  int blocks = 0;
  bool paired = false;  ///< places_are_paired
  int workers = 1;      ///< blocks that share the tiles of one column tile
  int least_tiles = 0;  ///< of kResidentRows positions, for every worker; the first more_tiles have one more
  int more_tiles = 0;
  Divisor ring, barriers;  ///< plan.ring_rows, and twice that
};

/// Lets the kernel use its shared memory on the current GPU; of args only the plan and whether there is a function
/// or, in INT8, a table count.
cudaError_t prepare_resident_gemm(const ResidentArgs& args);
/// After prepare_resident_gemm: launches only.
cudaError_t launch_resident_gemm(const ResidentArgs& args, cudaStream_t stream);

}  // namespace pipit::internal::cuda
