#include <algorithm>

#include "engine/device.h"
#include "engine/host_memory.h"
#include "engine/memory_planner.h"
#include "engine/plan_parts.h"
#include "engine/value_buffers.h"

namespace pipit {

namespace {

class Placer {
 public:
  Placer(Graph& graph, const PlanOptions& options, std::vector<Step>& steps)
      : graph_(graph), options_(options), steps_(steps), buffers_(find_buffers(graph, steps)) {}

  PlacedValues run() {
    place();
    release_packed_constants();
    return std::move(placed_);
  }

 private:
  void place() {
    std::vector<LiveRange> ranges = buffers_.ranges;
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
      const std::size_t offset =
          memory.offsets[buffers_.ranges.size() + static_cast<std::size_t>(step.index)];
      step.scratch_offset = (offset + alignment - 1) / alignment * alignment;
    }
    for (const ValueId id : graph_.outputs()) placed_.outputs.push_back(placement(id, memory));
  }

  Placement placement(ValueId id, const MemoryPlan& memory) const {
    Placement p;
    if (id == kNoValue) return p;
    p.desc = graph_.value(id).desc;
    const ValueId root = buffers_.root[index(id)];
    const int buffer = buffers_.of(id);
    if (buffer != ValueBuffers::kNone) {
      p.kind = Placement::Kind::arena;
      p.offset = memory.offsets[static_cast<std::size_t>(buffer)] + buffers_.offset[index(root)];
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

  std::size_t root_index(ValueId id) const { return index(buffers_.root[index(id)]); }
  const Node& node_of(const Step& step) const { return graph_.nodes()[static_cast<std::size_t>(step.node)]; }

  Graph& graph_;
  const PlanOptions& options_;
  std::vector<Step>& steps_;
  PlacedValues placed_;
  ValueBuffers buffers_;
};

}  // namespace

void check_arena(std::size_t bytes, const PlanOptions& options) {
  const std::size_t limit = options.max_arena_bytes != 0         ? options.max_arena_bytes
                            : options.device == DeviceKind::cuda ? gpu_memory(options.gpu)
                                                                 : available_host_memory();
  if (bytes > limit) {
    fail("the activations need {} but at most {} may be used; use a smaller batch or input", mebibytes(bytes),
         mebibytes(limit));
  }
}

PlacedValues place_values(Graph& graph, const PlanOptions& options, std::vector<Step>& steps) {
  return Placer(graph, options, steps).run();
}

}  // namespace pipit
