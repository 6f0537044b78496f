#include "engine/runtime/output_uses.h"

#include <algorithm>

namespace pipit::internal {

namespace {

bool overlap(const Placement& a, const Placement& b) {
  return a.kind == Placement::Kind::arena && b.kind == Placement::Kind::arena &&
         a.offset < b.offset + b.desc.bytes() && b.offset < a.offset + a.desc.bytes();
}

bool holds(const Placement& outer, const Placement& inner) {
  return outer.offset <= inner.offset &&
         inner.offset + inner.desc.bytes() <= outer.offset + outer.desc.bytes();
}

// Empty where the output has to stay. The memory of an output is its own from the step that writes it to the end.
std::vector<OutputUse> uses_of(const Placement& output, const std::vector<Step>& steps) {
  const auto in_output = [&](const Placement& place) { return overlap(place, output); };
  const auto last = std::find_if(steps.rbegin(), steps.rend(), [&](const Step& step) {
    return std::ranges::any_of(step.outputs, in_output);
  });
  if (last == steps.rend()) return {};
  const Step& writer = *last;
  if (!writer.parts.empty() || std::ranges::any_of(writer.inputs, in_output) ||
      std::ranges::count_if(writer.outputs, in_output) != 1)
    return {};
  const auto written = std::ranges::find_if(writer.outputs, in_output);
  if (written->offset != output.offset || written->desc.bytes() != output.desc.bytes()) return {};
  std::vector<OutputUse> uses = {{static_cast<std::size_t>(writer.index),
                                  static_cast<std::size_t>(written - writer.outputs.begin()), true, 0}};
  for (std::size_t s = uses[0].step + 1; s < steps.size(); ++s) {
    for (std::size_t i = 0; i < steps[s].inputs.size(); ++i) {
      const Placement& input = steps[s].inputs[i];
      if (!in_output(input)) continue;
      if (!holds(output, input)) return {};
      uses.push_back({s, i, false, input.offset - output.offset});
    }
  }
  return uses;
}

}  // namespace

std::vector<std::vector<OutputUse>> find_output_uses(const ExecutionPlan& plan) {
  const std::vector<Placement>& outputs = plan.outputs();
  std::vector<std::vector<OutputUse>> all(outputs.size());
  if (plan.micro_batches().cut()) return all;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const bool shared = std::ranges::count_if(
                            outputs, [&](const Placement& other) { return overlap(outputs[i], other); }) != 1;
    if (!shared) all[i] = uses_of(outputs[i], plan.steps());
  }
  return all;
}

}  // namespace pipit::internal
