#include "pipit/sweeping/sparse_layer.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <random>
#include <set>

#include "engine/base/error.h"
#include "layers/passes/real_weights.h"
#include "layers/passes/rewriter.h"
#include "sparsity/columns.h"
#include "sparsity/refit.h"

namespace pipit::internal::detail {

namespace {

constexpr std::int64_t kMinChannels = 8;
constexpr double kMinShare = 0.05;
// The number of columns that selection and refit use is chosen so that they cost kWork multiplications, within the
// bounds below. With few columns for each row of K, fitted weights would follow chance.
constexpr double kWork = 6e10;
constexpr double kMaxColumns = 65536;
constexpr double kMinColumnsPerRow = 4;

[[noreturn]] void bad_spec(const std::string& spec, std::string_view part) {
  const std::string in = part == spec ? "" : fmt::format(" in '{}'", spec);
  fail(
      "'{}'{} is not understood; expected NxCxHxW:OxRxS[:sSTRIDE][:pPADDING][:dDILATION], for example "
      "16x64x56x56:128x3x3",
      part, in);
}

std::int64_t parse_number(const std::string& spec, std::string_view text, std::int64_t least) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > (1 << 24))
    bad_spec(spec, text);
  return value;
}

std::vector<std::string_view> split_text(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

std::vector<std::int64_t> parse_extents(const std::string& spec, std::string_view text, std::size_t count) {
  std::vector<std::int64_t> extents;
  for (const std::string_view part : split_text(text, 'x')) extents.push_back(parse_number(spec, part, 1));
  if (extents.size() != count) bad_spec(spec, text);
  return extents;
}

double importance_of(Importance importance, std::span<const float> weights) {
  double sum = 0;
  for (const float w : weights) sum += importance == Importance::l1 ? std::abs(w) : double{w} * w;
  return sum;
}

std::vector<std::int64_t> marked(const std::vector<bool>& marks) {
  std::vector<std::int64_t> list;
  for (std::size_t i = 0; i < marks.size(); ++i) {
    if (marks[i]) list.push_back(static_cast<std::int64_t>(i));
  }
  return list;
}

}  // namespace

SparseLayer parse_geometry(const std::string& spec, Shape& weights) {
  const std::vector<std::string_view> parts = split_text(spec, ':');
  if (parts.size() < 2) bad_spec(spec, spec);
  const std::vector<std::int64_t> x = parse_extents(spec, parts[0], 4);
  const std::vector<std::int64_t> w = parse_extents(spec, parts[1], 3);
  SparseLayer layer;
  layer.name = spec;
  layer.x = Shape{x[0], x[1], x[2], x[3]};
  Window& window = layer.attributes.window;
  window.rank = 2;
  window.kernel = {w[1], w[2], 1};
  std::optional<std::int64_t> padding;
  for (std::size_t i = 2; i < parts.size(); ++i) {
    if (parts[i].empty()) bad_spec(spec, parts[i]);
    const std::int64_t value = parse_number(spec, parts[i].substr(1), parts[i][0] == 'p' ? 0 : 1);
    if (parts[i][0] == 's') {
      window.stride = {value, value, 1};
    } else if (parts[i][0] == 'd') {
      window.dilation = {value, value, 1};
    } else if (parts[i][0] == 'p') {
      padding = value;
    } else {
      bad_spec(spec, parts[i]);
    }
  }
  for (std::size_t axis = 0; axis < 2; ++axis)
    window.pad_begin[axis] = window.pad_end[axis] = padding.value_or(window.span(static_cast<int>(axis)) / 2);
  constexpr double kMost = 1U << 31U;
  const auto product = [](const std::vector<std::int64_t>& extents) {
    return std::accumulate(extents.begin(), extents.end(), 1.0,
                           [](double all, std::int64_t extent) { return all * static_cast<double>(extent); });
  };
  if (product(w) * static_cast<double>(x[1]) > kMost || product(x) > kMost)
    fail_unsupported("{}: more than 2^31 elements", spec);
  weights = Shape{w[0], x[1], w[1], w[2]};
  if (static_cast<double>(window_output_shape(window, layer.x, w[0]).elements()) > kMost)
    fail_unsupported("{}: more than 2^31 elements", spec);
  return layer;
}

SparseLayer parse_layer(const std::string& spec) {
  Shape weights;
  SparseLayer layer = parse_geometry(spec, weights);
  layer.weights.weights = Tensor(TensorDesc{weights});
  layer.weights.bias.assign(static_cast<std::size_t>(weights[0]), 0.0F);
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0,
                                         1 / std::sqrt(static_cast<float>(weights.elements() / weights[0])));
  for (float& value : layer.weights.weights.values<float>()) value = normal(random);
  return layer;
}

