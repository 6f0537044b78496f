// What the candidate "row_chain" asks of its kernels.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "layers/cuda/chain/row_chain_plan.h"

namespace pipit::cuda {

struct RowChainArgs {
  int images = 1, height = 0, width = 0;
  int ranks = 1;
  int ring = 0, ring_units = 0, sums = 0, constants = 0;
  int values_bytes = 0, constants_bytes = 0;
  std::int64_t stream_bytes = 0;
  const std::byte* weights = nullptr;  ///< the streams of all ranks, one behind the other
  const std::byte* of_outputs =
      nullptr;  ///< the constants of all ranks: of every part biases, in INT8 then multipliers
  const RowPart* parts = nullptr;
  const std::byte* x[kRowMostInputs] = {};
  std::byte* y = nullptr;
  std::byte* rows = nullptr;  ///< RowChainPlan::exchange_bytes
  /// Of the session, zeros at first: for every block the number of runs, then for every exchange and row how many
  /// blocks have written to it in all runs.
  std::uint32_t* counters = nullptr;
  int input_count = 0, part_count = 0, exchange_count = 0;
  RowInput inputs[kRowMostInputs];
  RowExchange exchanges[kRowMostParts];
};
static_assert(sizeof(RowChainArgs) < 4000);

inline std::size_t row_chain_counters(const RowChainArgs& args) {
  return static_cast<std::size_t>(args.images * args.height) *
         static_cast<std::size_t>(args.ranks + args.exchange_count);
}

/// How many clusters of so many blocks, with so many bytes of shared memory each, the current GPU holds at a time.
cudaError_t row_chain_clusters(bool int8, int ranks, int shared_bytes, int& clusters);
/// Lets the kernel use its shared memory and large clusters.
cudaError_t prepare_row_chain(bool int8);
cudaError_t launch_row_chain(bool int8, int shared_bytes, const RowChainArgs& args, cudaStream_t stream);

}  // namespace pipit::cuda
