// Prunes a model: candidates and their times, selections of them, and the networks that come of it.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "pipit/measuring/precision_ladder.h"
#include "pipit/pruning/compiler.h"
#include "sparsity/branches.h"
#include "sparsity/pruning_path.h"
#include "sparsity/removal.h"
#include "sparsity/selection_search.h"

namespace pipit::internal::detail {

/// What is kept of what loses something, and what goes as a whole.
struct Keeps {
  std::array<std::map<std::string, double>, kRowKinds.size()> rows;  ///< by index() of the kind, per layer
  std::map<std::size_t, double> channels;  ///< per family of channels (Paths::channels)
  std::set<std::string> branches;          ///< residual branches that are left out, by their last nodes
  friend bool operator==(const Keeps&, const Keeps&) = default;

  /// Of the rows of this path: 1 where it is not named.
  double of(const PruningPath& path) const;
};

/// The paths of a kind, of layers without one of it the first, one for each layer.
std::vector<const PruningPath*> paths_of_kind(const std::vector<PruningPath>& paths, RowKind kind);

struct PruningOptions {
  PathOptions path;
  RemovalOptions removal;
  std::size_t multiple = 4;  ///< of channels that stay in a family
  bool branches = false;     ///< whether a budget may leave residual branches out
};

struct PrunedGraph {
  Graph graph;
  std::map<std::string, double> errors;    ///< Remaining::errors
  std::optional<QuantizationPlan> scales;  ///< PruneCompiler::scales()
};

/// Which of `runs` runs of images Pruning::sketch() fits on: at most 64, spread evenly, and at most half of them, so
/// that what is compared can be compared on others.
std::vector<std::size_t> sketch_runs(std::size_t runs);

/// A dense model, what can fall in it, and the images that say so.
class Pruning {
 public:
  /// `dense`: of fuse(). Finds the order in which groups fall, from `images` (read_runs()). `compiler` has to outlive
  /// this.
  Pruning(Graph dense, std::vector<Tensor> images, PruningOptions options, const PruneCompiler& compiler,
          const ImagesDone& progress);

  const Graph& dense() const { return dense_; }
  const PruneCompiler& compiler() const { return compiler_; }
  const Paths& paths() const { return paths_; }
  const PruningOptions& options() const { return options_; }
  PruningMask mask_of(const Keeps& keeps) const;
  /// One mark per group of channels, or none where all stay.
  std::vector<bool> removed_channels(const Keeps& keeps) const;
  /// Every layer that can lose rows, and every family that can lose channels, keeps this share, by paths_of_kind().
  Keeps uniform(double share, RowKind kind = RowKind::taps) const;
  /// Rows fall where the loss per weight is the least, in all layers: `share` of all weights stay. No layer has several
  /// paths.
  Keeps global(double share) const;
  /// Without scales.
  PrunedGraph prune(const Keeps& keeps, const ImagesDone& progress) const;
  /// prune() with weights that are fitted on few images (sketch_runs()) and columns (sketch_walk()): to compare.
  PrunedGraph sketch(const Keeps& keeps) const;
  /// Copies of the images of sketch_runs().
  std::vector<Tensor> sketch_inputs() const;
  WalkOptions sketch_walk() const;
  /// What there is to choose from for a budget, as SelectionSearch takes it. What is chosen at once are layers that
  /// share families of channels or a residual branch: rows of each, of one kind, channels of all their
  /// families, or nothing of the branch; and residual streams, which make all layers on them faster. Times are those of
  /// the steps of whole models in which everything, or one stream, keeps one share of a ladder. Costs are the loss of
  /// the layer times what the model's output loses per loss of this layer, measured on `probe` with that layer alone
  /// pruned and refitted; of a stream the same for all that read it; and of a branch what the output loses without it
  /// and those that cost less for their time, nothing refitted. They are there to begin with: selections are measured
  /// as a whole.
  struct Budget {
    std::vector<std::vector<Option>> options;
    std::vector<std::vector<SharedOption>> shared;
    std::vector<std::vector<Keeps>> option_keeps, shared_keeps;
    Keeps keeps_of(const Selection& selection) const;
  };
  Budget budget(PreparedImages& probe, const ImagesDone& progress) const;

 private:
  std::vector<Branch> branches_of(const Keeps& keeps) const;
  PrunedGraph prune(const Keeps& keeps, std::vector<Tensor> images, const RemovalOptions& how,
                    const ImagesDone& progress) const;
  Graph dense_;
  std::vector<Tensor> images_;
  PruningOptions options_;
  const PruneCompiler& compiler_;
  Paths paths_;
};

}  // namespace pipit::internal::detail
