// Weights in integers that keep the outputs of their layers on images: for INT8, and for weights in 8 and 4 bits.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "engine/graph/graph.h"
#include "quant/int8_weights.h"
#include "quant/quantization_plan.h"
#include "quant/weight_only.h"

namespace pipit::internal::detail {

/// The error of a layer's outputs after rounding its weights, on the images, as a share of their variance.
struct RoundingLoss {
  std::string node;
  double nearest = 0;
  double rounded = 0;
};

struct RoundingRun {
  std::vector<Tensor> images;  ///< each the one f32 input of a run; at least one
  int threads = 0;
  /// Called after every node of the graph. May be empty.
  std::function<void(std::int64_t done, std::int64_t total)> progress = {};
};

/// The weights of every layer that quantize_graph() makes a QConv of, and of no deeper layer than most_depth()
/// (sparsity/layer_walk.h): rounded by round_weights() (sparsity/round_weights.h), layer after layer, each for what it
/// reads in the quantized network, where deeper layers have the nearest integers, with activations rounded to the
/// plan's scales. An output whose bias would leave its
/// range keeps the nearest integers. `equal`: of fuse(), with the plan's equalization (quant/equalize.h). in_4_bits: as
/// in quantize_graph(). Adds to `losses` in the order of the graph. Errors name the node.
std::map<std::string, QuantizedWeights> rounded_int8_weights(const Graph& equal, const QuantizationPlan& plan,
                                                             const std::set<std::string>& in_4_bits,
                                                             RoundingRun run,
                                                             std::vector<RoundingLoss>& losses);

/// The same for the layers that store_weights_only() stores with `options`.
std::map<std::string, StoredLayer> rounded_stored_weights(const Graph& fused,
                                                          const WeightOnlyOptions& options, RoundingRun run,
                                                          std::vector<RoundingLoss>& losses);

}  // namespace pipit::internal::detail
