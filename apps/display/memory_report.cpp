#include "apps/display/memory_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "apps/display/table.h"
#include "engine/plan/arena_map.h"
#include "engine/platform/host_memory.h"
#include "pipit/detail/memory_use.h"

namespace pipit::internal::apps {

namespace {

const std::string& name_of(const ExecutionPlan& plan, int step) {
  const Step& at = plan.steps()[static_cast<std::size_t>(step)];
  return plan.graph().nodes()[static_cast<std::size_t>(at.node)].name;
}

// The step during which the arena holds the most.
int fullest_step(const ExecutionPlan& plan) {
  const std::vector<std::size_t> live = live_bytes(plan, arena_blocks(plan));
  return static_cast<int>(std::ranges::max_element(live) - live.begin());
}

std::size_t less(std::size_t all, std::size_t part) {
  return all - std::min(all, part);
}

}  // namespace

nlohmann::ordered_json memory_json(const ExecutionPlan& plan, const ProcessMemory& process) {
  const detail::MemoryUse use = detail::memory_use(plan);
  return {{"weight_bytes", use.weights},      {"packed_bytes", use.packed},
          {"constant_bytes", use.constants},  {"arena_bytes", plan.arena_bytes()},
          {"workspace_bytes", use.workspace}, {"rss_bytes", process.resident},
          {"peak_rss_bytes", process.peak}};
}

std::string memory_table(const ExecutionPlan& plan, const ProcessMemory& process, const DeviceMemory& device,
                         int width) {
  const detail::MemoryUse use = detail::memory_use(plan);
  const bool on_gpu = plan.options().device == DeviceKind::cuda;
  constexpr const char* kWhat = "what it is";
  Table table({{"memory"}, {"size", Table::Align::right}, {kWhat}});
  const auto add = [&](const char* name, std::size_t bytes, std::string what) {
    table.add({name, mebibytes(bytes), std::move(what)});
  };
  add("weights", use.weights,
      "of the graph that runs, as it stores them; freed once a kernel has packed them");
  add("packed", use.packed,
      use.largest_packed < 0 ? "no kernel packs any"
                             : fmt::format("in the order in which kernels read them; most of them '{}'",
                                           name_of(plan, use.largest_packed)));
  add("constants", use.constants, "that kernels read as they are");
  add("arena", plan.arena_bytes(),
      plan.steps().empty()
          ? "nothing runs"
          : fmt::format("activations and workspace of a run; {} must exist at once, in '{}'",
                        mebibytes(plan.peak_live_bytes()), name_of(plan, fullest_step(plan))));
  add("workspace", use.workspace,
      use.largest_workspace < 0
          ? "no kernel needs any"
          : fmt::format("inside the arena; '{}' needs the most", name_of(plan, use.largest_workspace)));
  const std::size_t planned = use.packed + use.constants + plan.arena_bytes();
  if (on_gpu) {
    add("device", device.held,
        fmt::format("held on the GPU beyond its context; {} of it code of kernels and what libraries took",
                    mebibytes(less(device.held, planned))));
    add("device peak", device.peak, "at worst, while planning");
  }
  add("process", process.resident,
      on_gpu
          ? "resident on the host when the runs were done"
          : fmt::format("resident when the runs were done; {} of it program, libraries, inputs and allocator",
                        mebibytes(less(process.resident, planned))));
  add("process peak", process.peak, "at worst, reading the model and planning included");
  const std::string text = table.str();
  return wrapped(text, text.find(kWhat), width);
}

}  // namespace pipit::internal::apps
