// Prunes a model: candidates and their times, selections of them, and the networks that come of it.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "apps/measuring/precision_ladder.h"
#include "quant/compile.h"
#include "sparsity/budget.h"
#include "sparsity/pruning_path.h"
#include "sparsity/removal.h"

namespace pipit::apps {

/// What is kept of the layers that lose something.
struct Keeps {
  std::map<std::string, double> rows;  ///< per layer, in mode k
};

struct PruningOptions {
  PathOptions path;
  RemovalOptions removal;
};

struct PrunedModel {
  Graph graph;
  std::map<std::string, double> errors;  ///< Remaining::errors
};

/// A dense model, what can fall in it, and the images that say so.
class Pruning {
 public:
  /// `dense`: of fuse(). Finds the order in which groups fall, from `images` (read_runs()).
  Pruning(Graph dense, std::vector<Tensor> images, PruningOptions options, CompileOptions compiling,
          const ProgressReport& progress);

  const Graph& dense() const { return dense_; }
  const std::vector<PruningPath>& paths() const { return paths_; }
  /// Every layer that can lose something keeps this share.
  Keeps uniform(double share) const;
  /// Every layer loses groups until the next would cost more than in the others: `share` of all weights stay.
  Keeps global(double share) const;
  PrunedModel prune(const Keeps& keeps, const ProgressReport& progress) const;
  std::shared_ptr<const ExecutionPlan> compiled(const Graph& graph) const;

  /// Selections by budget (sparsity/budget.h), from dense to fastest, with the Keeps of each. Times are those of the
  /// steps of whole models in which all layers keep one share of a ladder; costs are the loss of the layer times what
  /// the model's output loses per loss of this layer, measured on `probe` with that layer alone pruned and refitted.
  struct Budget {
    double dense_ms = 0;   ///< sum of the steps
    double others_ms = 0;  ///< of that, steps of layers that lose nothing
    std::vector<Selection> selections;
    std::vector<Keeps> keeps;
  };
  Budget budget(PreparedImages& probe, const ProgressReport& progress) const;

 private:
  std::vector<Tensor> inputs() const;
  Graph dense_;
  std::vector<Tensor> images_;
  PruningOptions options_;
  CompileOptions compiling_;
  std::vector<PruningPath> paths_;
};

/// Copies of the batches of `images`, as many whole ones as fit `most_bytes` times walk_layers()'s need, spread evenly.
std::vector<Tensor> read_runs(PreparedImages& images);

}  // namespace pipit::apps
