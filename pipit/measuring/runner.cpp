#include "pipit/measuring/runner.h"

#include <algorithm>
#include <random>

#include "engine/base/clock.h"
#include "engine/platform/device.h"
#include "engine/runtime/profiler.h"
#include "layers/common/dispatch.h"
#include "layers/passes/rewriter.h"
#include "models/image/byte_image.h"

namespace pipit::internal::detail {

Runner::Runner(std::string name, Graph graph, const RunnerOptions& options)
    : Runner(std::move(make_runners(std::move(name), std::move(graph), options)[0])) {}

std::vector<Runner> make_runners(std::string model, Graph graph, const RunnerOptions& options) {
  const auto begin = Clock::now();
  const LoadOptions& load = options.load;
  check_precision(model, graph, load);
  return naming(model, [&] {
    CompileOptions how = compile_options(load);
    if (options.tuning) how.tuning = options.tuning;
    std::vector<std::string> notes;
    std::vector<std::string> preprocess_differences;
    if (const std::filesystem::path plan = plan_of(load); !plan.empty()) {
      how.scales = read_plan_for(plan, graph);
      if (options.preprocess) preprocess_differences = differences_from(*how.scales, *options.preprocess);
      if (!preprocess_differences.empty()) notes.push_back(differences_note(plan, preprocess_differences));
    }
    const TensorDesc* input = graph.inputs().empty() ? nullptr : &graph.value(graph.inputs()[0]).desc;
    // A model that takes bytes, or one image without a batch, gets what it takes.
    const bool normalizes =
        options.byte_images && input != nullptr && input->dtype == DType::f32 && input->shape.rank() == 4;
    if (normalizes) graph = with_byte_image(graph, *options.byte_images);
    Compiled compiled = compile(std::move(graph), how);
    notes.insert(notes.end(), compiled.notes.begin(), compiled.notes.end());
    std::vector<Runner> runners;
    for (std::shared_ptr<const ExecutionPlan>& plan : compiled.plans) {
      Runner& runner = runners.emplace_back(Runner());
      runner.passes = compiled.passes;
      runner.notes = notes;
      runner.normalizes = normalizes;
      runner.preprocess_differences = preprocess_differences;
      runner.plan = std::move(plan);
      runner.session = std::make_unique<Session>(runner.plan);
      runner.model = model;
      runner.load_ms = milliseconds_since(begin);
    }
    return runners;
  });
}

void Runner::make_slots(int count) {
  naming(model, [&] { session->make_slots(count, true); });
}

void Runner::submit(int slot) {
  naming(model, [&] { session->submit(slot); });
}

SlotRun Runner::collect(int slot) {
  return naming(model, [&] { return session->collect(slot); });
}

std::span<const ConstTensorView> Runner::run(std::span<const ConstTensorView> inputs) {
  return naming(model, [&] { return session->run(inputs); });
}

Profile Runner::profile(std::span<const ConstTensorView> inputs, int warmup, int runs,
                        const std::function<void(int)>& progress) {
  return naming(model, [&] { return profile_session(*session, inputs, warmup, runs, progress); });
}

std::vector<Tensor> random_inputs(const Graph& graph) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::uniform_int_distribution<int> byte(0, 255);
  std::vector<Tensor> inputs;
  for (const ValueId id : graph.inputs()) {
    const Value& value = graph.value(id);
    Tensor& input = inputs.emplace_back(value.desc);
    with_dtype(value.desc.dtype, [&]<typename T>(std::type_identity<T>) {
      for (T& x : input.values<T>()) {
        if constexpr (std::is_floating_point_v<T>) {
          x = static_cast<T>(normal(random));
        } else if constexpr (std::is_same_v<T, std::uint8_t> || std::is_same_v<T, std::int8_t>) {
          x = static_cast<T>(byte(random));
        } else {
          // Indices into a list of any length, and both values of a condition.
          x = static_cast<T>(byte(random) % 2);
        }
      }
    });
  }
  return inputs;
}

const TensorDesc& first_input(const ExecutionPlan& plan) {
  return plan.graph().value(plan.graph().inputs()[0]).desc;
}

std::int64_t image_channels(const ExecutionPlan& plan) {
  const TensorDesc& input = first_input(plan);
  const std::optional<ImageInput> image = image_input(input.shape);
  return image ? image->channels : 0;
}

Precision computed_precision(const ExecutionPlan& plan) {
  const std::vector<Node>& nodes = plan.graph().nodes();
  const bool integers = std::any_of(nodes.begin(), nodes.end(), [](const Node& node) {
    return node.layer->traits().arithmetic == Arithmetic::integers;
  });
  const Precision precision = plan.options().precision;
  if (precision == Precision::fp32 && integers) return Precision::int8;
  if (precision != Precision::int8 || integers) return precision;
  // All of it is kept in floating point.
  const bool bf16 = std::ranges::any_of(plan.graph().values(),
                                        [](const Value& value) { return value.desc.dtype == DType::bf16; });
  return bf16 ? Precision::bf16 : Precision::fp16;
}

}  // namespace pipit::internal::detail
