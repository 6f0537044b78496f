#include <algorithm>
#include <numeric>

#include "engine/device.h"
#include "engine/host_memory.h"
#include "engine/memory_planner.h"
#include "engine/plan_parts.h"

namespace pipit {

namespace {

class Placer {
 public:
  Placer(Graph& graph, const PlanOptions& options, std::vector<Step>& steps)
      : graph_(graph), options_(options), steps_(steps) {}

  PlacedValues run() {
    find_roots();
    find_parts();
    find_buffers();
    place();
    release_packed_constants();
    return std::move(placed_);
  }

 private:
  static constexpr int kNotInArena = -1;

  // Resolves views to the value whose memory they show.
  void find_roots() {
    root_.resize(graph_.values().size());
    std::iota(root_.begin(), root_.end(), ValueId{0});
    for (const Node& node : graph_.nodes()) {
      if (is_view(graph_, node)) root_[index(node.outputs[0])] = root_[index(node.inputs[0])];
    }
  }

  // The last step that needs each value, the index after all steps for the graph's outputs; -1: none does.
  std::vector<int> find_last_uses() const {
    std::vector<int> last_use(graph_.values().size(), -1);
    for (const Step& step : steps_) {
      for (const ValueId id : last_node(graph_, step).outputs) last_use[index(id)] = step.index;
      for (const ValueId id : node_of(step).inputs) {
        if (id != kNoValue) last_use[root_index(id)] = step.index;
      }
    }
    for (const ValueId id : graph_.outputs()) last_use[root_index(id)] = static_cast<int>(steps_.size());
    return last_use;
  }

  // Values that are written into a larger one.
  void find_parts() {
    whole_.assign(graph_.values().size(), kNoValue);
    offset_.assign(graph_.values().size(), 0);
    for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
      const ValueId id = last_node(graph_, *step).outputs[0];
      const bool nested = whole_[index(id)] != kNoValue;
      for (const Step::Part& part : step->parts) {
        whole_[index(part.value)] = nested ? whole_[index(id)] : id;
        offset_[index(part.value)] = offset_[index(id)] + part.offset;
      }
    }
  }

  // One buffer for each output of a step, or that of an input that dies with it, or of which it is a part.
  void find_buffers() {
    const std::vector<int> last_use = find_last_uses();
    buffer_.assign(graph_.values().size(), kNotInArena);
    for (const Step& step : steps_) {
      const std::vector<ValueId>& outputs = last_node(graph_, step).outputs;
      for (std::size_t o = 0; o < outputs.size(); ++o) {
        const std::size_t out = index(outputs[o]);
        const ValueId whole = whole_[out] == kNoValue ? outputs[o] : whole_[out];
        int& buffer = buffer_[index(whole)];
        if (buffer != kNotInArena) {  // a part is there already
          buffer_[out] = buffer;
          continue;
        }
        if (whole != outputs[o]) {
          buffer = buffer_[out] = static_cast<int>(buffers_.size());
          buffers_.push_back({graph_.value(whole).desc.bytes(), step.index, last_use[index(whole)]});
          continue;
        }
        const int reused = o == 0 ? reusable_buffer(step) : kNotInArena;
        if (reused != kNotInArena) {
          buffer_[out] = reused;
          buffers_[static_cast<std::size_t>(reused)].last = last_use[out];
        } else {
          buffer_[out] = static_cast<int>(buffers_.size());
          buffers_.push_back({graph_.values()[out].desc.bytes(), step.index, last_use[out]});
        }
      }
    }
  }

  // The buffer of an input that output 0 may overwrite: it dies here, has the same desc, and no other operand sees it
  // under another desc, or where it is the kernel and not the layer that allows it, at all.
  int reusable_buffer(const Step& step) const {
    const Node& node = node_of(step);
    const TensorDesc& out = graph_.value(node.outputs[0]).desc;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId id = node.inputs[i];
      if (id == kNoValue) continue;
      const bool element_wise = node.layer->may_run_in_place(static_cast<int>(i));
      if (!element_wise && !step.kernel->may_overwrite(i)) continue;
      const int buffer = buffer_[root_index(id)];
      if (buffer == kNotInArena || !(graph_.value(id).desc == out)) continue;
      if (buffers_[static_cast<std::size_t>(buffer)].last != step.index) continue;
      bool seen_otherwise = false;
      for (std::size_t j = 0; j < node.inputs.size(); ++j) {
        const ValueId other = node.inputs[j];
        seen_otherwise =
            seen_otherwise || (j != i && other != kNoValue && buffer_[root_index(other)] == buffer &&
                               !(element_wise && graph_.value(other).desc == out));
      }
      if (!seen_otherwise) return buffer;
    }
    return kNotInArena;
  }

