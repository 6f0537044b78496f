// For every layer: in which order its groups fall, and what that costs it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "sparsity/channel_path.h"
#include "sparsity/eliminate.h"
#include "sparsity/layer_walk.h"
#include "sparsity/mask.h"

namespace pipit::internal {

/// What of an input channel falls from a panel of outputs at once.
enum class RowTaps : std::uint8_t {
  single,  ///< a tap
  all,     ///< all taps in layers that Winograd computes, which leaves out nothing less; else a tap
  both,    ///< paths of both in such layers
};

struct PathOptions {
  bool rows = true;  ///< paths of modes k and input
  RowTaps taps = RowTaps::single;
  bool families = false;  ///< paths of channels that one layer writes
  bool streams = false;   ///< paths of channels that several layers write
  std::size_t block = 1;  ///< of these, this many neighbours fall together
  WalkOptions walk;
  EliminationOptions elimination;
  std::int64_t channels = 1;  ///< LayerMask::channels of the rows' masks
  std::int64_t panel = 0;     ///< LayerMask::panel of them; 1: balanced (balance_paths())
  /// Where `panel` is not 1: besides each path of mode k one with a panel of 1, for layers where choosing for every
  /// single output costs at most `single_work` multiplications.
  bool single_outputs = false;
  double single_work = 2e10;
  /// Where the panel is 1, of masks of whole inputs, which Winograd leaves out for many outputs only, and of layers
  /// where the choice of every single output takes more than `work`.
  std::int64_t shared_panel = 0;
  /// Panels share one choice, two, four, ... of them, until choosing costs at most this many multiplications.
  double work = 1.5e11;
};

/// What a path removes at once from a layer that has several paths.
enum class RowKind : std::uint8_t {
  taps,    ///< single taps, for a panel of outputs
  single,  ///< single taps, for a single output
  inputs,  ///< all taps, for a panel of outputs
};
inline constexpr std::array kRowKinds{RowKind::taps, RowKind::single, RowKind::inputs};
constexpr std::size_t index(RowKind kind) {
  return static_cast<std::size_t>(kind);
}

/// The path of one layer in mode k or input. Groups of nothing but zeros come first, so that what was removed before
/// counts.
struct PruningPath {
  std::string node;
  LayerMask mask;          ///< nothing removed
  std::vector<int> order;  ///< marks of the mask, in the order in which they fall
  /// The loss of the layer, over the variance of its outputs, once that many and one have fallen.
  std::vector<double> loss;
  double dense = 1;          ///< share of the layer's weights that are not zero
  std::vector<double> kept;  ///< the same once that many and one have fallen

  RowKind kind() const;
  /// How many fall so that this share of the layer's weights stays, as nearly as groups allow (the last of a layer may
  /// have fewer weights); not more than the path has. Throws Error for a share that is not above 0 and at most 1.
  std::size_t falling(double share) const;
  LayerMask keep(double share) const;
  double loss_at(double share) const;
};

/// Whether Winograd may compute it: a convolution of 3 x 3, stride 1, dilation 1 and one group.
bool may_run_winograd(const Node& node);

/// The layers that rows may fall from: with constant weights, ungrouped, at least 8 input channels, a depth that
/// sums can be held of (most_depth()), and neither reading the graph's input nor computing its output.
std::vector<std::string> prunable_layers(const Graph& graph);

struct Paths {
  /// The paths of the prunable layers, in the order of the graph; of those of one layer in the order of RowKind.
  std::vector<PruningPath> rows;
  ChannelGroups groups;  ///< of the graph
  std::vector<ChannelPath> channels;
};

/// One pass over the inputs.
Paths find_paths(const Graph& graph, std::vector<Tensor> inputs, const PathOptions& options,
                 const std::function<void(std::int64_t done, std::int64_t total)>& progress = {});

}  // namespace pipit::internal
