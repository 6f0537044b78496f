// One convolution by itself, and what structured pruning leaves of it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/graph/graph.h"
#include "engine/platform/thread_pool.h"
#include "layers/ops/conv.h"
#include "pipit/sweep.h"
#include "sparsity/eliminate.h"
#include "sparsity/replace_weights.h"

namespace pipit::internal::detail {

/// y = conv(x, w) + bias, of one group.
struct SparseLayer {
  std::string name;
  ConvAttributes attributes;  ///< no activation
  Shape x;                    ///< [N, C, H, W]
  NewWeights weights;         ///< [O, C, kernel...], [O]

  Shape output() const { return window_output_shape(attributes.window, x, weights.weights.shape()[0]); }
};

/// "16x64x56x56:128x3x3" with ":s2", ":p0", ":d2" appended as needed: input [N, C, H, W], outputs and kernel; stride
/// and dilation are 1, padding half of what the kernel reaches over. Weights are pseudo-random, always the same, of
/// standard deviation (C * taps)^-1/2. Throws Error, naming the part, for anything else, and for layers of more than
/// 2^31 elements.
SparseLayer parse_layer(const std::string& spec);
/// The same without weights, of which the shape alone is checked.
SparseLayer parse_geometry(const std::string& spec, Shape& weights);

/// The convolutions of a graph that fuse() made with one group and at least 8 input channels, with their own weights.
std::vector<SparseLayer> convolutions_of(const Graph& graph);

/// tools::sparsity_mode_name() the other way round. Throws Error for another name.
tools::SparsityMode sparsity_mode(std::string_view name);

struct SelectionOptions {
  Importance importance = Importance::second_order;
  std::int64_t group = 1;   ///< neighbouring input channels that fall together, but for input
  std::int64_t panel = 16;  ///< outputs that share rows, for k_panel and input_panel
  std::int64_t block = 16;  ///< outputs of a block
};

/// What is left of a layer.
struct PrunedLayer {
  NewWeights weights;                 ///< of the dense layer's shape, zeros where something was removed
  std::vector<std::int64_t> outputs;  ///< that are left
  std::vector<std::int64_t> inputs;   ///< the same of the input channels
  double kept = 1;                    ///< share of the multiply-accumulates
};

/// Chooses and refits, from the columns of one input.
class LayerPruner {
 public:
  /// `x`: row-major f32 of layer.x. Both have to outlive this.
  LayerPruner(const SparseLayer& layer, const Tensor& x, ThreadPool& pool);

  /// Keeps the nearest number of groups to `share` of them (at least 0.05, and one group). With `refit` the kept
  /// weights and the bias solve least squares on the dense outputs: not for channel and block, which leave other
  /// outputs as they are.
  PrunedLayer prune(tools::SparsityMode mode, double share, const SelectionOptions& options, bool refit);
  static bool refits(tools::SparsityMode mode) {
    return mode != tools::SparsityMode::channel && mode != tools::SparsityMode::block;
  }

 private:
  struct Path {
    std::int64_t first = 0;  // outputs of the panel
    std::int64_t outputs = 0;
    std::vector<std::vector<int>> groups;  // positions in a column
    std::vector<int> order;                // in which groups fall
  };
  const std::vector<Path>& paths(tools::SparsityMode mode, const SelectionOptions& options);
  std::vector<Path> find_paths(tools::SparsityMode mode, const SelectionOptions& options);
  Path output_path(tools::SparsityMode mode, const SelectionOptions& options) const;

  const SparseLayer& layer_;
  ThreadPool& pool_;
  Gram gram_;
  std::vector<double> inverse_;
  std::map<std::string, std::vector<Path>> paths_;
};

}  // namespace pipit::internal::detail
