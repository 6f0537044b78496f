#include <algorithm>

#include "engine/plan/memory_planner.h"
#include "engine/plan/plan_building.h"
#include "engine/platform/device.h"
#include "engine/platform/host_memory.h"
#include "pipit/text.h"

namespace pipit::internal {

namespace {

class Placer {
 public:
  Placer(const PlanSubject& subject, const ValueBuffers& buffers, std::vector<Step>& steps)
      : subject_(subject), graph_(subject.graph), buffers_(buffers), steps_(steps) {}

  PlacedValues run() {
    std::vector<LiveRange> ranges = buffers_.ranges;
    // Libraries on a GPU want their workspace on 256 bytes: room to move it there.
    const std::size_t alignment = subject_.options.device == DeviceKind::cuda ? 256 : kArenaAlignment;
    for (const Step& step : steps_) {
      // The scratch of a step on the host is its session's.
      const std::size_t bytes = step.on_host ? 0 : step.kernel->scratch_bytes();
      ranges.push_back({bytes == 0 ? 0 : bytes + alignment - kArenaAlignment, step.index, step.index});
    }
    const MemoryPlan memory = plan_memory(ranges);
    check_arena(memory.arena_bytes, subject_.options);
    PlacedValues placed;
    placed.arena_bytes = memory.arena_bytes;
    placed.peak_live_bytes = peak_live_bytes(ranges);
    for (Step& step : steps_) {
      const std::vector<ValueId>& inputs = graph_.nodes()[static_cast<std::size_t>(step.node)].inputs;
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        step.inputs.push_back(placement(inputs[i], memory));
        if (!step.kernel->reads_constant(i)) step.inputs.back().constant.reset();
      }
      for (const ValueId id : step.outside) step.inputs.push_back(placement(id, memory));
      for (const ValueId id : last_node(graph_, step).outputs) step.outputs.push_back(placement(id, memory));
      const std::size_t offset =
          memory.offsets[buffers_.ranges.size() + static_cast<std::size_t>(step.index)];
      step.scratch_offset = (offset + alignment - 1) / alignment * alignment;
    }
    find_settled();
    for (const ValueId id : graph_.outputs()) placed.outputs.push_back(placement(id, memory));
    return placed;
  }

 private:
  void find_settled() {
    std::vector<int> writer(buffers_.root.size(), -1);  // per root: its step
    int settling = -1;                                  // the last step that does
    for (Step& step : steps_) {
      std::vector<ValueId> inputs = graph_.nodes()[static_cast<std::size_t>(step.node)].inputs;
      inputs.insert(inputs.end(), step.outside.begin(), step.outside.end());
      for (std::size_t i = 0; i < std::min<std::size_t>(inputs.size(), 32); ++i) {
        if (inputs[i] != kNoValue && writer[index(buffers_.root[index(inputs[i])])] < settling)
          step.settled |= std::uint32_t{1} << i;
      }
      for (const ValueId id : last_node(graph_, step).outputs)
        writer[index(buffers_.root[index(id)])] = step.index;
      if (step.kernel->orders_prior_writes()) settling = step.index;
    }
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
      p.constant = subject_.constants.tensor(root);
    } else {
      const auto& inputs = graph_.inputs();
      p.kind = Placement::Kind::input;
      p.input = static_cast<int>(std::find(inputs.begin(), inputs.end(), root) - inputs.begin());
    }
    return p;
  }

  const PlanSubject& subject_;
  const Graph& graph_;
  const ValueBuffers& buffers_;
  std::vector<Step>& steps_;
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

PlacedValues place_values(const PlanSubject& subject, const ValueBuffers& buffers, std::vector<Step>& steps) {
  return Placer(subject, buffers, steps).run();
}

}  // namespace pipit::internal
