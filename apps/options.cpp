#include "apps/options.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <span>

#include "apps/list_option.h"
#include "layers/conv.h"
#include "layers/dynamic.h"
#include "layers/qconv.h"
#include "layers/registry.h"
#include "layers/weight_only.h"
#include "models/catalogue.h"
#include "quant/keep.h"

namespace pipit::apps {

namespace {

const std::map<std::string, DeviceKind> kDevices = {{"cpu", DeviceKind::cpu}, {"cuda", DeviceKind::cuda}};
const std::map<std::string, Precision> kPrecisions = {
    {"fp32", Precision::fp32}, {"fp16", Precision::fp16},
    {"int8", Precision::int8}, {"int8-dynamic", Precision::int8_dynamic},
    {"w8", Precision::w8},     {"w4", Precision::w4}};
const std::map<std::string, Interpolation> kInterpolations = {{"nearest", Interpolation::nearest},
                                                              {"bilinear", Interpolation::bilinear},
                                                              {"bicubic", Interpolation::bicubic}};

template <typename T>
CLI::Option* add_choice(CLI::App& command, const std::string& name, T& value,
                        const std::map<std::string, T>& choices, const std::string& help) {
  // CLI::CheckedTransformer would print the integers behind the names too.
  std::vector<std::string> names;
  for (const auto& [key, unused] : choices) names.push_back(key);
  return command
      .add_option_function<std::string>(
          name, [&value, &choices](const std::string& key) { value = choices.at(key); }, help)
      ->check(CLI::IsMember(names));
}

template <typename Names>
CLI::Validator one_of(const Names& names) {
  std::string list;
  for (const auto& name : names) list += (list.empty() ? "" : ", ") + std::string(name);
  return {[names, list](const std::string& value) {
            const bool known = std::find(names.begin(), names.end(), value) != names.end();
            return known ? std::string{} : fmt::format("there is no '{}'; there are {}", value, list);
          },
          ""};
}

// What --conv-backend is about, in every precision.
constexpr std::string_view kConvolutions[] = {Conv::kType, QConv::kType, DynamicQConv::kType, WConv::kType};

// What --kernel and --conv-backend take: a name asks for the kernel and its variants ("tile, f16 storage").
std::set<std::string> kernel_choices(std::span<const std::string_view> layer_types = {}) {
  std::set<std::string> names;
  if (layer_types.empty()) names = default_registry().kernel_names();
  for (const std::string_view type : layer_types) names.merge(default_registry().kernel_names(type));
  std::erase_if(names, [](const std::string& name) { return name.find(", ") != std::string::npos; });
  return names;
}

std::string keep_problem(const std::string& text) {
  try {
    parse_keep(text);
    return {};
  } catch (const Error& e) {
    return e.what();
  }
}

// An option's value as a double that `accepts` it. Values beyond float, the type of all that is computed with
// them, are refused as well.
CLI::Validator number(const std::string& what, bool (*accepts)(float)) {
  return {[what, accepts](const std::string& text) {
            double value = 0;
            const bool parsed = CLI::detail::lexical_cast(text, value);
            const auto narrow = static_cast<float>(value);
            return parsed && std::isfinite(narrow) && accepts(narrow)
                       ? std::string{}
                       : fmt::format("'{}' is not {}", text, what);
          },
          "NUMBER"};
}

void check_three(const char* option, const std::vector<float>& values) {
  if (!values.empty() && values.size() != 3)
    throw CLI::ValidationError(option, fmt::format("{} numbers; expected a,b,c", values.size()));
}

}  // namespace

CLI::Validator finite_number() {
  return number("a finite number", [](float) { return true; });
}

CLI::Validator positive_number() {
  return number("a positive number", [](float value) { return value > 0; });
}

CLI::Validator nonnegative_number() {
  return number("a number of 0 or more", [](float value) { return value >= 0; });
}

CLI::Validator count_value() {
  return {[](const std::string& text) {
            std::int64_t value = -1;
            const char* end = text.data() + text.size();
            const auto [stop, error] = std::from_chars(text.data(), end, value);
            return error == std::errc{} && stop == end && value >= 0
                       ? std::string{}
                       : fmt::format("'{}' is not an integer from 0 to 2^63 - 1", text);
          },
          ""};
}

const std::map<std::string, Precision>& precisions() {
  return kPrecisions;
}

std::string model_help() {
  return "An ONNX file, or the name of a model (pipit models tells more): " + named_model_list();
}

void CommonOptions::add_to(CLI::App& command) {
  add_shared_to(command);
  command.add_option("--threads", threads, "CPU threads; 0: all CPUs this process may use")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  add_choice(command, "--precision", precision, kPrecisions,
             "Arithmetic of the kernels; int8 has the scales of --plan, int8-dynamic finds its own at run "
             "time; w8 and w4 store the weights of fully connected layers and 1x1 "
             "convolutions in 8 or 4 bits and compute in f32 [fp32]");
}

void CommonOptions::check_precision() const {
  if (precision == Precision::int8 && plan.empty())
    throw CLI::ValidationError("--precision",
                               "int8 needs --plan with the scales that pipit calibrate writes");
  if (precision != Precision::int8 && !plan.empty())
    throw CLI::ValidationError("--plan",
                               fmt::format("is for --precision int8, not {}", precision_name(precision)));
  if (precision != Precision::int8 && !keep.empty())
    throw CLI::ValidationError("--keep",
                               fmt::format("is for --precision int8, not {}", precision_name(precision)));
  if (precision != Precision::w4 && group_size)
    throw CLI::ValidationError("--group-size",
                               fmt::format("is for --precision w4, not {}", precision_name(precision)));
  if (precision != Precision::int8_dynamic && !dynamic_scales.empty())
    throw CLI::ValidationError("--dynamic-scales", fmt::format("is for --precision int8-dynamic, not {}",
                                                               precision_name(precision)));
}

std::vector<PrecisionPlan::Kept> CommonOptions::kept() const {
  std::vector<PrecisionPlan::Kept> all;
  for (const std::string& text : keep) all.push_back(parse_keep(text));
  return all;
}

void CommonOptions::add_shared_to(CLI::App& command) {
  command.add_option("--plan", plan, "Scales for --precision int8, as written by pipit calibrate");
  command
      .add_option(
          "--keep", keep,
          "NAME=fp32 or NAME=fp16: a layer that does not run in INT8, besides those that the plan keeps; "
          "NAME=int8: one "
          "that does although the plan keeps it; "
          "'first' and 'last' are the first and last with weights. One layer each time; may be repeated. The "
          "CPU computes both in fp32")
      ->allow_extra_args(false)
      ->check(CLI::Validator(keep_problem, ""))
      ->type_name("NAME=fp32|fp16|int8");
  command
      .add_option("--group-size", group_size,
                  "For --precision w4: neighbouring weights that share a scale: 32, 64 or 128 [32 in "
                  "convolutions, 128 in fully connected layers]")
      ->check(CLI::IsMember(std::vector<std::int64_t>{32, 64, 128}));
  command
      .add_option(
          "--dynamic-scales", dynamic_scales,
          "For --precision int8-dynamic: a scale for each image of a batch, or one for all; per-sample "
          "answers do not depend on the rest of the batch [per-sample]")
      ->check(CLI::IsMember({"per-sample", "per-tensor"}));
  command.add_flag("--json", json, "Write the result to stdout as one JSON document");
  command.add_flag("--quiet", quiet, "No progress and no notes on stderr; errors still appear");
  add_choice(command, "--device", device, kDevices, "Where to run [cpu]");
  command
      .add_option(
          "--kernel", kernel,
          "Prefer this kernel wherever it accepts a node, for example 'reference' (see inspect --why)")
      ->check(one_of(kernel_choices()));
  command
      .add_option("--conv-backend", conv_backend,
                  "The same for convolutions only, for example 'im2col_gemm'; goes before --kernel")
      ->check(one_of(kernel_choices(kConvolutions)));
  command.add_flag(
      "--allow-fallback", allow_fallback,
      "With --device cuda: run layers without a GPU kernel on the CPU, through copies (kernel \"cpu:...\")");
  tuning.add_to(command);
  command.add_flag(
      "--no-winograd", no_winograd,
      "No convolution by Winograd's transforms on the CPU: they are faster, and about one decimal digit "
      "less exact");
  command
      .add_option(
          "--micro-batch", micro_batch,
          "On the CPU: how many samples of a batch go through all layers together, so that what a layer "
          "writes is still in a cache when the next one reads it; 0: all of them. Needs layers that keep "
          "samples apart [chosen from the sizes of activations; see inspect]")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{65536}));
}

