#include "sparsity/channel_groups.h"

#include <fmt/format.h>

#include <cmath>
#include <map>

#include "layers/ops/conv.h"
#include "layers/passes/real_weights.h"
#include "layers/passes/rewriter.h"
#include "sparsity/channel_walk.h"

namespace pipit::internal {

const ValueChannels& ChannelWalk::of(ValueId id) const {
  static const ValueChannels& none = *new ValueChannels;
  return id == kNoValue ? none : values_[index(id)];
}

const Tensor* ChannelWalk::constant(ValueId id) const {
  if (id == kNoValue) return nullptr;
  const Tensor* tensor = graph_.value(id).constant.get();
  return tensor != nullptr && tensor->desc().dtype == DType::f32 ? tensor : nullptr;
}

bool ChannelWalk::is_plain(ValueId id) const {
  const ValueChannels& c = of(id);
  return c.axis == 1 && static_cast<std::int64_t>(c.size()) == shape(id)[1];
}

int ChannelWalk::add() {
  const int channel = static_cast<int>(parent_.size());
  parent_.push_back(channel);
  size_.push_back(1);
  reason_.push_back(-1);
  return channel;
}

int ChannelWalk::find(int channel) {
  auto at = static_cast<std::size_t>(channel);
  while (parent_[at] != static_cast<int>(at)) {
    parent_[at] = parent_[static_cast<std::size_t>(parent_[at])];
    at = static_cast<std::size_t>(parent_[at]);
  }
  return static_cast<int>(at);
}

void ChannelWalk::tie(int a, int b) {
  if (a < 0 || b < 0) {
    keep(std::max(a, b), "its other operand's channels stay");
    return;
  }
  auto x = static_cast<std::size_t>(find(a));
  auto y = static_cast<std::size_t>(find(b));
  if (x == y) return;
  if (size_[x] < size_[y]) std::swap(x, y);
  parent_[y] = static_cast<int>(x);
  size_[x] += size_[y];
  if (reason_[x] < 0) reason_[x] = reason_[y];
}

void ChannelWalk::tie_all(const ValueChannels& a, const ValueChannels& b) {
  steps_ += a.size();
  if (exhausted()) return;
  for (std::size_t i = 0; i < a.size(); ++i) tie((*a.groups)[i], (*b.groups)[i]);
}

void ChannelWalk::keep(int channel, const char* why) {
  if (channel < 0) return;
  int& reason = reason_[static_cast<std::size_t>(find(channel))];
  if (reason >= 0) return;
  if (last_why_ != why || last_node_ != node_) {
    reasons_.push_back(node_ == nullptr
                           ? std::string(why)
                           : fmt::format("'{}' ({}): {}", node_->name, node_->layer->type(), why));
    last_why_ = why;
    last_node_ = node_;
  }
  reason = static_cast<int>(reasons_.size()) - 1;
}

void ChannelWalk::keep_all(const ValueChannels& channels, const char* why) {
  steps_ += channels.size();
  if (exhausted()) return;
  for (std::size_t i = 0; i < channels.size(); ++i) keep((*channels.groups)[i], why);
}

void ChannelWalk::keep_inputs(const Node& node, const char* why) {
  for (const ValueId id : node.inputs) keep_all(of(id), why);
}

ValueChannels ChannelWalk::made(int axis, std::vector<int> groups, std::int64_t inner,
                                std::vector<double> rest) {
  steps_ += groups.size();
  ValueChannels result{axis, inner, std::make_shared<const std::vector<int>>(std::move(groups)), nullptr};
  if (std::any_of(rest.begin(), rest.end(), [](double r) { return r != 0; }))
    result.rest = std::make_shared<const std::vector<double>>(std::move(rest));
  return result;
}

ValueChannels ChannelWalk::mapped(const ValueChannels& from, int axis,
                                  const std::function<double(std::size_t, double)>& f) {
  steps_ += from.size();
  if (exhausted()) return {};
  ValueChannels result{axis, from.inner, from.groups, nullptr};
  std::vector<double> rest(from.size());
  bool zero = true;
  for (std::size_t i = 0; i < rest.size(); ++i) {
    if ((*from.groups)[i] < 0) continue;
    rest[i] = f(i, from.rest_of(i));
    if (!std::isfinite(rest[i])) {
      keep((*from.groups)[i], "without its weights the channel would not be a constant");
      rest[i] = 0;
    }
    zero = zero && rest[i] == 0;
  }
  if (!zero) result.rest = std::make_shared<const std::vector<double>>(std::move(rest));
  return result;
}

namespace {

void add_run(std::vector<ChannelRun>& runs, int node, std::int64_t at) {
  if (!runs.empty() && runs.back().node == node && runs.back().first + runs.back().count == at) {
    ++runs.back().count;
  } else {
    runs.push_back({node, at, 1});
  }
}

}  // namespace

// Which channels of the weighted layers belong to which group.
void ChannelWalk::add_runs(std::vector<ChannelGroup>& groups) const {
  const auto add = [&](ValueId id, int node, std::vector<ChannelRun> ChannelGroup::*runs) {
    const ValueChannels& c = of(id);
    const bool conv = layer_if<Conv>(graph_.nodes()[static_cast<std::size_t>(node)]) != nullptr;
    if (!c.known() || c.axis != (conv ? 1 : shape(id).rank() - 1)) return;
    const std::int64_t extent = shape(id)[c.axis];
    for (std::int64_t p = 0; p < extent; ++p) {
      const int group = (*c.groups)[c.entry(p)];
      if (group >= 0) add_run(groups[static_cast<std::size_t>(group)].*runs, node, p);
    }
  };
  for (std::size_t n = 0; n < graph_.nodes().size(); ++n) {
    const Node& node = graph_.nodes()[n];
    if (!has_constant_weights(graph_, node)) continue;
    add(node.inputs[0], static_cast<int>(n), &ChannelGroup::inputs);
    add(node.outputs[0], static_cast<int>(n), &ChannelGroup::outputs);
  }
}

ChannelGroups ChannelWalk::finish() {
  ChannelGroups result;
  if (exhausted()) {
    result.values.resize(values_.size());
    return result;
  }
  std::vector<int> group_of(parent_.size(), -1);
  for (std::size_t channel = 0; channel < parent_.size(); ++channel) {
    int& group = group_of[static_cast<std::size_t>(find(static_cast<int>(channel)))];
    if (group < 0) {
      group = static_cast<int>(result.groups.size());
      result.groups.emplace_back();
      const int reason = reason_[static_cast<std::size_t>(find(static_cast<int>(channel)))];
      if (reason >= 0) result.groups.back().kept_because = reasons_[static_cast<std::size_t>(reason)];
    }
    group_of[channel] = group;
  }
  // Values share their lists, and go on sharing them.
  std::map<const std::vector<int>*, std::shared_ptr<const std::vector<int>>> renamed;
  for (ValueChannels& value : values_) {
    if (!value.known()) continue;
    std::shared_ptr<const std::vector<int>>& list = renamed[value.groups.get()];
    if (!list) {
      std::vector<int> groups = *value.groups;
      for (int& channel : groups) {
        if (channel >= 0) channel = group_of[static_cast<std::size_t>(channel)];
      }
      list = std::make_shared<const std::vector<int>>(std::move(groups));
    }
  }
  for (ValueChannels& value : values_) {
    if (value.known()) value.groups = renamed[value.groups.get()];
  }
  add_runs(result.groups);
  result.values = std::move(values_);
  return result;
}

ChannelGroups find_channel_groups(const Graph& graph) {
  ChannelWalk walk(graph);
  for (const Node& node : graph.nodes()) {
    if (walk.exhausted()) break;
    walk.look_at(node);
    if (!tie_weighted_layer(walk, node) && !tie_elementwise_layer(walk, node) &&
        !tie_spatial_layer(walk, node) && !tie_movement_layer(walk, node))
      walk.keep_inputs(node, "what the layer does with channels is not known");
  }
  std::vector<bool> shown(graph.values().size(), false);
  for (const ValueId id : graph.outputs()) shown[index(id)] = true;
  for (const Node& node : graph.nodes()) {
    walk.look_at(node);
    for (const ValueId id : node.outputs) {
      if (shown[index(id)]) walk.keep_all(walk.of(id), "an output of the model");
    }
  }
  return walk.finish();
}

}  // namespace pipit::internal
