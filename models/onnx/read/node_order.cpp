#include "models/onnx/read/node_order.h"

#include <algorithm>
#include <cstdint>

#include "engine/base/error.h"

namespace pipit::internal::onnx {

int inputs_needed(const FlatNode& node) {
  const onnx_pb::NodeProto& proto = *node.proto;
  constexpr int kWithoutStatistics = 3;
  if (proto.op_type() != "BatchNormalization" || !is_default_domain(proto.domain()))
    return proto.input_size();
  const auto trains = [](const onnx_pb::AttributeProto& a) {
    return a.name() == "training_mode" && a.i() != 0;
  };
  return std::any_of(proto.attribute().begin(), proto.attribute().end(), trains)
             ? std::min(proto.input_size(), kWithoutStatistics)
             : proto.input_size();
}

namespace {

constexpr std::size_t kItself = SIZE_MAX;  // stands for the graph as a reader

// Calls body(name) for every input that the node needs.
template <typename Body>
void for_each_input(const FlatNode& node, const Body& body) {
  for (int i = 0; i < inputs_needed(node); ++i) body(node.proto->input(i));
}

}  // namespace

NodeOrder::NodeOrder(const std::vector<FlatNode>& nodes, const std::unordered_set<std::string>& available,
                     const std::vector<std::string>& outputs)
    : nodes_(nodes), available_(available) {
  add_producers();
  std::vector<std::size_t> pending;
  for (const std::string& name : outputs) need(kItself, name, pending);
  need_all(std::move(pending));
}

void NodeOrder::add_producers() {
  for (std::size_t n = needed_.size(); n < nodes_.size(); ++n) {
    for (const std::string& name : nodes_[n].proto->output()) {
      if (name.empty()) continue;
      if (available_.contains(name)) {
        fail("node {}: output '{}' is also a graph input or initializer", describe(n), name);
      }
      if (const auto [entry, is_new] = producers_.emplace(name, n); !is_new) {
        fail("node {}: output '{}' is also produced by node {}", describe(n), name, describe(entry->second));
      }
    }
  }
  needed_.resize(nodes_.size(), false);
  done_.resize(nodes_.size(), false);
  waiting_.resize(nodes_.size(), 0);
  readers_.resize(nodes_.size());
}

// Marks the producer of a value; it goes to `pending` when that is new.
void NodeOrder::need(std::size_t reader, const std::string& name, std::vector<std::size_t>& pending) {
  if (name.empty() || available_.contains(name)) return;
  const auto producer = producers_.find(name);
  if (producer == producers_.end()) {
    if (reader == kItself) fail("graph output '{}' is produced by no node", name);
    fail("node {}: input '{}' is produced by no node", describe(reader), name);
  }
  if (needed_[producer->second]) return;
  needed_[producer->second] = true;
  ++left_;
  pending.push_back(producer->second);
}

void NodeOrder::need_all(std::vector<std::size_t> pending) {
  std::vector<std::size_t> added;
  while (!pending.empty()) {
    const std::size_t n = pending.back();
    pending.pop_back();
    added.push_back(n);
    for_each_input(nodes_[n], [&](const std::string& name) { need(n, name, pending); });
  }
  for (const std::size_t n : added) {
    for_each_input(nodes_[n], [&](const std::string& name) { wait(n, name); });
    if (waiting_[n] == 0) ready_.push(n);
  }
}

void NodeOrder::wait(std::size_t reader, const std::string& name) {
  const auto producer = producers_.find(name);
  if (producer == producers_.end() || done_[producer->second]) return;
  readers_[producer->second].push_back(reader);
  ++waiting_[reader];
}

std::unordered_set<std::string> NodeOrder::names_read(const std::vector<std::string>& outputs) const {
  std::unordered_set<std::string> names;
  std::vector<bool> seen(nodes_.size(), false);
  std::vector<std::size_t> pending;
  const auto visit = [&](const std::string& name) {
    if (name.empty() || !names.insert(name).second) return;
    const auto producer = producers_.find(name);
    if (producer == producers_.end() || seen[producer->second]) return;
    seen[producer->second] = true;
    pending.push_back(producer->second);
  };
  std::ranges::for_each(outputs, visit);
  while (!pending.empty()) {
    const FlatNode& node = nodes_[pending.back()];
    pending.pop_back();
    for_each_input(node, visit);
    for (const auto& attribute : node.proto->attribute()) {
      if (attribute.has_g()) for_each_capture(attribute.g(), visit);
    }
  }
  return names;
}

// Kahn's algorithm; of the nodes that are ready, the first in the file goes first.
std::optional<std::size_t> NodeOrder::next() {
  if (ready_.empty()) {
    if (left_ > 0) fail_on_cycle();
    return std::nullopt;
  }
  const std::size_t n = ready_.top();
  ready_.pop();
  return n;
}

void NodeOrder::done(std::size_t n) {
  done_[n] = true;
  --left_;
  for (const std::size_t reader : readers_[n]) {
    if (--waiting_[reader] == 0) ready_.push(reader);
  }
}

void NodeOrder::wait_for(std::size_t n, const std::vector<std::string>& names) {
  add_producers();
  std::vector<std::size_t> pending;
  for (const std::string& name : names) need(n, name, pending);
  need_all(std::move(pending));
  for (const std::string& name : names) wait(n, name);
  if (waiting_[n] == 0) ready_.push(n);
}

std::string NodeOrder::describe(std::size_t n) const {
  return fmt::format("'{}' ({})", nodes_[n].name, qualified_operator(*nodes_[n].proto));
}

// From any node left over, producers that are left over too lead into a cycle.
void NodeOrder::fail_on_cycle() const {
  std::size_t n = 0;
  while (waiting_[n] == 0) ++n;
  std::vector<bool> seen(nodes_.size(), false);
  while (!seen[n]) {
    seen[n] = true;
    const std::string* input = nullptr;
    for (const std::string& name : nodes_[n].proto->input()) {
      const auto producer = producers_.find(name);
      if (producer == producers_.end() || waiting_[producer->second] == 0) continue;
      input = &name;
      if (seen[producer->second])
        fail("node {}: input '{}' depends on the node's own output", describe(n), name);
      n = producer->second;
      break;
    }
    if (input == nullptr) break;  // an If that waits for its branch
  }
  fail("node {}: it depends on its own output", describe(n));
}

}  // namespace pipit::internal::onnx