  void place() {
    std::vector<LiveRange> ranges = buffers_;
    // Libraries on a GPU want their workspace on 256 bytes: room to move it there.
    const std::size_t alignment = options_.device == DeviceKind::cuda ? 256 : kArenaAlignment;
    for (const Step& step : steps_) {
      // The scratch of a step on the host is its session's.
      const std::size_t bytes = step.on_host ? 0 : step.kernel->scratch_bytes();
      ranges.push_back({bytes == 0 ? 0 : bytes + alignment - kArenaAlignment, step.index, step.index});
    }
    const MemoryPlan memory = plan_memory(ranges);
    check_arena(memory.arena_bytes, options_);
    placed_.arena_bytes = memory.arena_bytes;
    placed_.peak_live_bytes = peak_live_bytes(ranges);
    for (Step& step : steps_) {
      const Node& node = node_of(step);
      for (const ValueId id : node.inputs) step.inputs.push_back(placement(id, memory));
      for (const ValueId id : last_node(graph_, step).outputs) step.outputs.push_back(placement(id, memory));
      const std::size_t offset = memory.offsets[buffers_.size() + static_cast<std::size_t>(step.index)];
      step.scratch_offset = (offset + alignment - 1) / alignment * alignment;
    }
    for (const ValueId id : graph_.outputs()) placed_.outputs.push_back(placement(id, memory));
  }

  Placement placement(ValueId id, const MemoryPlan& memory) const {
    Placement p;
    if (id == kNoValue) return p;
    p.desc = graph_.value(id).desc;
    const ValueId root = root_[index(id)];
    const int buffer = buffer_[index(root)];
    if (buffer != kNotInArena) {
      p.kind = Placement::Kind::arena;
      p.offset = memory.offsets[static_cast<std::size_t>(buffer)] + offset_[index(root)];
    } else if (graph_.value(root).is_constant()) {
      p.kind = Placement::Kind::constant;
      p.constant = graph_.value(root).constant;
    } else {
      const auto& inputs = graph_.inputs();
      p.kind = Placement::Kind::input;
      p.input = static_cast<int>(std::find(inputs.begin(), inputs.end(), root) - inputs.begin());
    }
    return p;
  }

  void release_packed_constants() {
    std::vector<bool> read(graph_.values().size(), false);
    for (const ValueId id : graph_.outputs()) read[root_index(id)] = true;
    for (Step& step : steps_) {
      const Node& node = node_of(step);
      for (std::size_t i = 0; i < node.inputs.size(); ++i) {
        if (node.inputs[i] == kNoValue) continue;
        if (step.kernel->reads_constant(i)) {
          read[root_index(node.inputs[i])] = true;
        } else {
          step.inputs[i].constant.reset();
        }
      }
    }
    for (std::size_t v = 0; v < read.size(); ++v) {
      if (!read[v] && graph_.values()[v].constant) graph_.release_constant(static_cast<ValueId>(v));
    }
  }

  static std::size_t index(ValueId id) { return static_cast<std::size_t>(id); }
  std::size_t root_index(ValueId id) const { return index(root_[index(id)]); }
  const Node& node_of(const Step& step) const { return graph_.nodes()[static_cast<std::size_t>(step.node)]; }

  Graph& graph_;
  const PlanOptions& options_;
  std::vector<Step>& steps_;
  PlacedValues placed_;
  std::vector<ValueId> root_;        // per value: itself, or the value it is a view of
  std::vector<ValueId> whole_;       // per value: the one that it is written into, or none
  std::vector<std::size_t> offset_;  // per value: bytes to it there
  std::vector<int> buffer_;          // per root value
  // Pieces of arena that one or more values share, one after the other (in place) or as views.
  std::vector<LiveRange> buffers_;
};

}  // namespace

void check_arena(std::size_t bytes, const PlanOptions& options) {
  const std::size_t limit = options.max_arena_bytes != 0         ? options.max_arena_bytes
                            : options.device == DeviceKind::cuda ? gpu_memory(options.gpu)
                                                                 : available_host_memory();
  if (bytes > limit) {
    fail("the activations need {:.1f} MiB but at most {:.1f} MiB may be used; use a smaller batch or input",
         static_cast<double>(bytes) / 1048576.0, static_cast<double>(limit) / 1048576.0);
  }
}

PlacedValues place_values(Graph& graph, const PlanOptions& options, std::vector<Step>& steps) {
  return Placer(graph, options, steps).run();
}

}  // namespace pipit
