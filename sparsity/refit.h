// New values for the weights that are kept: least squares, no training.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sparsity/gram.h"
#include "sparsity/replace_weights.h"

namespace pipit::internal {

struct RefitOptions {
  /// What a weight may cost to move away from the one it was, as a share of the mean variance of what the layer reads;
  /// `scarcity` * depth / columns is added, so that with few columns the weights stay near what they were.
  double ridge = 1e-4;
  double scarcity = 0.05;
};

/// For every output the kept weights w and bias b that minimize the sum over columns of (y - w x - b)^2 plus the ridge
/// of (w - dense)^2; removed weights are 0, and rows of zeros in `dense` stay so (zero_rows()). (Least squares on a
/// dense layer's outputs is the reconstruction of Channel pruning, He et al. 2017, and of ThiNet, Luo et al. 2017.)
/// `sums`: one per group of the convolution. `removed`: one mark per weight, or empty. `dead`: outputs that become 0,
/// with their biases, or empty. Without `with_bias` b stays as it is: for MatMul. Outputs with the same kept weights
/// share one factorization.
NewWeights refit(const std::vector<Gram>& sums, const NewWeights& dense,
                 std::span<const std::uint8_t> removed, std::span<const std::uint8_t> dead, bool with_bias,
                 const RefitOptions& options, ThreadPool& pool);

}  // namespace pipit::internal
