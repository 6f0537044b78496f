#include "pipit/pruning/pruning.h"

#include <algorithm>

#include "engine/base/error.h"
#include "layers/passes/real_weights.h"
#include "sparsity/remove_channels.h"
#include "sparsity/replace_weights.h"

namespace pipit::internal::detail {

namespace {

// Limits of sketch(): measuring many selections may take a tenth of the work for the one that is written.
constexpr std::size_t kSketchRuns = 64;
constexpr double kSketchWork = 1e9;
constexpr double kSketchMin = 1;
constexpr std::int64_t kSketchColumns =
    4096;  // what many groups of shallow columns take most of the time for

void add_removals(Removals& to, const Removals& from) {
  for (const auto& [node, removal] : from) {
    const auto found = to.try_emplace(node, removal);
    if (found.second) continue;
    for (std::size_t i = 0; i < removal.weights.size(); ++i)
      found.first->second.weights[i] |= removal.weights[i];
    for (std::size_t o = 0; o < removal.outputs.size(); ++o)
      found.first->second.outputs[o] |= removal.outputs[o];
  }
}

std::vector<Tensor> copies_of(const std::vector<Tensor>& images) {
  std::vector<Tensor> copies;
  for (const Tensor& image : images) copies.push_back(image.clone());
  return copies;
}

}  // namespace

std::vector<std::size_t> sketch_runs(std::size_t runs) {
  const std::size_t count = std::clamp<std::size_t>(runs / 2, 1, kSketchRuns);
  std::vector<std::size_t> chosen;
  for (std::size_t i = 0; i < count; ++i) chosen.push_back(i * runs / count);
  return chosen;
}

Pruning::Pruning(Graph dense, std::vector<Tensor> images, PruningOptions options,
                 const PruneCompiler& compiler, const ImagesDone& progress)
    : dense_(std::move(dense)), images_(std::move(images)), options_(options), compiler_(compiler) {
  paths_ = find_paths(dense_, copies_of(images_), options_.path, progress);
}

std::vector<Tensor> Pruning::sketch_inputs() const {
  std::vector<Tensor> copies;
  for (const std::size_t run : sketch_runs(images_.size())) copies.push_back(images_[run].clone());
  return copies;
}

double Keeps::of(const PruningPath& path) const {
  const std::map<std::string, double>& layers = rows[index(path.kind())];
  const auto layer = layers.find(path.node);
  return layer == layers.end() ? 1 : layer->second;
}

std::vector<const PruningPath*> paths_of_kind(const std::vector<PruningPath>& paths, RowKind kind) {
  std::vector<const PruningPath*> chosen;
  for (const PruningPath& path : paths) {
    if (chosen.empty() || chosen.back()->node != path.node) {
      chosen.push_back(&path);
    } else if (path.kind() == kind) {
      chosen.back() = &path;
    }
  }
  return chosen;
}

Keeps Pruning::uniform(double share, RowKind kind) const {
  Keeps keeps;
  for (const PruningPath* path : paths_of_kind(paths_.rows, kind))
    keeps.rows[index(path->kind())][path->node] = share;
  for (std::size_t f = 0; f < paths_.channels.size(); ++f) keeps.channels[f] = share;
  return keeps;
}

PruningMask Pruning::mask_of(const Keeps& keeps) const {
  PruningMask mask;
  for (const PruningPath& path : paths_.rows) {
    if (keeps.of(path) < 1) mask.push_back(path.keep(keeps.of(path)));
  }
  return mask;
}

std::vector<bool> Pruning::removed_channels(const Keeps& keeps) const {
  std::vector<bool> removed(paths_.groups.groups.size(), false);
  bool any = false;
  for (const auto& [family, share] : keeps.channels) {
    const ChannelPath& path = paths_.channels.at(family);
    for (std::size_t i = 0; i < path.falling(share, options_.multiple); ++i) {
      removed[static_cast<std::size_t>(path.order[i])] = true;
      any = true;
    }
  }
  return any ? removed : std::vector<bool>();
}

Keeps Pruning::global(double share) const {
  // Steps of all layers by their loss per weight, until enough weights have gone.
  struct Fall {
    double loss = 0;  // per weight
    double weights = 0;
    double kept = 0;  // share of the layer that stays with it
    std::size_t path = 0;
  };
  std::vector<Fall> falls;
  double all = 0, left = 0;
  Keeps keeps;
  for (std::size_t p = 0; p < paths_.rows.size(); ++p) {
    const PruningPath& path = paths_.rows[p];
    const auto weights =
        static_cast<double>(real_weights(dense_, weighted_node(dense_, path.node)).shape.elements());
    all += weights;
    left += path.dense * weights;
    double lost = 0, kept = path.dense, worst = 0;
    for (std::size_t i = 0; i < path.loss.size(); ++i) {
      const double each = (kept - path.kept[i]) * weights;
      if (each > 0) {
        worst = std::max(worst, (path.loss[i] - lost) / each);  // in the order of the path
        falls.push_back({worst, each, path.kept[i], p});
      }
      lost = path.loss[i];
      kept = path.kept[i];
    }
  }
  std::stable_sort(falls.begin(), falls.end(), [](const Fall& a, const Fall& b) { return a.loss < b.loss; });
  for (const Fall& fall : falls) {
    if (left - fall.weights < share * all) break;
    left -= fall.weights;
    keeps.rows[index(paths_.rows[fall.path].kind())][paths_.rows[fall.path].node] = fall.kept;
  }
  return keeps;
}

std::vector<Branch> Pruning::branches_of(const Keeps& keeps) const {
  std::vector<Branch> chosen;
  for (Branch& branch : find_branches(dense_)) {
    if (keeps.branches.contains(dense_.nodes()[static_cast<std::size_t>(branch.last)].name))
      chosen.push_back(std::move(branch));
  }
  return chosen;
}

PrunedGraph Pruning::prune(const Keeps& keeps, std::vector<Tensor> images, const RemovalOptions& how,
                           const ImagesDone& progress) const {
  Removals removals = removals_of(dense_, mask_of(keeps));
  const std::vector<bool> channels = removed_channels(keeps);
  if (!channels.empty()) add_removals(removals, removals_of(dense_, paths_.groups, channels));
  add_removals(removals, removals_of(dense_, branches_of(keeps)));
  Remaining remaining = remove_and_refit(dense_, std::move(images), removals, how, progress);
  if (!channels.empty())
    remaining.graph = remove_channels(remaining.graph, find_channel_groups(remaining.graph), channels);
  remaining.graph = remove_branches(remaining.graph, keeps.branches);
  return {std::move(remaining.graph), std::move(remaining.errors), std::nullopt};
}

PrunedGraph Pruning::prune(const Keeps& keeps, const ImagesDone& progress) const {
  return prune(keeps, copies_of(images_), options_.removal, progress);
}

WalkOptions Pruning::sketch_walk() const {
  WalkOptions walk = options_.removal.walk;
  walk.work = kSketchWork;
  walk.least = kSketchMin;
  walk.most_columns = kSketchColumns;
  return walk;
}

PrunedGraph Pruning::sketch(const Keeps& keeps) const {
  RemovalOptions how = options_.removal;
  how.walk = sketch_walk();
  how.turns = 0;
  return prune(keeps, sketch_inputs(), how, {});
}

}  // namespace pipit::internal::detail
