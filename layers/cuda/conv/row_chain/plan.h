// A chain of convolutions as the kernel "row_chain" runs it: which block computes what, what lies where in shared
// memory, and in which order weights arrive. No CUDA: tested without a GPU.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "layers/cuda/conv/chain/unit_layout.h"
#include "layers/cuda/device/fast_division.h"

namespace pipit::internal::cuda {

inline constexpr int kRowWarps = 8;                    ///< that multiply
inline constexpr int kRowMaxWidth = 64;                ///< pixels of a row
inline constexpr int kRowMaxParts = 64;                ///< of a chain
inline constexpr int kRowMaxInputs = 4;                ///< values that a chain reads
inline constexpr int kRowMaxRanks = 16;                ///< blocks of a cluster
inline constexpr int kRowUnit = 1024;                  ///< bytes: weights of 32 outputs for 32 bytes of k
inline constexpr int kRowChunkUnits = 32;              ///< that are waited for together
inline constexpr int kRowSumBytes = kRowWarps * 2048;  ///< sums that warps which share a depth exchange
inline constexpr int kRowBlockShared = 227 << 10;  ///< bytes of shared memory that a block may have on Hopper
inline constexpr int kRowReserved = 8 << 10;       ///< of them what is not dynamic: barriers and the parts

/// Some outputs of a convolution that one block computes for its row, all of them at once: each warp has a tile of 16
/// pixels and 32 outputs (a quad), of a share of the depth. Offsets are bytes from the start of the values in shared
/// memory.
struct alignas(16) RowPart {
  std::int32_t x = 0;            ///< the row's first pixel, of a 3x3 the one left of it
  std::int32_t x_pitch = 0;      ///< bytes from pixel to pixel
  std::int32_t steps = 0;        ///< of 32 bytes of k, of all taps
  std::int32_t inner_steps = 0;  ///< those that need the row itself alone: they come first
  std::int32_t quads_log2 = 0;
  /// The row's first pixel; a pitch of 0: y is the chain's and goes to memory.
  std::int32_t y = 0, y_pitch = 0;
  /// 1: to all blocks of the cluster, since a convolution reads it; 0: a residual alone, which stays in its block.
  std::int32_t sent = 0;
  std::int32_t residual = -1, residual_pitch = 0;  ///< likewise; -1: none
  std::int32_t first_byte = 0;                     ///< of a pixel of y: that of the rank 0's first output
  std::int32_t rank_bytes = 0;                     ///< from one rank's outputs to the next's
  std::int32_t constants =
      0;  ///< bytes from the block's constants to this part's biases, in INT8 then multipliers
  std::int32_t row_bytes = 0;  ///< of a row of y: all outputs
  std::int32_t awaited = -1;  ///< exchange of rows that the taps outside of the middle row wait for; -1: none
  std::int32_t exchange = -1;                   ///< the one that y takes part in; -1: none
  std::int32_t exchange_at = 0;                 ///< where it begins, in units of 256 bytes
  std::int32_t finishes = 0;                    ///< 1: y is complete after this part
  float low = 0, high = 0, residual_scale = 0;  ///< as ConvGemmArgs has them
  std::int32_t places = 0;                      ///< bytes from the block's constants to RowChainPlan::places
};
static_assert(sizeof(RowPart) % 16 == 0);

/// How many steps are multiplied from step `from` on before weights are waited for again.
PIPIT_HOST_DEVICE inline int row_chunk(const RowPart& part, int from) {
  const int left = (from < part.inner_steps ? part.inner_steps : part.steps) - from;
  const int most = kRowChunkUnits >> part.quads_log2;
  return left < most ? left : most;
}

/// Tiles of 16 pixels that a row is cut into, 1 << this: each has a warp for every quad, and where there are more warps
/// they share the depth.
PIPIT_HOST_DEVICE inline int row_tiles_log2(int width) {
  return width <= 16 ? 0 : width <= 32 ? 1 : 2;
}

/// Where a value that the chain reads is kept.
struct RowInput {
  std::int32_t at = 0, pitch = 0;       ///< shared memory: the row's first pixel, bytes from pixel to pixel
  std::int32_t above = -1, below = -1;  ///< those of the rows around, where a 3x3 reads it; else -1
  std::int32_t bytes = 0;               ///< of a pixel
  /// What a block needs of a pixel: all, or its own outputs' residuals.
  std::int32_t read = 0;
};

/// A value whose rows blocks of other clusters read.
struct RowExchange {
  std::int32_t above = 0, below = 0;  ///< shared memory: the first pixels of the rows around
  std::int32_t pitch = 0;
  std::int32_t bytes = 0;  ///< of a pixel
  std::int32_t at = 0;  ///< RowChainArgs::rows: those of all clusters, pixel by pixel; in units of 256 bytes
};

struct RowChainPlan {
  int ranks = 1;                          ///< blocks of a cluster, which compute a row together
  int ring = 0, sums = 0, constants = 0;  ///< offsets in shared memory; values begin at 0
  int ring_units = 0;
  int values_bytes = 0;
  int constants_bytes = 0;  ///< of a block
  int shared_bytes = 0;
  std::int64_t stream_bytes = 0;  ///< weights of a block, in the order of use
  std::size_t exchange_bytes = 0;
  std::vector<RowInput> inputs;
  std::vector<RowPart> parts;
  std::vector<int> conv_of_part;
  std::vector<std::vector<std::uint16_t>>
      places;  ///< of every part: of its steps, from RowPart::x in units of 16 bytes
  std::vector<RowExchange> exchanges;
};

/// As many blocks a row as there are for all rows at once (`blocks`: how many the GPU holds at a time) and outputs of
/// every convolution for (32 each), a power of two. The reason where there is no such plan.
std::variant<RowChainPlan, std::string> plan_row_chain(const ConvChainShape& shape, int blocks);

/// The channel of its 32 that column `column` (0 to 7) of the quad's product `product` (0 to 3) has: a lane's sums of
/// the four are then eight neighbouring channels.
inline int row_channel(int product, int column) {
  return column / 2 * 8 + product * 2 + column % 2;
}

/// The first of its convolution's outputs that the block `rank` computes in the part.
int first_row_output(const RowPart& part, int rank, int element_bytes);

/// Weights [out_c][taps][in_c] of elements to the stream of the block `rank`, at `to`: those of `part`. Returns the
/// bytes written.
std::int64_t pack_row_part(const RowPart& part, int rank, int taps, int in_c, int element_bytes,
                           const std::byte* weights, std::byte* to);

// What the candidate "row_chain" asks of its kernels.

struct RowChainArgs {
  int images = 1, height = 0, width = 0;
  int ranks = 1;
  int ring = 0, ring_units = 0, sums = 0, constants = 0;
  int values_bytes = 0, constants_bytes = 0;
  std::int64_t stream_bytes = 0;
  const std::byte* weights = nullptr;  ///< the streams of all ranks, one after the other
  const std::byte* of_outputs =
      nullptr;  ///< the constants of all ranks: of every part biases, in INT8 then multipliers
  const RowPart* parts = nullptr;
  const std::byte* x[kRowMaxInputs] = {};
  std::byte* y = nullptr;
  std::byte* rows = nullptr;  ///< RowChainPlan::exchange_bytes
  /// Counters of the session, zeros at first: for every block the number of runs, then for every exchange and row how
  /// many blocks have written to it in all runs.
  std::uint32_t* counters = nullptr;
  int input_count = 0, part_count = 0, exchange_count = 0;
  RowInput inputs[kRowMaxInputs];
  RowExchange exchanges[kRowMaxParts];
};
static_assert(sizeof(RowChainArgs) < 4000);

inline std::size_t row_chain_counters(const RowChainArgs& args) {
  return static_cast<std::size_t>(args.images * args.height) *
         static_cast<std::size_t>(args.ranks + args.exchange_count);
}

/// The number of clusters of `ranks` blocks, with `shared_bytes` bytes of shared memory each, that the current GPU
/// holds at a time.
cudaError_t row_chain_clusters(ChainElement element, int ranks, int shared_bytes, int& clusters);
/// Lets the kernel use its shared memory and large clusters.
cudaError_t prepare_row_chain(ChainElement element);
cudaError_t launch_row_chain(ChainElement element, int shared_bytes, const RowChainArgs& args,
                             cudaStream_t stream);

}  // namespace pipit::internal::cuda