CompileOptions CommonOptions::compile_options() const {
  CompileOptions options;
  options.tuning = tuning.tuning();
  options.keep = kept();
  options.per_sample_scales = dynamic_scales != "per-tensor";
  options.group_size = group_size.value_or(0);
  PlanOptions& planning = options.planning;
  planning.device = device;
  planning.precision = precision;
  planning.threads = threads;
  planning.prefer_kernel = kernel;
  if (!conv_backend.empty()) {
    for (const std::string_view type : kConvolutions) planning.prefer_for_type.emplace(type, conv_backend);
  }
  if (no_winograd) {
    for (const std::string& name : default_registry().kernel_names(Conv::kType)) {
      if (name.rfind("winograd", 0) == 0) planning.exclude_kernels.push_back(name);
    }
  }
  planning.allow_fallback = allow_fallback;
  planning.keep_every_value = keep_every_value;
  planning.micro_batch = micro_batch;
  return options;
}

std::map<std::string, std::set<std::string>> foreign_on_the_cpu(std::set<std::string> precisions,
                                                                bool times_kernels) {
  std::map<std::string, std::set<std::string>> options{{"--device", {"cpu"}},
                                                       {"--precision", std::move(precisions)},
                                                       {"--group-size", {}},
                                                       {"--dynamic-scales", {}},
                                                       {"--allow-fallback", {}}};
  if (!times_kernels)
    options.insert({{"--autotune", {}}, {"--no-autotune", {"true"}}, {"--tuning-cache", {}}});
  return options;
}

