// What describes one step of a plan in tables, JSON and profiles.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/plan/execution_plan.h"
#include "pipit/detail/step_work.h"

namespace pipit::internal::detail {

struct StepInfo {
  int index = 0;
  std::string name, type, kernel, geometry;
  /// Names of the model's nodes: the step's own, and those that its kernel also computes.
  std::vector<std::string> nodes;
  LayerFamily family = LayerFamily::other;
  Shape input, output;
  std::int64_t macs = 0;  ///< without those of `kept`
  /// The share of the layer's multiply-accumulates that its kernel does: less than 1 where it leaves out zeros.
  double kept = 1;
  /// Inputs, outputs and weights, each once, in the type in which they are stored.
  std::int64_t bytes = 0;
  StepWork work;  ///< what the kernel makes of that: with padding, packed weights, and nothing twice
};
StepInfo step_info(const ExecutionPlan& plan, const Step& step);

}  // namespace pipit::internal::detail