std::vector<SparseLayer> convolutions_of(const Graph& graph) {
  std::vector<SparseLayer> layers;
  std::set<std::string> seen;
  for (const Node& node : graph.nodes()) {
    const auto* conv = layer_if<Conv>(node);
    if (conv == nullptr || !has_constant_weights(graph, node)) continue;
    const Shape& x = graph.value(node.inputs[0]).desc.shape;
    if (conv->attributes().groups != 1 || x.rank() != 4 || x[1] < kMinChannels) continue;
    SparseLayer layer;
    layer.name = node.name;
    layer.attributes = conv->attributes();
    layer.attributes.activation = Clamp{};
    layer.x = x;
    layer.weights = weights_of(graph, node);
    layer.weights.bias.resize(static_cast<std::size_t>(layer.weights.weights.shape()[0]), 0.0F);
    layers.push_back(std::move(layer));
  }
  return layers;
}

tools::SparsityMode sparsity_mode(std::string_view name) {
  using enum tools::SparsityMode;
  for (const tools::SparsityMode mode : {k, k_panel, channel, block, input, input_panel}) {
    if (sparsity_mode_name(mode) == name) return mode;
  }
  fail("there is no mode '{}'", name);
}

LayerPruner::LayerPruner(const SparseLayer& layer, const Tensor& x, ThreadPool& pool)
    : layer_(layer), pool_(pool) {
  GraphBuilder builder;
  const ValueId input = builder.add_input("x", x.desc());
  const ValueId weights = builder.add_constant("w", layer.weights.weights.clone());
  builder.mark_output(builder.add1("conv", std::make_shared<Conv>(layer.attributes), {input, weights}));
  const Graph graph = builder.build();
  const Columns columns(graph, graph.nodes()[0]);
  gram_ = Gram(columns.depth(), columns.outputs());
  GramBuilder sums(gram_, pool, GramBuilder::Sums::inputs);
  const auto depth = static_cast<double>(columns.depth());
  const auto wanted = static_cast<std::int64_t>(
      std::clamp(kWork / (depth * depth), std::min(kMinColumnsPerRow * depth, kMaxColumns), kMaxColumns));
  for (const std::int64_t position : sample_positions(columns.positions(), wanted, 1, 0))
    columns.read(x.values<float>().data(), position, 0, sums.next(1).x);
  sums.finish();
  gram_.set_outputs(layer.weights.weights.values<float>(), layer.weights.bias);
}

const std::vector<LayerPruner::Path>& LayerPruner::paths(tools::SparsityMode mode,
                                                         const SelectionOptions& options) {
  const std::string key =
      fmt::format("{} {} {} {} {}", sparsity_mode_name(mode), importance_name(options.importance),
                  options.group, options.panel, options.block);
  const auto found = paths_.find(key);
  if (found != paths_.end()) return found->second;
  return paths_
      .emplace(key, refits(mode) ? find_paths(mode, options) : std::vector<Path>{output_path(mode, options)})
      .first->second;
}

// Rows of K, or of all taps of an input channel.
std::vector<LayerPruner::Path> LayerPruner::find_paths(tools::SparsityMode mode,
                                                       const SelectionOptions& options) {
  const Shape& shape = layer_.weights.weights.shape();
  const std::int64_t taps = shape.elements() / (shape[0] * shape[1]);
  std::vector<std::vector<int>> groups;
  const auto add = [&](std::int64_t first, std::int64_t channels, std::int64_t first_tap,
                       std::int64_t last_tap) {
    std::vector<int>& group = groups.emplace_back();
    for (std::int64_t c = first; c < std::min(first + channels, shape[1]); ++c) {
      for (std::int64_t t = first_tap; t < last_tap; ++t) group.push_back(static_cast<int>(c * taps + t));
    }
  };
  if (mode == tools::SparsityMode::input) {
    for (std::int64_t c = 0; c < shape[1]; ++c) add(c, 1, 0, taps);
  } else if (mode == tools::SparsityMode::input_panel) {
    for (std::int64_t c = 0; c < shape[1]; c += options.group) add(c, options.group, 0, taps);
  } else {
    for (std::int64_t t = 0; t < taps; ++t) {
      for (std::int64_t c = 0; c < shape[1]; c += options.group) add(c, options.group, t, t + 1);
    }
  }
  EliminationOptions elimination;
  elimination.importance = options.importance;
  elimination.least = kMinShare;
  if (options.importance == Importance::second_order && inverse_.empty())
    inverse_ = covariance_inverse(gram_, elimination, pool_);
  const bool panels = mode == tools::SparsityMode::k_panel || mode == tools::SparsityMode::input_panel;
  const std::int64_t panel = panels ? std::min(options.panel, shape[0]) : shape[0];
  std::vector<Path> paths(static_cast<std::size_t>((shape[0] + panel - 1) / panel));
  const auto values = layer_.weights.weights.values<float>();
  pool_.parallel_for(std::ssize(paths), [&](std::int64_t p, int) {
    Path& path = paths[static_cast<std::size_t>(p)];
    path.first = p * panel;
    path.outputs = std::min(panel, shape[0] - path.first);
    path.groups = groups;
    const auto begin = values.begin() + path.first * shape[1] * taps;
    path.order =
        eliminate(gram_, inverse_, {begin, begin + path.outputs * shape[1] * taps}, groups, elimination)
            .order;
  });
  return paths;
}