void without_options(CLI::App& command, const std::map<std::string, std::set<std::string>>& options,
                     const std::string& why) {
  for (const auto& [option, allowed] : options) {
    // Hidden options have no name for CLI11's own messages, and it puts that in front of every ValidationError.
    const auto check = [name = option, values = allowed, why](const std::string& value) {
      if (!values.contains(value)) throw CLI::ParseError(name + ": " + why, CLI::ExitCodes::ValidationError);
      return std::string{};
    };
    command.get_option(option)->group("")->check(CLI::Validator(check, ""));
  }
}

void ImageOptions::add_to(CLI::App& command) {
  std::string names;
  for (const std::string_view name : preprocess_preset_names()) {
    names += (names.empty() ? "" : "|") + std::string(name);
  }
  command
      .add_option("--preset", preset,
                  "Preprocessing: " + names + " [what the model stores, else torchvision at its input size]")
      ->check(one_of(preprocess_preset_names()));
  command.add_option("--resize", resize, "Short side after resizing, in pixels; 0: no resizing")
      ->check(CLI::Range(0, kMaxPreprocessSide));
  command.add_option("--crop", crop, "Side of the centre crop, in pixels")
      ->check(CLI::Range(1, kMaxPreprocessSide));
  command.add_option("--interpolation", interpolation, "Filter of the resize, antialiased as Pillow's")
      ->check(CLI::IsMember({"nearest", "bilinear", "bicubic"}));
  add_list(command, "--mean", mean, finite_number(),
           "a,b,c: subtracted per channel, after scaling to [0, 1] (presets say otherwise)")
      ->type_name("a,b,c");
  add_list(command, "--std", std, positive_number(), "a,b,c: divides per channel")->type_name("a,b,c");
  command.add_flag("--bgr", bgr, "Channels in the order blue, green, red");
  command.add_flag(
      "--no-exif-transpose", no_exif_transpose,
      "Leave photographs as they are stored, instead of turning them upright as their EXIF data says");
  command.add_option("--labels", labels, "File with one class name per line (or a JSON list)");
}

