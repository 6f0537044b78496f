// How "spread_chain" computes convolutions in one launch: the same blocks of threads go from one to the next, each with
// tiles of it as "spread_gemm" has them (conv_spread_plan.h), and read what others compute as soon as it is there. No
// CUDA: tested without a GPU.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "layers/cuda/conv/conv_spread_plan.h"

namespace pipit::cuda {

inline constexpr int kSpreadCluster = kSpreadMostSlices;  ///< blocks; those of a tile are neighbours in it
inline constexpr int kSpreadChainMostInputs = 4, kSpreadChainMostLinks = 65;
inline constexpr int kSpreadChainThreads = kSpreadThreads + 2 * 32;
/// Dynamic shared memory of a block, which has a multiprocessor to itself.
inline constexpr int kSpreadChainShared = (227 << 10) - (4 << 10);

/// A convolution of a chain. Values: what the chain reads comes first, then what its convolutions compute.
struct SpreadChainConv {
  ConvShape shape;  ///< in_c in units of 16 bits
  int x = 0, residual = -1;
  int output_bytes = 1;  ///< of an element
};

struct SpreadChainPlan {
  std::vector<SpreadPlan> plans;     ///< of the convolutions
  std::vector<std::int64_t> values;  ///< where their outputs lie, in bytes, all apart; not the last one's
  std::int64_t values_bytes = 0;
  // Offsets in dynamic shared memory: two places for weights come first.
  int weights_bytes = 0, places_bytes = 0;  ///< of one of two
  int x = 0, zeros = 0, places = 0, sums = 0, received = 0;
  int shared_bytes = 0;
  int rounds = 0;  ///< of tiles that the busiest block computes, one after the other
};

/// blocks: that there are at once, a multiple of kSpreadCluster. inputs: how many values the chain reads. The reason
/// where there is no plan.
std::variant<SpreadChainPlan, std::string> plan_spread_chain(const std::vector<SpreadChainConv>& convs, int inputs,
                                                             int blocks);

}  // namespace pipit::cuda
