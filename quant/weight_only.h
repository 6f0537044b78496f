// From a float graph to one whose fully connected layers and 1x1 convolutions hold their weights in 8 or 4 bits.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/platform/thread_pool.h"
#include "layers/ops/weight_only.h"
#include "layers/passes/passes.h"

namespace pipit::internal {

/// Weights as layers/ops/weight_only.h stores them.
struct StoredWeights {
  Tensor integers;
  Tensor scales;
};

/// `weights`: row-major [outputs, K]. Per output and group of K:
///  - 8 bits: scale = the largest magnitude / 127, integers in [-127, 127];
///  - 4 bits: of the scales +-f m / 8 (f from 1 down to 0.8, the largest magnitude m at -8) and f m / 7, the one with
///    the least squared error; integers in [-8, 7].
/// Integers are rounded to nearest, ties to even. In 4 bits, after that, some of the weights nearest to the middle
/// between two integers go to the other one, so that the errors of a row add up to less than one step (after SQuant,
/// Guo et al., ICLR 2022, which needs no data either). A group of zeros has scale 1. Throws Error for a weight that is
/// not finite. Rows are shared out over `pool`.
StoredWeights store_weights(const WeightFormat& format, std::int64_t outputs, std::span<const float> weights,
                            ThreadPool& pool);

/// Weights that are integers already, [outputs, K], and their scales, [outputs, format.groups(K)], as they are stored.
StoredWeights pack_weights(const WeightFormat& format, std::int64_t outputs,
                           std::span<const std::int8_t> integers, std::span<const float> scales);

/// The integers of stored weights: row-major [outputs, depth].
std::vector<std::int8_t> stored_integers(const WeightFormat& format, const StoredWeights& stored,
                                         std::int64_t depth);

/// A layer whose weights are integers already.
struct StoredLayer {
  StoredWeights weights;
  std::vector<float> bias;  ///< or empty
};

struct WeightOnlyOptions {
  int bits = 8;
  /// 4 bits only: neighbouring weights that share a scale; 0: 32 in convolutions, 128 in fully connected layers.
  std::int64_t group_size = 0;
  DeviceKind device =
      DeviceKind::cpu;  ///< that runs the layers; those that it has no kernel for stay as they are
};

/// How a layer stores its weights. With few inputs (64 at most) always in 8 bits: there is little to save, and rounding
/// to 4 costs such layers the most.
WeightFormat weight_format(const WeightOnlyOptions& options, bool convolution, std::int64_t inputs);

/// weight_format() of a node whose weights store_weights_only() stores; nothing where the node stays as it is.
std::optional<WeightFormat> stored_format(const Graph& graph, const Node& node,
                                          const WeightOnlyOptions& options);

/// Turns every Gemm, MatMul and ungrouped Conv of one tap with constant weights into WLinear or WConv. The other nodes
/// stay as they are. No calibration: activations remain f32. Weights that `graph` alone holds are freed one by one, so
/// that a graph handed over (std::move) is never held twice. `rounded`: integers for the nodes of these
/// names, in their stored_format(), instead of those of store_weights().
Rewritten store_weights_only(Graph graph, const WeightOnlyOptions& options, ThreadPool& pool,
                             std::map<std::string, StoredLayer> rounded = {});

}  // namespace pipit::internal