// Outputs have no least squares of their own: the magnitude of their weights.
LayerPruner::Path LayerPruner::output_path(tools::SparsityMode mode, const SelectionOptions& options) const {
  const Shape& shape = layer_.weights.weights.shape();
  const std::int64_t block = mode == tools::SparsityMode::block ? std::min(options.block, shape[0]) : 1;
  const std::int64_t filter = shape.elements() / shape[0];
  const std::span<const float> values = layer_.weights.weights.values<float>();
  Path path;
  path.outputs = shape[0];
  std::vector<double> importance;
  for (std::int64_t o = 0; o < shape[0]; o += block) {
    const std::int64_t outputs = std::min(block, shape[0] - o);
    std::vector<int>& group = path.groups.emplace_back(static_cast<std::size_t>(outputs));
    std::iota(group.begin(), group.end(), static_cast<int>(o));
    importance.push_back(importance_of(
        options.importance,
        values.subspan(static_cast<std::size_t>(o * filter), static_cast<std::size_t>(outputs * filter))));
  }
  path.order.resize(importance.size());
  std::iota(path.order.begin(), path.order.end(), 0);
  std::stable_sort(path.order.begin(), path.order.end(), [&](int a, int b) {
    return importance[static_cast<std::size_t>(a)] < importance[static_cast<std::size_t>(b)];
  });
  return path;
}

PrunedLayer LayerPruner::prune(tools::SparsityMode mode, double share, const SelectionOptions& options,
                               bool refit) {
  if (!(share >= kMinShare && share <= 1)) fail("a share of {} to keep: expected {} to 1", share, kMinShare);
  const Shape& shape = layer_.weights.weights.shape();
  const std::int64_t depth = shape.elements() / shape[0];
  const std::int64_t taps = depth / shape[1];
  const bool outputs = !refits(mode);
  std::vector<std::uint8_t> removed(static_cast<std::size_t>(shape.elements()), 0);
  std::vector<bool> kept_outputs(static_cast<std::size_t>(shape[0]), true);
  for (const Path& path : paths(mode, options)) {
    const auto groups = static_cast<double>(path.groups.size());
    const auto falls = std::min({path.groups.size() - 1, path.order.size(),
                                 static_cast<std::size_t>(std::llround((1 - share) * groups))});
    for (std::size_t i = 0; i < falls; ++i) {
      for (const int at : path.groups[static_cast<std::size_t>(path.order[i])]) {
        if (outputs) {
          kept_outputs[static_cast<std::size_t>(at)] = false;
          std::fill_n(removed.begin() + at * depth, depth, std::uint8_t{1});
          continue;
        }
        for (std::int64_t o = path.first; o < path.first + path.outputs; ++o)
          removed[static_cast<std::size_t>(o * depth + at)] = 1;
      }
    }
  }
  PrunedLayer pruned;
  // Channels that no panel keeps stay in the layer, as rows do: zeros in its weights are all that marks them.
  std::vector<bool> kept_inputs(static_cast<std::size_t>(shape[1]), mode != tools::SparsityMode::input);
  for (std::size_t i = 0; i < static_cast<std::size_t>(depth); ++i) {
    if (removed[i] == 0) kept_inputs[i / static_cast<std::size_t>(taps)] = true;
  }
  pruned.outputs = marked(kept_outputs);
  pruned.inputs =
      outputs ? marked(std::vector<bool>(static_cast<std::size_t>(shape[1]), true)) : marked(kept_inputs);
  pruned.kept = 1 - static_cast<double>(std::count(removed.begin(), removed.end(), 1)) /
                        static_cast<double>(removed.size());
  if (refit && !outputs) {
    pruned.weights = internal::refit({gram_}, layer_.weights, removed, {}, true, {}, pool_);
    return pruned;
  }
  pruned.weights = {layer_.weights.weights.clone(), layer_.weights.bias};
  const std::span<float> values = pruned.weights.weights.values<float>();
  for (std::size_t i = 0; i < removed.size(); ++i) {
    if (removed[i] != 0) values[i] = 0;
  }
  for (std::size_t o = 0; o < kept_outputs.size(); ++o) {
    if (!kept_outputs[o]) pruned.weights.bias[o] = 0;
  }
  return pruned;
}

}  // namespace pipit::internal::detail