bool ImageOptions::has_preprocessing() const {
  return !preset.empty() || resize || crop || !interpolation.empty() || !mean.empty() || !std.empty() ||
         bgr || no_exif_transpose;
}

Preparation ImageOptions::resolve(const Model& model) const {
  const Graph& graph = model.graph;
  if (graph.inputs().size() != 1)
    fail("{}: {} inputs, expected one image", model.name, graph.inputs().size());
  const Value& input = graph.value(graph.inputs()[0]);
  const Shape& shape = input.desc.shape;
  const std::optional<ImageInput> image = image_input(shape);
  if (!image || input.desc.dtype != DType::f32) {
    fail("{}: input '{}' is {}, expected images in f32: Nx3xHxW, Nx1xHxW, NxHxWx3 or NxHxWx1", model.name,
         input.name, input.desc.str());
  }
  if (image->height > kMaxPreprocessSide || image->width > kMaxPreprocessSide) {
    fail("{}: input '{}' is {}: images of more than {} pixels a side are not prepared", model.name,
         input.name, input.desc.str(), kMaxPreprocessSide);
  }
  const int height = static_cast<int>(image->height);
  const int width = static_cast<int>(image->width);
  Preparation result;
  const bool stored = preset.empty() && model.preprocess;
  result.preset = stored ? "" : preset.empty() ? "torchvision" : preset;
  Preprocess p = stored ? *model.preprocess : fit_to_input(preprocess_preset(result.preset), height, width);
  if (resize) {
    p.resize = *resize;
    p.resize_width = 0;
    p.resize_mode = ResizeRule::short_side;
  }
  if (crop) {
    p.crop = *crop;
    p.crop_width = 0;
  }
  if (!interpolation.empty()) p.interpolation = kInterpolations.at(interpolation);
  check_three("--mean", mean);
  check_three("--std", std);
  if (!mean.empty()) std::copy(mean.begin(), mean.end(), p.mean.begin());
  if (!std.empty()) std::copy(std.begin(), std.end(), p.std.begin());
  if (bgr) p.bgr = true;
  if (no_exif_transpose) p.exif_transpose = false;
  check_preprocess(p);
  const Extent out = p.crop_extent();
  if (p.crop != 0 && out != Extent{height, width}) {
    fail("preprocessing gives {}x{} pixels, {} takes {}x{}; use --crop {}", out.height, out.width, model.name,
         height, width, std::min(height, width));
  }
  result.preprocess = p;
  const std::pair<const char*, bool> options[] = {{"resize", resize.has_value()},
                                                  {"crop", crop.has_value()},
                                                  {"interpolation", !interpolation.empty()},
                                                  {"mean", !mean.empty()},
                                                  {"std", !std.empty()},
                                                  {"bgr", bgr},
                                                  {"exif_transpose", no_exif_transpose}};
  for (const auto& [name, given] : options) {
    if (given) result.given.emplace_back(name);
  }
  // Without --bgr the order of colours is the usual one; the rest differs from model to model.
  const bool complete = resize && !interpolation.empty() && !mean.empty() && !std.empty();
  using Source = Preparation::Source;
  result.source = stored ? Source::stored : !preset.empty() || complete ? Source::given : Source::guessed;
  return result;
}

Labels ImageOptions::resolve_labels(const Model& model, std::int64_t classes) const {
  Labels found = labels.empty() ? model.labels : read_labels(labels);
  // One label too many is most often a background class in front: every name would be off by one.
  if (!found.empty() && static_cast<std::int64_t>(found.size()) != classes) {
    if (labels.empty())
      fail("{}: its metadata holds {} labels for {} classes", model.name, found.size(), classes);
    fail("{}: {} labels, but {} has {} classes", labels, found.size(), model.name, classes);
  }
  return found;
}

}  // namespace pipit::apps
