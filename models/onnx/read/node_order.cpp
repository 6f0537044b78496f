#include "models/onnx/read/node_order.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <queue>
#include <unordered_map>

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

// Calls body(name) for every input that the node needs.
template <typename Body>
void for_each_input(const FlatNode& node, const Body& body) {
  for (int i = 0; i < inputs_needed(node); ++i) body(node.proto->input(i));
}

class Order {
 public:
  Order(const std::vector<FlatNode>& nodes, const std::unordered_set<std::string>& available)
      : nodes_(nodes), available_(available), needed_(nodes.size(), false) {
    for (std::size_t n = 0; n < nodes.size(); ++n) {
      for (const std::string& name : nodes[n].proto->output()) {
        if (name.empty()) continue;
        if (available.contains(name)) {
          fail("node {}: output '{}' is also a graph input or initializer", describe(n), name);
        }
        if (const auto [entry, is_new] = producers_.emplace(name, n); !is_new) {
          fail("node {}: output '{}' is also produced by node {}", describe(n), name,
               describe(entry->second));
        }
      }
    }
  }

  // Marks everything that `outputs` depend on.
  void need(const std::vector<std::string>& outputs) {
    std::vector<std::size_t> pending;
    constexpr std::size_t kGraph = SIZE_MAX;
    const auto visit = [&](const std::string& name, std::size_t reader) {
      if (name.empty() || available_.contains(name)) return;
      const auto producer = producers_.find(name);
      if (producer == producers_.end()) {
        if (reader == kGraph) fail("graph output '{}' is produced by no node", name);
        fail("node {}: input '{}' is produced by no node", describe(reader), name);
      }
      if (needed_[producer->second]) return;
      needed_[producer->second] = true;
      pending.push_back(producer->second);
    };
    for (const std::string& name : outputs) visit(name, kGraph);
    while (!pending.empty()) {
      const std::size_t n = pending.back();
      pending.pop_back();
      for_each_input(nodes_[n], [&](const std::string& name) { visit(name, n); });
    }
  }

  // Kahn's algorithm; of the nodes that are ready, the first in the file goes first.
  std::vector<std::size_t> sort() {
    std::vector<std::size_t> waiting(nodes_.size(), 0);
    std::vector<std::vector<std::size_t>> readers(nodes_.size());
    std::priority_queue<std::size_t, std::vector<std::size_t>, std::greater<>> ready;
    std::size_t count = 0;
    for (std::size_t n = 0; n < nodes_.size(); ++n) {
      if (!needed_[n]) continue;
      ++count;
      for_each_input(nodes_[n], [&](const std::string& name) {
        const auto producer = producers_.find(name);
        if (producer == producers_.end()) return;
        readers[producer->second].push_back(n);
        ++waiting[n];
      });
      if (waiting[n] == 0) ready.push(n);
    }
    std::vector<std::size_t> order;
    while (!ready.empty()) {
      const std::size_t n = ready.top();
      ready.pop();
      order.push_back(n);
      for (const std::size_t reader : readers[n]) {
        if (--waiting[reader] == 0) ready.push(reader);
      }
    }
    if (order.size() != count) fail_on_cycle(waiting);
    return order;
  }

 private:
  std::string describe(std::size_t n) const {
    return fmt::format("'{}' ({})", nodes_[n].name, qualified_operator(*nodes_[n].proto));
  }

  // From any node left over, producers that are left over too lead into a cycle.
  [[noreturn]] void fail_on_cycle(const std::vector<std::size_t>& waiting) const {
    std::size_t n = 0;
    while (waiting[n] == 0) ++n;
    std::vector<bool> seen(nodes_.size(), false);
    while (true) {
      seen[n] = true;
      for (const std::string& name : nodes_[n].proto->input()) {
        const auto producer = producers_.find(name);
        if (producer == producers_.end() || waiting[producer->second] == 0) continue;
        if (seen[producer->second]) {
          fail("node {}: input '{}' depends on the node's own output", describe(n), name);
        }
        n = producer->second;
        break;
      }
    }
  }

  const std::vector<FlatNode>& nodes_;
  const std::unordered_set<std::string>& available_;
  std::unordered_map<std::string, std::size_t> producers_;
  std::vector<bool> needed_;
};

}  // namespace

std::vector<std::size_t> execution_order(const std::vector<FlatNode>& nodes,
                                         const std::unordered_set<std::string>& available,
                                         const std::vector<std::string>& outputs) {
  Order order(nodes, available);
  order.need(outputs);
  return order.sort();
}

}  // namespace pipit::internal::onnx
