// shrink_model MODEL SHARE SEED FOLDER: a model, by name or file, without a share of its channels, at random among
// those that can be removed. Writes FOLDER/zero.onnx, where they are zero, and FOLDER/small.onnx, where they are gone,
// for test_shrink.py to compare in ONNX Runtime, and prints how far apart the outputs of the two are in pipit, as JSON.
// With SHARE "half" every list of channels between layers loses half, those of the smallest norm: for measurements.
// With "dead" those go that compute nothing, of a model that another program has pruned.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/file.h"
#include "engine/runtime/session.h"
#include "layers/passes/pipeline.h"
#include "layers/passes/real_weights.h"
#include "layers/registry.h"
#include "models/model.h"
#include "models/onnx/write/writer.h"
#include "sparsity/channel_path.h"
#include "sparsity/remove_channels.h"
#include "tests/support/run_graph.h"

namespace {

using namespace pipit;
using namespace pipit::internal;

std::vector<bool> draw(const ChannelGroups& found, double share, std::mt19937& random) {
  std::bernoulli_distribution choose(share);
  std::vector<bool> removed;
  for (const ChannelGroup& group : found.groups) removed.push_back(group.removable() && choose(random));
  spare_last_channels(found, removed);
  return removed;
}

// The squared norm of all weights that write each group.
std::vector<double> norms(const Graph& graph, const ChannelGroups& found) {
  std::vector<std::vector<double>> rows(graph.nodes().size());
  for (std::size_t n = 0; n < rows.size(); ++n) {
    if (!has_constant_weights(graph, graph.nodes()[n])) continue;
    const RealWeights real = real_weights(graph, graph.nodes()[n]);
    rows[n].assign(static_cast<std::size_t>(real.shape[0]), 0);
    const std::size_t length = real.values().size() / rows[n].size();
    for (std::size_t i = 0; i < real.values().size(); ++i)
      rows[n][i / length] += static_cast<double>(real.values()[i]) * real.values()[i];
  }
  std::vector<double> norms(found.groups.size(), 0);
  for (std::size_t g = 0; g < norms.size(); ++g) {
    for (const ChannelRun& run : found.groups[g].outputs) {
      for (std::int64_t o = run.first; o < run.first + run.count; ++o)
        norms[g] += rows[static_cast<std::size_t>(run.node)][static_cast<std::size_t>(o)];
    }
  }
  return norms;
}

// Half of the channels between two layers, those of the smaller norm. Streams are none, and the first layer is none
// between two.
std::vector<bool> inner_half(const Graph& graph, const ChannelGroups& found) {
  const std::vector<double> norm = norms(graph, found);
  std::vector<bool> removed(found.groups.size(), false);
  for (ChannelFamily& family : find_families(graph, found)) {
    const Node& first = graph.nodes()[static_cast<std::size_t>(*family.writers.begin())];
    if (family.stream || first.inputs[0] == graph.inputs()[0]) continue;
    std::stable_sort(family.groups.begin(), family.groups.end(), [&](int a, int b) {
      return norm[static_cast<std::size_t>(a)] < norm[static_cast<std::size_t>(b)];
    });
    for (std::size_t i = 0; i < family.groups.size() / 2; ++i)
      removed[static_cast<std::size_t>(family.groups[i])] = true;
  }
  return removed;
}

std::int64_t constants(const Graph& graph) {
  std::int64_t count = 0;
  for (const Value& value : graph.values()) count += value.is_constant() ? value.desc.elements() : 0;
  return count;
}

double difference(const Graph& zero, const Graph& small, std::mt19937& random) {
  const std::vector<Tensor> inputs = test::random_inputs(zero, random);
  const std::vector<Tensor> expected = test::run_graph(optimize(zero), default_registry(), inputs, "", 2);
  const std::vector<Tensor> got = test::run_graph(optimize(small), default_registry(), inputs, "", 2);
  double worst = got.size() == expected.size() ? 0 : HUGE_VAL;
  for (std::size_t i = 0; i < got.size() && i < expected.size(); ++i)
    worst = std::max(worst, test::relative_error(got[i].values<float>(), expected[i].values<float>()));
  return worst;
}

int shrink(const std::string& name, const std::string& share, unsigned seed,
           const std::filesystem::path& folder) {
  Model model = load_model(name, OnnxOptions{});
  OnnxWriteOptions options;
  options.metadata = model.metadata;
  options.symbolic_batch = !model.fixed_batch;
  const Graph graph = fuse(std::move(model.graph));
  const ChannelGroups found = find_channel_groups(graph);
  std::mt19937 random(seed);
  std::vector<bool> removed;
  if (share == "half") {
    removed = inner_half(graph, found);
  } else if (share == "dead") {
    removed = find_dead_groups(graph, found);
  } else {
    removed = draw(found, std::stod(share), random);
  }
  const Graph zero = zero_channels(graph, found, removed);
  const Graph small = remove_channels(graph, found, removed);
  write_file(folder / "zero.onnx", write_onnx(zero, options));
  write_file(folder / "small.onnx", write_onnx(small, options));
  std::map<std::string, int> reasons;
  for (const ChannelGroup& group : found.groups) {
    if (!group.removable()) ++reasons[group.kept_because];
  }
  const nlohmann::json result{
      {"groups", found.groups.size()},
      {"removable", found.groups.size() - static_cast<std::size_t>(std::count_if(
                                              found.groups.begin(), found.groups.end(),
                                              [](const ChannelGroup& g) { return !g.removable(); }))},
      {"removed", std::count(removed.begin(), removed.end(), true)},
      {"constants", {constants(graph), constants(small)}},
      {"kept_because", reasons},
      {"error", difference(zero, small, random)}};
  fmt::print("{}\n", result.dump());
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 5) throw Error("usage: shrink_model MODEL SHARE SEED FOLDER");
  return shrink(argv[1], argv[2], static_cast<unsigned>(std::stoul(argv[3])), argv[4]);
} catch (const std::exception& e) {
  fmt::print(stderr, "shrink_model: {}\n", e.what());
  return 1;
}
