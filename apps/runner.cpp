#include "apps/runner.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <random>

#include "apps/int8.h"
#include "apps/terminal.h"
#include "engine/device.h"
#include "engine/naming.h"
#include "engine/profiler.h"
#include "engine/version.h"
#include "layers/fuse/rewriter.h"
#include "layers/qconv.h"
#include "layers/qelementwise.h"
#include "layers/qunary.h"
#include "models/image/decode.h"
#include "models/image/orientation.h"
#include "quant/compile.h"

namespace pipit::apps {

namespace {

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

}  // namespace

Runner::Runner(std::string name, Graph graph, const CommonOptions& options)
    : Runner(std::move(make_runners(std::move(name), std::move(graph), options, {})[0])) {}

std::vector<Runner> make_runners(std::string model, Graph graph, const CommonOptions& options,
                                 std::span<const int> gpus) {
  const auto begin = std::chrono::steady_clock::now();
  options.check_precision();
  return naming(model, [&] {
    CompileOptions how = options.compile_options();
    how.gpus.assign(gpus.begin(), gpus.end());
    std::vector<std::string> preprocess_differences;
    if (!options.plan.empty()) {
      how.scales = load_precision_plan(options.plan, graph);
      if (options.preprocess) {
        preprocess_differences =
            compare_preprocess(*how.scales, options.plan, *options.preprocess, options.quiet);
      }
    }
    Compiled compiled = compile(std::move(graph), how);
    if (!options.quiet) print_notes(compiled.notes);
    std::vector<Runner> runners;
    for (std::shared_ptr<const Plan>& plan : compiled.plans) {
      Runner& runner = runners.emplace_back(Runner());
      runner.passes = compiled.passes;
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

ClassOutput::ClassOutput(const Graph& graph, const std::string& model) {
  const TensorDesc& desc = graph.value(graph.outputs().at(0)).desc;
  const Shape& shape = desc.shape;
  bool fits = shape.rank() >= 2 && desc.dtype == DType::f32 && shape[1] >= 1;
  for (int d = 2; d < shape.rank(); ++d) fits = fits && shape[d] == 1;
  if (!fits)
    fail("{}: output '{}' is {}, expected f32 [N, classes]", model, graph.output_names()[0], desc.str());
  batch = shape[0];
  // A Reshape to [1, -1], say, puts all images of a batch into one row: its classes would be made up.
  const Value& input = graph.value(graph.inputs().at(0));
  if (input.desc.shape.rank() == 0 || input.desc.shape[0] != batch) {
    fail("{}: input '{}' is {}, but output '{}' is {}: expected one row of classes per image", model,
         input.name, input.desc.str(), graph.output_names()[0], desc.str());
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
  json["pipit"] = version();
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
