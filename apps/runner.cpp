#include "apps/runner.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <future>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "apps/int8.h"
#include "apps/terminal.h"
#include "apps/version.h"
#include "engine/device.h"
#include "engine/profiler.h"
#include "layers/fuse/rewriter.h"
#include "layers/qconv.h"
#include "layers/qelementwise.h"
#include "layers/qunary.h"
#include "layers/registry.h"
#include "models/image/decode.h"
#include "models/image/orientation.h"
#include "quant/dynamic.h"
#include "quant/weight_only.h"

namespace pipit::apps {

namespace {

// What `act` returns, with errors that begin with the model: the engine knows nodes, but not their file.
template <typename Act>
auto naming(const std::string& model, Act act) {
  try {
    return act();
  } catch (const UnsupportedError& e) {
    fail_unsupported("{}: {}", model, e.what());
  } catch (const Error& e) {
    fail("{}: {}", model, e.what());
  }
}

// What is known of a graph when it is ready to be planned.
struct Prepared {
  std::vector<PassReport> passes;
  std::vector<std::string> preprocess_differences;
  std::shared_ptr<std::set<std::string>> keep_f32 = std::make_shared<std::set<std::string>>();
};

// The pass of a precision plan. It adds nodes that stay in fp32 to prepared.keep_f32.
ExtraPass planned_pass(const Graph& graph, const CommonOptions& options, Prepared& prepared) {
  PrecisionPlan plan = load_precision_plan(options.plan, graph);
  if (options.preprocess) {
    prepared.preprocess_differences =
        compare_preprocess(plan, options.plan, *options.preprocess, options.quiet);
  }
  return int8_pass(std::move(plan), options.kept(), options.quiet, options.device, prepared.keep_f32);
}

// The pass that makes the graph compute with integers, or none.
ExtraPass quantising_pass(const Graph& graph, const CommonOptions& options, Prepared& prepared) {
  options.check_precision();
  switch (options.precision) {
    case Precision::fp32:
    case Precision::fp16:
      return {};
    case Precision::int8:
      return planned_pass(graph, options, prepared);
    case Precision::int8_dynamic:
    case Precision::w8:
    case Precision::w4:
      break;
  }
  if (options.device != DeviceKind::cpu) {
    fail_unsupported("precision {} runs on the CPU only; use --device cpu, or fp32, fp16 or int8 on a GPU",
                     precision_name(options.precision));
  }
  if (options.precision == Precision::int8_dynamic) {
    return {"quantise dynamically", [per_sample = options.dynamic_scales != "per-tensor"](Graph fused) {
              return quantize_dynamically(std::move(fused), {per_sample});
            }};
  }
  return {"store weights", [how = options.weight_options(), threads = options.threads](Graph fused) {
            return store_weights_only(std::move(fused), how, *shared_pool(threads));
          }};
}

// A model that is quantised already has its scales, and computes in what they say.
void check_unquantised(const Graph& graph, const CommonOptions& options) {
  if (options.precision == Precision::fp32 || !is_quantised(graph)) return;
  if (options.precision == Precision::int8)
    fail_unsupported(
        "the model is quantised already and holds its own scales: leave --precision and --plan out");
  fail_unsupported(
      "the model is quantised: its layers run in INT8 where it says so, the others in fp32; leave "
      "--precision {} out",
      precision_name(options.precision));
}

// What the passes have to say, one line.
void print_notes(const std::vector<PassReport>& passes) {
  for (const PassReport& pass : passes) {
    if (pass.notes.empty()) continue;
    const std::size_t more = pass.notes.size() - 1;
    print_error(
        fmt::format("note: {}{}", pass.notes[0],
                    more == 0 ? "" : fmt::format(" ({} more such layers: pipit inspect lists them)", more)));
  }
}

// The graph as it is planned. Consumes `graph`, so that the plan holds the only reference to constants it packs.
Graph prepare(Graph graph, const CommonOptions& options, Prepared& prepared) {
  check_unquantised(graph, options);
  std::vector<PassReport>& passes = prepared.passes;
  const ExtraPass quantise = quantising_pass(graph, options, prepared);
  Graph optimised = optimize(std::move(graph), &passes, quantise, options.device);
  if (!options.quiet) print_notes(passes);
  const bool int8_on_gpu = options.precision == Precision::int8 && options.device == DeviceKind::cuda;
  if (options.precision == Precision::fp16 || int8_on_gpu) {
    if (int8_on_gpu) {
      Rewritten read = fuse_quantised_image(optimised);
      passes.push_back({"fuse quantised image", read.changes, {}});
      optimised = std::move(read.graph);
    }
    Rewritten stored = assign_precision(optimised, options.precision, options.device, *prepared.keep_f32);
    passes.push_back({"convert precision", stored.changes, {}});
    optimised = std::move(stored.graph);
  }
  return optimised;
}

bool is_grey(const Image& image) {
  const std::uint8_t* const end = image.pixels.data() + image.pixels.size();
  for (const std::uint8_t* p = image.pixels.data(); p < end; p += 3) {
    if (p[0] != p[1] || p[1] != p[2]) return false;
  }
  return true;
}

double milliseconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

// One plan for each GPU, each built in a thread of its own. The first error in the order of `gpus` is thrown.
std::map<int, std::shared_ptr<const Plan>> build_plans(Graph graph, const PlanOptions& options,
                                                       const std::set<int>& gpus) {
  std::map<int, std::future<std::shared_ptr<const Plan>>> building;
  for (const int gpu : gpus) {
    PlanOptions own = options;
    own.gpu = gpu;
    building[gpu] = std::async(std::launch::async, [graph, own]() mutable {
      return Plan::build(std::move(graph), default_registry(), own);
    });
  }
  graph = Graph{};
  std::map<int, std::shared_ptr<const Plan>> plans;
  for (auto& [gpu, plan] : building) plans[gpu] = plan.get();
  return plans;
}

}  // namespace

Runner::Runner(std::string name, Graph graph, const CommonOptions& options) : model(std::move(name)) {
  const auto begin = std::chrono::steady_clock::now();
  const PlanOptions plan_options = options.plan_options();
  Prepared prepared;
  naming(model, [&] {
    plan = Plan::build(prepare(std::move(graph), options, prepared), default_registry(), plan_options);
    session = std::make_unique<Session>(plan);
  });
  passes = std::move(prepared.passes);
  preprocess_differences = std::move(prepared.preprocess_differences);
  options.tuning.save(options.quiet);
  load_ms = milliseconds_since(begin);
}

std::vector<Runner> make_runners(std::string model, Graph graph, const CommonOptions& options,
                                 std::span<const int> gpus) {
  const auto begin = std::chrono::steady_clock::now();
  const PlanOptions plan_options = options.plan_options();
  for (const int gpu : gpus) select_gpu(gpu);
  return naming(model, [&] {
    Prepared prepared;
    const auto plans = build_plans(prepare(std::move(graph), options, prepared), plan_options,
                                   std::set<int>(gpus.begin(), gpus.end()));
    options.tuning.save(options.quiet);
    const auto pool = shared_pool(plans.begin()->second->options().threads);
    std::vector<Runner> runners;
    for (const int gpu : gpus) {
      Runner& runner = runners.emplace_back(Runner());
      runner.passes = prepared.passes;
      runner.preprocess_differences = prepared.preprocess_differences;
      runner.plan = plans.at(gpu);
      runner.session = std::make_unique<Session>(runner.plan, pool);
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

ClassOutput::ClassOutput(const Plan& plan, const std::string& model) {
  const TensorDesc& desc = plan.outputs().at(0).desc;
  const Shape& shape = desc.shape;
  bool fits = shape.rank() >= 2 && desc.dtype == DType::f32 && shape[1] >= 1;
  for (int d = 2; d < shape.rank(); ++d) fits = fits && shape[d] == 1;
  if (!fits)
    fail("{}: output '{}' is {}, expected f32 [N, classes]", model, plan.graph().output_names()[0],
         desc.str());
  batch = shape[0];
  // A Reshape to [1, -1], say, puts all images of a batch into one row: its classes would be made up.
  const Value& input = plan.graph().value(plan.graph().inputs().at(0));
  if (input.desc.shape.rank() == 0 || input.desc.shape[0] != batch) {
    fail("{}: input '{}' is {}, but output '{}' is {}: expected one row of classes per image", model,
         input.name, input.desc.str(), plan.graph().value(plan.graph().outputs()[0]).name, desc.str());
  }
  classes = shape[1];
}

std::vector<Prediction> top_classes(std::span<const float> scores, int k, const Runner& runner,
                                    const std::filesystem::path& image) {
  if (std::any_of(scores.begin(), scores.end(), [](float s) { return std::isnan(s); })) {
    const bool half = runner.plan->options().precision == Precision::fp16;
    fail("{}: the output of {} for this image has NaN among its {} scores{}", image.string(), runner.model,
         scores.size(), half ? "; values beyond 65504 overflow in fp16: try --precision fp32" : "");
  }
  const double sum = std::accumulate(scores.begin(), scores.end(), 0.0);
  const auto [low, high] = std::minmax_element(scores.begin(), scores.end());
  const bool probabilities = *low >= 0 && *high <= 1 && std::abs(sum - 1) < 1e-3;
  double denominator = 0;
  for (const float s : scores) denominator += std::exp(static_cast<double>(s) - *high);

  std::vector<int> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  const auto count = std::min(static_cast<std::size_t>(k), order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(),
                    [&](int a, int b) {
                      const float sa = scores[static_cast<std::size_t>(a)];
                      const float sb = scores[static_cast<std::size_t>(b)];
                      return sa != sb ? sa > sb : a < b;
                    });
  std::vector<Prediction> top;
  for (std::size_t i = 0; i < count; ++i) {
    const float s = scores[static_cast<std::size_t>(order[i])];
    const double p = probabilities ? s : std::exp(static_cast<double>(s) - *high) / denominator;
    top.push_back({order[i], static_cast<float>(p)});
  }
  return top;
}

std::string label_of(const Labels& labels, int index) {
  const auto i = static_cast<std::size_t>(index);
  return i < labels.size() && !labels[i].empty() ? labels[i] : fmt::format("class {}", index);
}

LoadedImage load_image(const std::filesystem::path& path, const Preprocess& preprocess, const Shape& input,
                       std::span<float> out) {
  const ImageInput place = image_input(input).value();
  Image image = decode_image(path);
  LoadedImage loaded;
  if (preprocess.exif_transpose) {
    loaded.exif_orientation = image.exif_orientation;
    image = upright(std::move(image));
  }
  loaded.grey = is_grey(image);
  const Extent extent = preprocessed_extent(preprocess, image.extent());
  if (extent.height != place.height || extent.width != place.width) {
    fail("{}: {}x{} pixels after preprocessing, the model takes {}x{}; use --crop or --resize", path.string(),
         extent.height, extent.width, place.height, place.width);
  }
  if (place.channels == 1) {
    preprocess_gray(image, preprocess, out);
  } else {
    pipit::preprocess(image, preprocess, out, place.layout);
  }
  return loaded;
}

std::vector<Tensor> random_inputs(const Graph& graph, const std::string& model) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<Tensor> inputs;
  for (const ValueId id : graph.inputs()) {
    const Value& value = graph.value(id);
    if (value.desc.dtype != DType::f32) {
      fail("{}: input '{}' is {}; random inputs are made of f32 only", model, value.name, value.desc.str());
    }
    inputs.emplace_back(value.desc);
    for (float& x : inputs.back().values<float>()) x = normal(random);
  }
  return inputs;
}

std::string_view computed_precision(const Plan& plan) {
  const std::vector<Node>& nodes = plan.graph().nodes();
  const bool integers = std::any_of(nodes.begin(), nodes.end(), [](const Node& node) {
    return layer_if<QConv>(node) || layer_if<QAdd>(node) || layer_if<QAveragePool>(node) ||
           layer_if<QMul>(node) || layer_if<QUnary>(node);
  });
  const Precision precision = plan.options().precision;
  return precision_name(precision == Precision::fp32 && integers ? Precision::int8 : precision);
}

nlohmann::ordered_json decoders_json() {
  const ImageDecoders decoders = image_decoders();
  return {{"jpeg", decoders.jpeg}, {"png", decoders.png}};
}

nlohmann::ordered_json json_header(const std::string& command, const Model& model, const Plan& plan) {
  nlohmann::ordered_json json;
  json["pipit"] = kVersion;
  json["command"] = command;
  json["model"] = model.name;
  json["device"] = device_name(plan.options().device);
  json["precision"] = computed_precision(plan);
  json["threads"] = plan.options().threads;
  return json;
}

void print_json(const nlohmann::ordered_json& json) {
  // Paths and labels may hold bytes that are not UTF-8: replace them rather than fail.
  fmt::print("{}\n",
             printable_json(json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace)));
}

}  // namespace pipit::apps
