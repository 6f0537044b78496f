#include "apps/measuring/runner.h"

#include <algorithm>
#include <random>
#include <string_view>

#include "apps/display/terminal.h"
#include "engine/base/clock.h"
#include "engine/base/version.h"
#include "engine/platform/device.h"
#include "engine/runtime/profiler.h"
#include "layers/common/dispatch.h"
#include "layers/passes/rewriter.h"
#include "models/image/byte_image.h"
#include "models/image/decode.h"
#include "pipit/detail/load.h"

namespace pipit::internal::apps {

namespace {

// Lists of nothing but numbers, which dump() spreads over as many lines. `text` is what it wrote.
std::string numbers_in_one_line(std::string_view text) {
  std::string result;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted && c == '\\') {
      result += c;
      result += text[++i];
      continue;
    }
    if (c == '"') quoted = !quoted;
    const std::size_t end = !quoted && c == '[' ? text.find_first_not_of("0123456789+-.eE, \n", i + 1) : 0;
    if (end == 0 || end == text.npos || text[end] != ']') {
      result += c;
      continue;
    }
    for (const char inside : text.substr(i, end - i)) {
      if (inside != ' ' && inside != '\n') result += inside;
      if (inside == ',') result += ' ';
    }
    i = end - 1;
  }
  return result;
}

}  // namespace

Runner::Runner(std::string name, Graph graph, const CommonOptions& options)
    : Runner(std::move(make_runners(std::move(name), std::move(graph), options, {})[0])) {}

std::vector<Runner> make_runners(std::string model, Graph graph, const CommonOptions& options,
                                 std::span<const int> gpus) {
  const auto begin = Clock::now();
  return naming(model, [&] {
    check_unquantized(graph, options.precision);
    options.check_precision();
    CompileOptions how = options.compile_options();
    how.gpus.assign(gpus.begin(), gpus.end());
    std::vector<std::string> preprocess_differences;
    if (!options.plan.empty()) {
      how.scales = detail::read_plan_for(options.plan, graph);
      if (options.preprocess)
        preprocess_differences = options.compare_preprocess(*how.scales, *options.preprocess);
    }
    const TensorDesc* input = graph.inputs().empty() ? nullptr : &graph.value(graph.inputs()[0]).desc;
    // A model that takes bytes, or one image without a batch, gets what it takes.
    const bool normalizes =
        options.byte_images && input != nullptr && input->dtype == DType::f32 && input->shape.rank() == 4;
    if (normalizes) graph = with_byte_image(graph, *options.byte_images);
    Compiled compiled = compile(std::move(graph), how);
    if (!options.quiet) print_notes(compiled.notes);
    std::vector<Runner> runners;
    for (std::shared_ptr<const ExecutionPlan>& plan : compiled.plans) {
      Runner& runner = runners.emplace_back(Runner());
      runner.passes = compiled.passes;
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
  naming(model, [&] { session->make_slots(count); });
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
  return precision == Precision::fp32 && integers ? Precision::int8 : precision;
}

nlohmann::ordered_json decoders_json() {
  const ImageDecoders decoders = image_decoders();
  nlohmann::ordered_json json = {{"jpeg", decoders.jpeg}, {"png", decoders.png}};
  if (!decoders.webp.empty()) json["webp"] = decoders.webp;
  return json;
}

void add_scores_to(nlohmann::ordered_json& json, const ClassOutput& output) {
  json["scores"] = score_kind_name(output.kind);
  if (are_independent(output.kind)) json["threshold"] = output.threshold;
}

nlohmann::ordered_json json_header(const std::string& command, const Model& model,
                                   const ExecutionPlan& plan) {
  nlohmann::ordered_json json;
  json["pipit"] = version();
  json["command"] = command;
  json["model"] = model.name;
  json["device"] = device_name(plan.options().device);
  json["precision"] = precision_name(computed_precision(plan));
  json["threads"] = plan.options().threads;
  return json;
}

std::string json_text(const nlohmann::ordered_json& json) {
  // Paths and labels may hold bytes that are not UTF-8: replace them rather than fail.
  return printable_json(numbers_in_one_line(
             json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace))) +
         "\n";
}

void print_json(const nlohmann::ordered_json& json) {
  fmt::print("{}", json_text(json));
}

}  // namespace pipit::internal::apps
