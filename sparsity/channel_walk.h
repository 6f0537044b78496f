// How find_channel_groups() goes through a graph: what is known of every value, and the rules for layers.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "sparsity/channel_groups.h"

namespace pipit::internal {

/// Channels, numbered as they are met, tied into sets (union by size), and what each value consists of. In
/// ValueChannels::groups stand channels until finish().
class ChannelWalk {
 public:
  explicit ChannelWalk(const Graph& graph) : graph_(graph), values_(graph.values().size()) {}

  const Graph& graph() const { return graph_; }
  const Shape& shape(ValueId id) const { return graph_.value(id).desc.shape; }
  /// Nothing for an absent operand, and for what no rule knows.
  const ValueChannels& of(ValueId id) const;
  /// Input `i` of the node, kNoValue where it has none.
  static ValueId input(const Node& node, std::size_t i) {
    return i < node.inputs.size() ? node.inputs[i] : kNoValue;
  }
  /// The constant there with floating-point elements; null for anything else.
  const Tensor* constant(ValueId id) const;
  /// Whether the channels are dimension 1, one position each, as Conv and BatchNorm need them.
  bool is_plain(ValueId id) const;

  /// A new channel.
  int add();
  /// They can only be removed together; neither where one of them is -1.
  void tie(int a, int b);
  /// Ties entry by entry.
  void tie_all(const ValueChannels& a, const ValueChannels& b);
  /// The channel stays. `why` follows the name of the current node.
  void keep(int channel, const char* why);
  void keep_all(const ValueChannels& channels, const char* why);
  void keep_inputs(const Node& node, const char* why);

  /// Which node keep() names.
  void look_at(const Node& node) { node_ = &node; }
  void set(ValueId id, ValueChannels channels) { values_[index(id)] = std::move(channels); }
  ValueChannels made(int axis, std::vector<int> groups, std::int64_t inner = 1,
                     std::vector<double> rest = {});
  /// The same channels, with f(i, rest) for entry i's rest. What is not finite there (kVaries, say) is kept.
  ValueChannels mapped(const ValueChannels& from, int axis,
                       const std::function<double(std::size_t, double)>& f);
  /// A rest that is not the same everywhere.
  static constexpr double kVaries = std::numeric_limits<double>::quiet_NaN();

  /// Whether there is too much to look at.
  bool exhausted() const { return steps_ > kMaxSteps; }
  ChannelGroups finish();

 private:
  static constexpr std::size_t kMaxSteps = std::size_t{1} << 26;
  int find(int channel);
  void add_runs(std::vector<ChannelGroup>& groups) const;

  const Graph& graph_;
  const Node* node_ = nullptr;
  std::vector<ValueChannels> values_;
  std::vector<int> parent_;  // of a channel; its own where it stands for the set
  std::vector<int> size_;    // of the set
  std::vector<int> reason_;  // in reasons_; -1: may go
  std::vector<std::string> reasons_;
  const char* last_why_ = nullptr;  // with what the last reason was made, and for which node
  const Node* last_node_ = nullptr;
  std::size_t steps_ = 0;
};

/// The rule for a layer, by family. False where it is of another one.
bool tie_weighted_layer(ChannelWalk& walk, const Node& node);     // Conv, Gemm, MatMul
bool tie_elementwise_layer(ChannelWalk& walk, const Node& node);  // Unary, Binary
bool tie_spatial_layer(ChannelWalk& walk, const Node& node);      // normalizations, Pool, Reduce, Resize, Pad
bool tie_movement_layer(ChannelWalk& walk, const Node& node);  // Reshape, Concat and what else moves elements

}  // namespace pipit::internal
