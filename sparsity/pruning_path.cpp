#include "sparsity/pruning_path.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "engine/base/error.h"
#include "layers/ops/conv.h"
#include "layers/passes/real_weights.h"
#include "layers/passes/rewriter.h"

namespace pipit::internal {

namespace {

constexpr std::int64_t kMinChannels = 8;
// With AVX-512, whose registers hold as many outputs, and as many neighbours of which each picks one.
constexpr std::int64_t kPickOutputs = 16;
constexpr std::int64_t kPickChannels = 16;

// Multiplications for one choice.
double elimination_work(std::size_t depth) {
  return std::pow(static_cast<double>(depth), 3) / 3;
}

// Outputs that share a choice: a multiple of the panel.
std::int64_t chosen_panel(const PathOptions& options, std::int64_t least, std::int64_t outputs,
                          std::size_t depth) {
  if (least == 0) return outputs;
  const double each = elimination_work(depth);
  std::int64_t panel = least;
  while (panel < outputs &&
         each * std::ceil(static_cast<double>(outputs) / static_cast<double>(panel)) > options.work)
    panel *= 2;
  return std::min(panel, outputs);
}

// LayerMask::panel.
std::int64_t panel_of(MaskMode mode, const PathOptions& options, std::int64_t outputs, std::size_t depth) {
  const bool shared =
      options.panel == 1 && (mode == MaskMode::input || chosen_panel(options, 1, outputs, depth) > 1);
  return shared ? options.shared_panel : options.panel;
}

// Whether a layer has a path of single outputs besides that of its panels.
bool has_single_outputs(const PathOptions& options, std::int64_t outputs, std::size_t depth) {
  return options.single_outputs && options.panel != 1 && outputs > 1 &&
         elimination_work(depth) * static_cast<double>(outputs) <= options.single_work;
}

// Positions in a column of the mask's groups of one panel: of its first marks.
std::vector<std::vector<int>> groups_of(const LayerMask& mask, const Shape& shape) {
  const std::int64_t taps = shape.elements() / (shape[0] * shape[1]);
  std::vector<std::vector<int>> groups(mark_of(mask, shape, 1, 0, shape[1] - 1, taps - 1) + 1);
  for (std::int64_t i = 0; i < shape[1]; ++i) {
    for (std::int64_t tap = 0; tap < taps; ++tap)
      groups[mark_of(mask, shape, 1, 0, i, tap)].push_back(static_cast<int>(i * taps + tap));
  }
  return groups;
}

// The number of weights other than zero of every mark of a mask.
std::vector<std::int64_t> count_nonzeros(const RealWeights& weights, const LayerMask& mask) {
  const Shape& shape = weights.shape;
  const std::int64_t taps = shape.elements() / (shape[0] * shape[1]);
  std::vector<std::int64_t> counts(mask.removed.size(), 0);
  const float* value = weights.values().data();
  for (std::int64_t o = 0; o < shape[0]; ++o) {
    for (std::int64_t i = 0; i < shape[1]; ++i) {
      for (std::int64_t tap = 0; tap < taps; ++tap)
        counts[mark_of(mask, shape, 1, o, i, tap)] += *value++ != 0 ? 1 : 0;
    }
  }
  return counts;
}

// `least`: LayerMask::panel.
PruningPath path_of(const Node& node, MaskMode mode, std::int64_t least, const RealWeights& weights,
                    const Gram& gram, const std::vector<double>& inverse, const PathOptions& options,
                    ThreadPool& pool) {
  PruningPath path;
  path.node = node.name;
  path.mask = {path.node, mode, options.channels, least >= weights.shape[0] ? 0 : least, {}};
  const std::vector<std::vector<int>> groups = groups_of(path.mask, weights.shape);
  path.mask.removed.assign(mask_size(path.mask, weights.shape, 1), 0);
  const std::int64_t together = chosen_panel(options, least, weights.shape[0], gram.depth);
  const auto choices = static_cast<std::size_t>((weights.shape[0] + together - 1) / together);
  std::vector<Elimination> paths(choices);
  pool.parallel_for(static_cast<std::int64_t>(choices), [&](std::int64_t c, int) {
    const auto first = static_cast<std::size_t>(c * together) * gram.depth;
    const auto last =
        std::min(first + static_cast<std::size_t>(together) * gram.depth, weights.values().size());
    paths[static_cast<std::size_t>(c)] =
        eliminate(gram, inverse,
                  {weights.values().begin() + static_cast<std::ptrdiff_t>(first),
                   weights.values().begin() + static_cast<std::ptrdiff_t>(last)},
                  groups, options.elimination);
  });
  const double variance = gram.variance();
  const std::int64_t panel = path.mask.panel == 0 ? weights.shape[0] : path.mask.panel;
  const auto panels = static_cast<int>((weights.shape[0] + panel - 1) / panel);
  const auto each = static_cast<int>(together / panel);  // panels that share a choice
  const std::vector<std::int64_t> nonzeros = count_nonzeros(weights, path.mask);
  const auto all = static_cast<double>(weights.values().size());
  auto left = static_cast<double>(std::accumulate(nonzeros.begin(), nonzeros.end(), std::int64_t{0}));
  path.dense = left / all;
  for (std::size_t mark = 0; mark < nonzeros.size(); ++mark) {
    if (nonzeros[mark] != 0) continue;
    path.order.push_back(static_cast<int>(mark));
    path.loss.push_back(0);
    path.kept.push_back(path.dense);
  }
  double loss = 0;
  const bool single = path.mask.panel == 1;
  for (const PanelStep& step :
       single ? balance_paths(paths, weights.shape[1], kPickOutputs, kPickChannels) : merge_paths(paths)) {
    const int first = step.panel * each;
    const int last = std::min(first + std::max(each, 1), panels);
    for (int p = first; p < last; ++p) {
      loss += step.loss / (last - first);
      const int mark = p * static_cast<int>(groups.size()) + step.group;
      const std::int64_t falls = nonzeros[static_cast<std::size_t>(mark)];
      if (falls == 0 || static_cast<double>(falls) == left)
        continue;  // a layer is never left without weights
      left -= static_cast<double>(falls);
      path.order.push_back(mark);
      path.loss.push_back(variance > 0 ? loss / variance : 0);
      path.kept.push_back(left / all);
    }
  }
  return path;
}

}  // namespace

RowKind PruningPath::kind() const {
  if (mask.mode == MaskMode::input) return RowKind::inputs;
  return mask.panel == 1 ? RowKind::single : RowKind::taps;
}

std::size_t PruningPath::falling(double share) const {
  if (!(share > 0 && share <= 1)) fail("a share of {} to keep: expected above 0 and at most 1", share);
  if (share >= dense) return 0;
  const auto first = std::lower_bound(kept.begin(), kept.end(), share, std::greater<>());
  if (first == kept.end()) return order.size();
  const double before = first == kept.begin() ? dense : *std::prev(first);
  const auto falls = static_cast<std::size_t>(first - kept.begin());
  return before - share < share - *first ? falls : falls + 1;
}

LayerMask PruningPath::keep(double share) const {
  LayerMask made = mask;
  for (std::size_t i = 0; i < falling(share); ++i) made.removed[static_cast<std::size_t>(order[i])] = 1;
  return made;
}

double PruningPath::loss_at(double share) const {
  const std::size_t falls = falling(share);
  return falls == 0 ? 0 : loss[falls - 1];
}

bool may_run_winograd(const Node& node) {
  const auto* conv = layer_if<Conv>(node);
  if (conv == nullptr || conv->attributes().groups != 1) return false;
  Window plain = conv->attributes().window;
  plain.kernel = {3, 3, 1};
  plain.stride = plain.dilation = Window().stride;
  return plain.rank == 2 && plain == conv->attributes().window;
}

std::vector<std::string> prunable_layers(const Graph& graph) {
  std::vector<std::string> names;
  for (const Node& node : graph.nodes()) {
    if (!has_constant_weights(graph, node)) continue;
    const auto* conv = layer_if<Conv>(node);
    if (conv != nullptr && conv->attributes().groups != 1) continue;
    const auto is = [](const std::vector<ValueId>& list, ValueId id) {
      return std::find(list.begin(), list.end(), id) != list.end();
    };
    if (is(graph.inputs(), node.inputs[0]) || is(graph.outputs(), node.outputs[0])) continue;
    const Shape shape = real_weights(graph, node).shape;
    if (shape[1] >= kMinChannels && shape.elements() / shape[0] <= most_depth()) names.push_back(node.name);
  }
  return names;
}

Paths find_paths(const Graph& graph, std::vector<Tensor> inputs, const PathOptions& options,
                 const std::function<void(std::int64_t done, std::int64_t total)>& progress) {
  const std::vector<std::string> layers = options.rows ? prunable_layers(graph) : std::vector<std::string>();
  Paths paths;
  std::vector<ChannelFamily> families;
  if (options.families || options.streams) {
    paths.groups = find_channel_groups(graph);
    families = find_families(graph, paths.groups);
    std::erase_if(families, [&](const ChannelFamily& family) {
      return family.stream ? !options.streams : !options.families;
    });
  }
  std::vector<std::vector<EliminationPart>> read(families.size());
  paths.channels.resize(families.size());
  const std::shared_ptr<ThreadPool> pool = shared_pool(options.walk.threads);
  const auto visit = [&](const WalkedLayer& layer) -> std::optional<NewWeights> {
    const Node& node = layer.node();
    const auto number = static_cast<int>(&node - graph.nodes().data());
    const bool rows = std::find(layers.begin(), layers.end(), node.name) != layers.end();
    const bool reads = std::any_of(families.begin(), families.end(), [&](const ChannelFamily& family) {
      return family.readers.contains(number);
    });
    if (!rows && !reads) return std::nullopt;
    const Gram gram = layer.sums().at(0);
    std::vector<double> inverse;
    if (options.elimination.importance == Importance::second_order)
      inverse = covariance_inverse(gram, options.elimination, *pool);
    const bool channels = options.taps != RowTaps::single && may_run_winograd(node);
    for (const MaskMode mode : {MaskMode::k, MaskMode::input}) {
      const bool wanted = mode == MaskMode::input ? channels : !channels || options.taps == RowTaps::both;
      if (!rows || !wanted) continue;
      const RealWeights weights = real_weights(graph, node);
      const auto add = [&](std::int64_t panel) {
        paths.rows.push_back(path_of(node, mode, panel, weights, gram, inverse, options, *pool));
      };
      add(panel_of(mode, options, weights.shape[0], gram.depth));
      if (mode == MaskMode::k && has_single_outputs(options, weights.shape[0], gram.depth)) add(1);
    }
    for (std::size_t f = 0; f < families.size(); ++f) {
      if (!families[f].readers.contains(number)) continue;
      read[f].push_back(channels_in(graph, paths.groups, families[f], number, gram, inverse));
      if (read[f].size() == families[f].readers.size())
        paths.channels[f] =
            order_channels(std::move(families[f]), std::move(read[f]), options.elimination, options.block);
    }
    return std::nullopt;
  };
  walk_layers(graph, std::move(inputs), options.walk, visit, progress);
  return paths;
}

}  // namespace pipit::internal
