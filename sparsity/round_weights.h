// Integer weights of a layer that change its outputs least, instead of the nearest integers.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/platform/thread_pool.h"
#include "sparsity/gram.h"
#include "sparsity/replace_weights.h"

namespace pipit::internal {

/// The weights of a layer as integers: weight (o, k) is integers[o * K + k] * scales[o * groups + k / group], for rows
/// of K weights in ceil(K / group) groups.
struct IntegerWeights {
  std::vector<std::int8_t> integers;  ///< [O, K]
  std::vector<float> scales;          ///< [O, groups]; not 0, may be negative
  std::vector<float> bias;            ///< [O], or empty
};

/// Which integers there are, and what may change.
struct RoundingGrid {
  int low = -127;  ///< at least -128
  int high = 127;
  std::size_t group = 0;     ///< neighbouring weights of a row that share a scale; at least 1
  bool keep_scales = false;  ///< scales stay what they are
  bool adjust_bias = true;   ///< biases compensate for the change of mean outputs; false for MatMul
};

struct RoundingOptions {
  /// What a weight may cost to move away from the one it was, as a share of the mean variance of what the layer reads;
  /// `scarcity` * depth / columns is added, so that with few columns weights stay near what they were.
  double damping = 0.01;
  double scarcity = 0.05;
};

/// Rounds the weights of a layer so that its outputs stay near the targets of `sums`, one per group of the
/// convolution. With e the error of a row, H the sums of columns (with adjust_bias: of columns less their means, since
/// the bias takes the mean) and c the damping, each row of the result has a sum of e^T (H + c) e that is at most that
/// of `nearest`, whose integers and scales are where it begins.
///
/// Weights are rounded one after the other, the error of each carried over to those that are not rounded yet (OBQ,
/// Frantar and Alistarh 2022; GPTQ, Frantar et al. 2023). Here the factor is that of H + c itself, with the weights in
/// the opposite order: the same integers as with the factor of its inverse (J. Chen et al., 2025, on Babai's nearest
/// plane), and no inverse. The weights whose inputs vary most go first. Then single integers, and the scales of groups,
/// are changed as long as that lowers the error.
///
/// Weights that are 0 in `dense` stay 0: kernels leave them out. A group whose columns are all zero keeps `nearest`.
/// Rows are shared out over `pool`, each computed by one thread: the same bits for any number of threads. Throws Error
/// where sums are not finite, or sizes do not fit.
IntegerWeights round_weights(const std::vector<Gram>& sums, const NewWeights& dense,
                             const IntegerWeights& nearest, const RoundingGrid& grid,
                             const RoundingOptions& options, ThreadPool& pool);

/// The real numbers that they stand for, of that shape.
NewWeights real_values(const IntegerWeights& weights, const Shape& shape, std::size_t group);

}  // namespace pipit::internal
