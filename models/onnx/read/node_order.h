// Which nodes a model needs, and an order that runs them.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <queue>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "models/onnx/read/functions.h"

namespace pipit::internal::onnx {

/// How many of a node's first inputs its results need. Running statistics that a BatchNormalization in training mode
/// would only pass on are none of them: exporters compute these from whole weights.
int inputs_needed(const FlatNode& node);

/// Gives out the nodes that graph outputs depend on, every node after the producers of its inputs; file order where
/// that already holds (ONNX asks for it, not every exporter obeys). What the branches of an If read is needed only once
/// wait_for() says so: most conditions are known while reading, and the other branch is never looked at.
class NodeOrder {
 public:
  /// `available` are the names of graph inputs and initializers. All must outlive this. Throws Error naming node and
  /// value on a value with two producers or none.
  NodeOrder(const std::vector<FlatNode>& nodes, const std::unordered_set<std::string>& available,
            const std::vector<std::string>& outputs);

  /// Every name that the nodes which `outputs` depend on read, all branches included, and `outputs` themselves.
  std::unordered_set<std::string> names_read(const std::vector<std::string>& outputs) const;
  /// The next node; nullopt when all are done. Throws Error on a cycle.
  std::optional<std::size_t> next();
  void done(std::size_t node);
  /// `node`, which next() gave, comes again when the values of these names are there. Nodes that were added to the list
  /// since become known.
  void wait_for(std::size_t node, const std::vector<std::string>& names);

 private:
  void add_producers();
  void need(std::size_t reader, const std::string& name, std::vector<std::size_t>& pending);
  void need_all(std::vector<std::size_t> pending);
  void wait(std::size_t reader, const std::string& name);
  std::string describe(std::size_t n) const;
  [[noreturn]] void fail_on_cycle() const;

  const std::vector<FlatNode>& nodes_;
  const std::unordered_set<std::string>& available_;
  std::unordered_map<std::string, std::size_t> producers_;
  std::vector<bool> needed_, done_;
  std::vector<std::size_t> waiting_;  // producers that a node waits for
  std::vector<std::vector<std::size_t>> readers_;
  std::priority_queue<std::size_t, std::vector<std::size_t>, std::greater<>> ready_;
  std::size_t left_ = 0;  // needed nodes that are not done
};

}  // namespace pipit::internal::onnx
