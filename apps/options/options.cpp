#include "apps/options/options.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <span>

#include "apps/display/terminal.h"
#include "apps/options/list_option.h"
#include "layers/ops/conv.h"
#include "layers/ops/dynamic_int8.h"
#include "layers/ops/qconv.h"
#include "layers/ops/weight_only.h"
#include "layers/registry.h"
#include "models/catalogue.h"
#include "pipit/detail/load.h"
#include "quant/kept_layers.h"

namespace pipit::apps {

namespace {

const std::map<std::string, DeviceKind> kDevices = {{"cpu", DeviceKind::cpu}, {"cuda", DeviceKind::cuda}};
const std::map<std::string, Precision> kPrecisions = {
    {"fp32", Precision::fp32}, {"fp16", Precision::fp16},
    {"int8", Precision::int8}, {"int8-dynamic", Precision::int8_dynamic},
    {"w8", Precision::w8},     {"w4", Precision::w4}};
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
            if (parsed && std::isfinite(value) && !std::isfinite(narrow))
              return fmt::format("'{}' is beyond float, which ends at 3.4e38", text);
            return parsed && std::isfinite(narrow) && accepts(narrow)
                       ? std::string{}
                       : fmt::format("'{}' is not {}", text, what);
          },
          "NUMBER"};
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

std::vector<QuantizationPlan::Kept> CommonOptions::kept() const {
  std::vector<QuantizationPlan::Kept> all;
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

LoadOptions CommonOptions::load_options() const {
  LoadOptions load;
  load.device = device;
  load.threads = threads;
  load.precision = precision;
  load.keep = keep;
  load.per_sample_scales = dynamic_scales != "per-tensor";
  load.group_size = group_size.value_or(0);
  load.tuning = Tuning::by_order;  // a command's models share one tuner
  load.kernel = kernel;
  load.convolution_kernel = conv_backend;
  load.winograd = !no_winograd;
  load.allow_fallback = allow_fallback;
  load.micro_batch = micro_batch;
  return load;
}

CompileOptions CommonOptions::compile_options() const {
  CompileOptions options = detail::compile_options(load_options());
  options.tuning = tuning.tuning();
  return options;
}

std::vector<std::string> CommonOptions::compare_preprocess(const QuantizationPlan& scales,
                                                           const Preprocess& images) const {
  std::vector<std::string> differences = detail::differences_from(scales, images);
  if (!differences.empty() && !quiet) print_error("note: " + detail::differences_note(plan, differences));
  return differences;
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

PreprocessOptions ImageOptions::preprocess_options() const {
  const auto three = [](const char* option, const std::vector<float>& values) {
    std::optional<std::array<float, 3>> result;
    if (values.empty()) return result;
    if (values.size() != 3)
      throw CLI::ValidationError(option, fmt::format("{} numbers; expected a,b,c", values.size()));
    std::copy_n(values.begin(), 3, result.emplace().begin());
    return result;
  };
  PreprocessOptions options;
  options.preset = preset;
  options.resize = resize;
  options.crop = crop;
  options.interpolation = interpolation;
  options.mean = three("--mean", mean);
  options.std = three("--std", std);
  options.bgr = bgr;
  options.ignore_exif_orientation = no_exif_transpose;
  return options;
}

Preparation ImageOptions::resolve(const Model& model) const {
  return detail::prepare_for(model, preprocess_options());
}

Labels ImageOptions::resolve_labels(const Model& model, std::int64_t classes) const {
  return detail::labels_for(model, labels, classes);
}

}  // namespace pipit::apps
