// Two networks side by side, layer by layer: the dense one, and one whose layers are changed meanwhile.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "engine/graph/graph.h"
#include "engine/platform/thread_pool.h"
#include "layers/ops/clamp.h"
#include "sparsity/gram.h"
#include "sparsity/replace_weights.h"

namespace pipit::internal {

struct WalkOptions {
  /// Which columns are sampled; the same for every run of the same images.
  std::uint64_t seed = 1;
  /// Columns of a layer over all inputs: as many as cost about `work` multiplications (columns * depth^2), but at least
  /// `least` * depth and at most `most_columns`, and no more than there are.
  double work = 2e10;
  double least = 4;
  std::int64_t most_columns = 65'536;
  int threads = 0;
};

/// The depth of the largest layers that sums are held of: each of a few matrices takes 8 * depth^2 bytes.
constexpr std::int64_t most_depth() {
  return 6144;
}

/// A layer with constant weights, as the walk comes to it.
class WalkedLayer {
 public:
  virtual ~WalkedLayer() = default;
  virtual const Node& node() const = 0;
  /// One per group of a convolution. The columns are what the layer reads in the changed network; y is what it computes
  /// in the dense one, plus what the dense residual (fused into the layer) has more than the changed one: a layer that
  /// computes y takes back the errors of all layers before it. Images are added up in the order of the inputs.
  virtual std::vector<Gram> sums() const = 0;
  /// What the layer does to its outputs at last; nothing (Clamp::is_identity()) where that is no clamp.
  virtual Clamp activation() const = 0;
  /// Gives sums() new targets t instead of y, so that only what passes the activation counts: where the activation
  /// bounds y (ReLU: y <= 0), t is what `weights` compute while that is out of bounds on the same side, else the bound.
  /// Let e be the squared error of which a column counts nothing where both are out on the same side, and what lies
  /// inside of the bound where only y is out. The squared distance from t is at least e for any weights, and equal to e
  /// for `weights`; so fitting weights to t and setting t by them in turns lowers e every time, down to its least
  /// value, for e is convex.
  /// (X. Zhang et al., "Accelerating very deep convolutional networks", 2015, take such turns with a penalty.)
  virtual void bound_targets(std::vector<Gram>& sums, const NewWeights& weights) const = 0;
  /// Whether both networks have computed the same up to here.
  virtual bool untouched() const = 0;
};

/// What becomes of the layer in the changed network; nothing: it stays as it is.
using VisitLayer = std::function<std::optional<NewWeights>(const WalkedLayer&)>;

/// Changes a value that the changed network has computed, or its input, before anything reads it, in place.
using ChangeValue = std::function<void(ValueId id, Tensor& value)>;

/// Walks through `graph` (as fuse() leaves it, without layouts) on `inputs`, each the one f32 input of a run, and
/// returns the changed graph. The values between the layers are held for all inputs, each until its last reader has
/// read it, and only once as long as the networks have not parted: memory is twice the widest cut through the graph
/// times the inputs, and one layer's sums, 8 (depth + 1)^2 bytes. `progress` is called after every node, `change` for
/// every value of every run of the changed network, if that is not empty.
///
/// A. Aghasi et al. (Net-Trim, NeurIPS 2017) and Y. He et al. (Channel pruning, ICCV 2017) go through networks like
/// this. Throws Error when the graph has more than one input.
Graph walk_layers(const Graph& graph, std::vector<Tensor> inputs, const WalkOptions& options,
                  const VisitLayer& visit,
                  const std::function<void(std::int64_t done, std::int64_t total)>& progress = {},
                  const ChangeValue& change = {});

/// The bytes that walk_layers() holds of values for one input, at most.
std::size_t walk_bytes(const Graph& graph);

}  // namespace pipit::internal
