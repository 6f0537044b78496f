#include "apps/measuring/pruning.h"

#include <algorithm>
#include <array>

#include "apps/measuring/timing.h"
#include "engine/base/error.h"
#include "layers/ops/matmul.h"
#include "layers/passes/real_weights.h"
#include "layers/passes/rewriter.h"
#include "sparsity/replace_weights.h"

namespace pipit::apps {

namespace {

constexpr std::array kShares{1.0, 0.85, 0.75, 0.65, 0.5, 0.35, 0.25, 0.15};
constexpr double kProbed = 0.5;  // the share that a layer keeps to measure what its loss does to the output
constexpr int kCandidateRuns = 15;

double time_of(const std::map<std::string, double>& times, const std::string& node) {
  const auto found = times.find(node);
  return found == times.end() ? 0 : found->second;
}

}  // namespace

Pruning::Pruning(Graph dense, std::vector<Tensor> images, PruningOptions options, CompileOptions compiling,
                 const ProgressReport& progress)
    : dense_(std::move(dense)),
      images_(std::move(images)),
      options_(std::move(options)),
      compiling_(std::move(compiling)) {
  paths_ = find_paths(dense_, inputs(), options_.path, progress);
}

std::vector<Tensor> Pruning::inputs() const {
  std::vector<Tensor> copies;
  for (const Tensor& image : images_) copies.push_back(image.clone());
  return copies;
}

Keeps Pruning::uniform(double share) const {
  Keeps keeps;
  for (const PruningPath& path : paths_) keeps.rows[path.node] = share;
  return keeps;
}

Keeps Pruning::global(double share) const {
  // Steps of all layers by their loss per weight, until enough weights have gone.
  struct Fall {
    double loss = 0;  // per weight
    double weights = 0;
    std::size_t path = 0;
  };
  std::vector<Fall> falls;
  double all = 0;
  for (std::size_t p = 0; p < paths_.size(); ++p) {
    const PruningPath& path = paths_[p];
    const auto weights =
        static_cast<double>(real_weights(dense_, weighted_node(dense_, path.node)).shape.elements());
    const double each = weights / static_cast<double>(path.mask.removed.size());
    all += weights;
    double before = 0, worst = 0;
    for (const double loss : path.loss) {
      worst = std::max(worst, (loss - before) / each);  // in the order of the path
      falls.push_back({worst, each, p});
      before = loss;
    }
  }
  std::stable_sort(falls.begin(), falls.end(), [](const Fall& a, const Fall& b) { return a.loss < b.loss; });
  std::vector<double> gone(paths_.size(), 0);
  double left = all;
  for (const Fall& fall : falls) {
    if (left - fall.weights < share * all) break;
    left -= fall.weights;
    ++gone[fall.path];
  }
  Keeps keeps;
  for (std::size_t p = 0; p < paths_.size(); ++p)
    keeps.rows[paths_[p].node] = 1 - gone[p] / static_cast<double>(paths_[p].mask.removed.size());
  return keeps;
}

PrunedModel Pruning::prune(const Keeps& keeps, const ProgressReport& progress) const {
  PruningMask mask;
  for (const PruningPath& path : paths_) {
    const auto found = keeps.rows.find(path.node);
    if (found != keeps.rows.end() && found->second < 1) mask.push_back(path.keep(found->second));
  }
  Remaining remaining =
      remove_and_refit(dense_, inputs(), removals_of(dense_, mask), options_.removal, progress);
  return {std::move(remaining.graph), std::move(remaining.errors)};
}

std::shared_ptr<const ExecutionPlan> Pruning::compiled(const Graph& graph) const {
  return compile(graph, compiling_).plans.at(0);
}

Pruning::Budget Pruning::budget(PreparedImages& probe, const ProgressReport& progress) const {
  const Tensor batch = first_batch(probe);
  const ImageOutputs reference = run_outputs(compiled(dense_), probe);
  const auto total = static_cast<std::int64_t>(kShares.size() + 2 * paths_.size());
  std::int64_t done = 0;

  std::vector<std::map<std::string, double>> times;
  for (const double share : kShares) {
    PruningMask mask;
    for (const PruningPath& path : paths_) mask.push_back(path.keep(share));
    times.push_back(
        step_times(compiled(share < 1 ? apply_mask(dense_, mask) : dense_), batch.view(), kCandidateRuns));
    progress(++done, total);
  }
  // Every layer alone: refitted on the dense network's inputs, so that its error is the one that its path promises.
  std::vector<double> noise_per_loss(paths_.size(), 0);
  std::map<std::string, NewWeights> alone;
  const std::shared_ptr<ThreadPool> pool = shared_pool(options_.removal.walk.threads);
  walk_layers(dense_, inputs(), options_.removal.walk,
              [&](const WalkedLayer& layer) -> std::optional<NewWeights> {
                for (const PruningPath& path : paths_) {
                  if (path.node != layer.node().name) continue;
                  const Removals removal = removals_of(dense_, {path.keep(kProbed)});
                  const std::vector<std::uint8_t>& removed = removal.at(path.node).weights;
                  const bool with_bias = layer_if<MatMul>(layer.node()) == nullptr;
                  alone.emplace(path.node, refit(layer.sums(), weights_of(dense_, layer.node()), removed, {},
                                                 with_bias, options_.removal.refit, *pool));
                  progress(++done, total);
                }
                return std::nullopt;
              });
  for (std::size_t p = 0; p < paths_.size(); ++p) {
    std::map<std::string, NewWeights> one;
    one.insert(alone.extract(paths_[p].node));
    const ImageOutputs outputs = run_outputs(compiled(replace_weights(dense_, std::move(one))), probe);
    const double loss = paths_[p].loss_at(kProbed);
    noise_per_loss[p] = loss > 0 ? relative_noise(outputs, reference) / loss : 0;
    progress(++done, total);
  }

  Budget budget;
  std::vector<std::vector<Option>> layers;
  for (const auto& [node, ms] : times[0]) budget.dense_ms += ms;
  budget.others_ms = budget.dense_ms;
  for (std::size_t p = 0; p < paths_.size(); ++p) {
    std::vector<Option>& options = layers.emplace_back();
    for (std::size_t r = 0; r < kShares.size(); ++r)
      options.push_back(
          {time_of(times[r], paths_[p].node), noise_per_loss[p] * paths_[p].loss_at(kShares[r])});
    budget.others_ms -= options[0].ms;
  }
  budget.selections = selections(layers);
  for (const Selection& selection : budget.selections) {
    Keeps& keeps = budget.keeps.emplace_back();
    for (std::size_t p = 0; p < paths_.size(); ++p) keeps.rows[paths_[p].node] = kShares[selection.chosen[p]];
  }
  return budget;
}

std::vector<Tensor> read_runs(PreparedImages& images) {
  std::vector<Tensor> runs;
  images.for_each_batch([&](const ConstTensorView& batch, std::int64_t, std::int64_t count) {
    if (batch.desc.shape[0] == count) runs.push_back(to_layout(batch, Layout::row_major));
  });
  if (runs.empty()) fail("{} images do not fill one batch of the model", images.size());
  return runs;
}

}  // namespace pipit::apps
