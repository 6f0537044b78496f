#include "pipit/profile.h"

#include <random>

#include "engine/base/error.h"
#include "engine/platform/float_mode.h"
#include "engine/runtime/profiler.h"
#include "pipit/detail/load.h"
#include "pipit/detail/step_info.h"

namespace pipit::tools {

using namespace internal;

namespace {

// Normal numbers, always the same: zeros could run faster than data does.
std::vector<std::vector<float>> random_values(const CompiledModel& model) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<std::vector<float>> all;
  for (const TensorInfo& info : model.inputs()) {
    if (info.dtype != DType::f32)
      fail("{}: input '{}' is {}; made-up inputs are f32 only", model.name(), info.name,
           dtype_name(info.dtype));
    std::vector<float>& values = all.emplace_back(static_cast<std::size_t>(info.shape.elements()));
    for (float& x : values) x = normal(random);
  }
  return all;
}

}  // namespace

ModelProfile profile(const CompiledModel& model, std::span<const ArrayView> inputs,
                     const ProfileOptions& options) {
  const ScopedFloatMode mode;
  if (options.device < 0 || options.device >= model.devices())
    fail("{}: there is no device {}; it was compiled for {}", model.name(), options.device, model.devices());
  const std::shared_ptr<const ExecutionPlan>& plan =
      model.state().plans[static_cast<std::size_t>(options.device)];
  std::vector<std::vector<float>> made;
  std::vector<ConstTensorView> views;
  if (inputs.empty()) {
    made = random_values(model);
    for (std::size_t i = 0; i < made.size(); ++i)
      views.push_back(
          {TensorDesc{model.inputs()[i].shape}, reinterpret_cast<const std::byte*>(made[i].data())});
  }
  for (const ArrayView& given : inputs)
    views.push_back({TensorDesc{given.shape, given.dtype}, static_cast<const std::byte*>(given.data)});
  const Profile measured = naming(model.name(), [&] {
    Session session(plan);
    session.run(views);  // checks the inputs
    return profile_session(session, views, options.warmup, options.runs);
  });
  ModelProfile result;
  result.runs = measured.runs;
  result.layers_ms = measured.layers_ms;
  result.end_to_end_ms = measured.end_to_end_ms;
  result.residual_ms = measured.residual_ms;
  result.graph_ms = measured.graph_ms;
  for (const StepTime& time : measured.steps) {
    detail::StepInfo info = detail::step_info(*plan, plan->steps()[static_cast<std::size_t>(time.step)]);
    result.layers.push_back({std::move(info.name), std::move(info.type), std::move(info.kernel),
                             std::move(info.geometry), info.input, info.output, info.macs, info.bytes,
                             time.median_ms});
  }
  return result;
}

}  // namespace pipit::tools
