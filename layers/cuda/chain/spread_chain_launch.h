// What the candidate "spread_chain" asks of its kernels.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "layers/cuda/chain/spread_chain_plan.h"
#include "layers/cuda/conv/conv_spread_launch.h"

namespace pipit::cuda {

/// Where a value of a chain lies: what the chain reads, what it computes for itself, or its output.
struct SpreadValue {
  enum class Kind : std::uint8_t { none, input, inside, output };
  Kind kind = Kind::none;
  int input = 0;
  std::int64_t offset = 0;  ///< of what is inside, in bytes
};

/// A convolution of the chain, in memory of the GPU.
struct alignas(16) SpreadLink {
  SpreadArgs args;  ///< x, residual and y are found in the kernel
  SpreadValue x, residual, y;
  int blocks = 0;  ///< of threads that there is a tile or a slice of one for, if there were as many
};

struct SpreadChainArgs {
  const SpreadLink* links = nullptr;
  int count = 0;
  int weights_bytes = 0, places_bytes = 0;  ///< what follows is the plan's
  int x = 0, zeros = 0, places = 0, sums = 0, received = 0;
  const std::byte* inputs[kSpreadChainMostInputs] = {};
  std::byte* y = nullptr;
  // Of the session, zeros at first.
  std::byte* values[2] = {};      ///< two sets of what is inside, which runs take turns at
  std::int64_t values_bytes = 0;  ///< of one, a multiple of 16
  std::uint32_t* runs = nullptr;  ///< of every block of threads
};

/// How many blocks, in clusters of kSpreadCluster, the current GPU holds at a time; 0 where it has no such kernels.
cudaError_t spread_chain_blocks(bool int8, int& blocks);
/// Lets the kernel use its shared memory.
cudaError_t prepare_spread_chain(bool int8);
cudaError_t launch_spread_chain(bool int8, int blocks, int shared_bytes, const SpreadChainArgs& args,
                                cudaStream_t stream);

}  // namespace pipit::cuda
