#include "engine/plan/value_buffers.h"

#include <numeric>

#include "engine/plan/plan_building.h"

namespace pipit::internal {

namespace {

class Finder {
 public:
  using Overwrites = std::function<bool(const Step&, std::size_t)>;
  Finder(const Graph& graph, std::span<const Step* const> steps, const Overwrites& overwrites)
      : graph_(graph), steps_(steps), overwrites_(overwrites) {}

  ValueBuffers run() {
    find_roots();
    find_parts();
    find_ranges();
    return std::move(found_);
  }

 private:
  // Resolves views to the value whose memory they show.
  void find_roots() {
    found_.root.resize(graph_.values().size());
    std::iota(found_.root.begin(), found_.root.end(), ValueId{0});
    for (const Node& node : graph_.nodes()) {
      if (is_view(graph_, node)) found_.root[index(node.outputs[0])] = found_.root[index(node.inputs[0])];
    }
  }

  // The last step that needs each value, the index after all steps for the graph's outputs; -1: none does.
  std::vector<int> find_last_uses() const {
    std::vector<int> last_use(graph_.values().size(), -1);
    for (const Step* step : steps_) {
      for (const ValueId id : last_node(graph_, *step).outputs) last_use[index(id)] = step->index;
      for (const ValueId id : node_of(*step).inputs) {
        if (id != kNoValue) last_use[root_index(id)] = step->index;
      }
      for (const ValueId id : step->outside) last_use[root_index(id)] = step->index;
    }
    for (const ValueId id : graph_.outputs()) last_use[root_index(id)] = static_cast<int>(steps_.size());
    return last_use;
  }

  // Values that are written into a larger one.
  void find_parts() {
    whole_.assign(graph_.values().size(), kNoValue);
    found_.offset.assign(graph_.values().size(), 0);
    for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
      const ValueId id = last_node(graph_, **step).outputs[0];
      const bool nested = whole_[index(id)] != kNoValue;
      for (const Step::Part& part : (*step)->parts) {
        whole_[index(part.value)] = nested ? whole_[index(id)] : id;
        found_.offset[index(part.value)] = found_.offset[index(id)] + part.offset;
      }
    }
  }

  void find_ranges() {
    const std::vector<int> last_use = find_last_uses();
    found_.buffer.assign(graph_.values().size(), ValueBuffers::kNone);
    found_.overwritten.assign(steps_.size(), std::nullopt);
    for (const Step* const at : steps_) {
      const Step& step = *at;
      const std::vector<ValueId>& outputs = last_node(graph_, step).outputs;
      for (std::size_t o = 0; o < outputs.size(); ++o) {
        const std::size_t out = index(outputs[o]);
        const ValueId whole = whole_[out] == kNoValue ? outputs[o] : whole_[out];
        int& buffer = found_.buffer[index(whole)];
        if (buffer == ValueBuffers::kNone) {
          if (o == 0 && whole == outputs[o]) buffer = reusable_buffer(step);
          if (buffer == ValueBuffers::kNone) {
            buffer = static_cast<int>(found_.ranges.size());
            found_.ranges.push_back({graph_.value(whole).desc.bytes(), step.index, 0});
          }
          found_.ranges[static_cast<std::size_t>(buffer)].last = last_use[index(whole)];
        }
        found_.buffer[out] = buffer;
      }
    }
  }

  // The buffer of an input that output 0 may overwrite: it dies here, has the same desc, and no other operand sees it
  // under another desc, or where it is the kernel and not the layer that allows it, at all.
  int reusable_buffer(const Step& step) {
    if (step.is_chain) return ValueBuffers::kNone;  // its last node writes while others may read yet
    const Node& node = node_of(step);
    const TensorDesc& out = graph_.value(node.outputs[0]).desc;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId id = node.inputs[i];
      if (id == kNoValue) continue;
      const bool element_wise = node.layer->may_run_in_place(static_cast<int>(i));
      if (!element_wise && !(overwrites_ && overwrites_(step, i))) continue;
      const int buffer = found_.of(id);
      if (buffer == ValueBuffers::kNone || !(graph_.value(id).desc == out)) continue;
      if (found_.ranges[static_cast<std::size_t>(buffer)].last != step.index) continue;
      bool seen_otherwise = false;
      for (std::size_t j = 0; j < node.inputs.size(); ++j) {
        const ValueId other = node.inputs[j];
        seen_otherwise = seen_otherwise || (j != i && other != kNoValue && found_.of(other) == buffer &&
                                            !(element_wise && graph_.value(other).desc == out));
      }
      if (seen_otherwise) continue;
      found_.overwritten[static_cast<std::size_t>(step.index)] = i;
      return buffer;
    }
    return ValueBuffers::kNone;
  }

  std::size_t root_index(ValueId id) const { return index(found_.root[index(id)]); }
  const Node& node_of(const Step& step) const { return graph_.nodes()[static_cast<std::size_t>(step.node)]; }

  const Graph& graph_;
  std::span<const Step* const> steps_;
  const Overwrites& overwrites_;
  ValueBuffers found_;
  std::vector<ValueId> whole_;  // per value: the one that it is written into, or none
};

}  // namespace

ValueBuffers find_buffers(const Graph& graph, std::span<const Step* const> steps,
                          const std::function<bool(const Step&, std::size_t)>& overwrites) {
  return Finder(graph, steps, overwrites).run();
}

}  // namespace pipit::internal
