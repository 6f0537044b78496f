// How a command runs what it runs: threads, device, precision, kernels.
#include <fmt/format.h>

#include <utility>

#include "apps/display/terminal.h"
#include "apps/options/options.h"
#include "apps/options/values.h"
#include "pipit/option_values.h"

namespace pipit::internal::apps {

namespace {

constexpr std::pair<const char*, Precision> kPrecisionNames[] = {{"fp32", Precision::fp32},
                                                                 {"fp16", Precision::fp16},
                                                                 {"bf16", Precision::bf16},
                                                                 {"int8", Precision::int8},
                                                                 {"int8-dynamic", Precision::int8_dynamic},
                                                                 {"w8", Precision::w8},
                                                                 {"w4", Precision::w4}};
const std::map<std::string, Precision> kPrecisions(std::begin(kPrecisionNames), std::end(kPrecisionNames));

std::string kernel_problem(const std::string& text) {
  try {
    tools::check_kernel(tools::parse_kernel_choice(text).name);
    return {};
  } catch (const Error& e) {
    return e.what();
  }
}

std::string keep_problem(const std::string& text) {
  try {
    tools::check_keep(text);
    return {};
  } catch (const Error& e) {
    return e.what();
  }
}

}  // namespace

const std::map<std::string, Precision>& precisions() {
  return kPrecisions;
}

std::vector<std::string> precision_names() {
  std::vector<std::string> names;
  for (const auto& [name, unused] : kPrecisionNames) names.emplace_back(name);
  return names;
}

void add_output_flags(CLI::App& command, bool& json, bool& quiet) {
  command.add_flag("--json", json, "Write the result to stdout as one JSON document");
  command.add_flag("--quiet", quiet, "No progress and no notes on stderr; errors still appear");
}

void add_wide_to(CLI::App& command, bool& wide) {
  command.add_flag("--wide", wide,
                   "Show all columns, even if the terminal is narrower; pipes and files always get all");
}

void add_byte_images_to(CLI::App& command, bool& byte_images) {
  command.add_flag(
      "--image-bytes", byte_images,
      "Pass images to the model as bytes, NxHxWx3 or NxHxWx1, and normalize them on the device, as classify "
      "and evaluate do with --device cuda: a quarter of the data to copy to a GPU, with the same results");
}

void CommonOptions::add_to(CLI::App& command) {
  add_shared_to(command);
  add_threads_to(command);
  add_precision_to(command, precision_names(),
                   "Arithmetic of the kernels; bf16 is fast on CPUs with AMX or AVX512-BF16 and on GPUs; "
                   "int8 uses the scales of --plan, int8-dynamic computes scales at run time; w8 and "
                   "w4 store the weights of fully connected layers and 1x1 convolutions "
                   "in 8 or 4 bits and compute in f32, on a GPU as in fp16 [fp32]");
}

void CommonOptions::add_shared_to(CLI::App& command) {
  add_output_to(command);
  add_plan_to(command);
  add_keep_to(command);
  add_group_size_to(command);
  one_of(command.add_option("--dynamic-scales", dynamic_scales,
                            "For --precision int8-dynamic: a scale for each image of a batch, or one for "
                            "all; per-sample results do not depend on the rest of the batch [per-sample]"),
         {"per-sample", "per-tensor"});
  add_device_to(command);
  add_fallback_to(command);
  add_kernels_to(command);
  tuning.add_to(command);
}

void CommonOptions::add_group_size_to(CLI::App& command) {
  one_of(
      command.add_option("--group-size", group_size,
                         "For --precision w4: neighbouring weights that share a scale [32 in convolutions, "
                         "128 in fully connected layers]"),
      {"32", "64", "128"});
}

void CommonOptions::add_output_to(CLI::App& command) {
  add_output_flags(command, json, quiet);
}

void CommonOptions::add_threads_to(CLI::App& command) {
  command.add_option("--threads", threads, "CPU threads; 0: all CPUs this process may use")
      ->check(thread_count())
      ->capture_default_str();
}

void CommonOptions::add_device_to(CLI::App& command) {
  one_of(
      command.add_option_function<std::string>(
          "--device",
          [this](const std::string& name) { device = name == "cuda" ? DeviceKind::cuda : DeviceKind::cpu; },
          "Where to run [cpu]"),
      {"cpu", "cuda"});
}

void CommonOptions::add_fallback_to(CLI::App& command) {
  command.add_flag(
      "--allow-fallback", allow_fallback,
      "With --device cuda: run layers without a GPU kernel on the CPU, through copies (kernel \"cpu:...\")");
}

void CommonOptions::add_precision_to(CLI::App& command, const std::vector<std::string>& names,
                                     const std::string& help) {
  one_of(command.add_option_function<std::string>(
             "--precision", [this](const std::string& name) { precision = kPrecisions.at(name); }, help),
         names);
}

void CommonOptions::add_plan_to(CLI::App& command) {
  command.add_option("--plan", plan, "Scales for --precision int8, as written by pipit calibrate")
      ->type_name("FILE");
}

void CommonOptions::add_keep_to(CLI::App& command) {
  command
      .add_option(
          "--keep", keep,
          "NAME=fp32, NAME=fp16 or NAME=bf16: keep this layer in floating point, in addition to those "
          "that the plan keeps; NAME=int8: run it in INT8 although the plan keeps it. 'first' and "
          "'last' are the first and last layer with weights. One layer per option; may be repeated. "
          "The CPU computes layers that are kept in fp16 in fp32")
      ->allow_extra_args(false)
      ->check(CLI::Validator(keep_problem, ""))
      ->type_name("NAME=PRECISION");
}

void CommonOptions::add_kernels_to(CLI::App& command) {
  command
      .add_option_function<std::vector<std::string>>(
          "--kernel",
          [this](const std::vector<std::string>& wishes) {
            for (const std::string& text : wishes) {
              tools::KernelChoice choice = tools::parse_kernel_choice(text);
              (choice.exclude ? exclude_kernels : prefer_kernels).push_back(std::move(choice.name));
            }
          },
          "KERNEL: use this kernel for every layer that it accepts; no-KERNEL: never use it (inspect --why "
          "shows the names). TYPE=KERNEL and TYPE=no-KERNEL apply to layers of one type; Conv covers "
          "convolutions in every precision. 'winograd' covers every kernel named winograd_...: on the CPU "
          "they are faster than others, and about one decimal digit less exact. May be repeated; earlier "
          "ones are tried first")
      ->allow_extra_args(false)
      ->check(CLI::Validator(kernel_problem, ""))
      ->type_name("KERNEL|no-KERNEL");
  command
      .add_option("--micro-batch", micro_batch,
                  "On the CPU: how many samples of a batch go through all layers together, so that what a "
                  "layer writes is still in a cache when the next one reads it; 0: all of them. No layer may "
                  "mix the samples of a batch [chosen from the sizes of activations; see inspect]")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{65536}));
}

void CommonOptions::need_plan() const {
  if (precision == Precision::int8 && plan.empty())
    throw CLI::ValidationError("--precision",
                               "int8 needs --plan with the scales that pipit calibrate writes");
}

void CommonOptions::check_precision() const {
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

ModelPrecision CommonOptions::with_options(Precision kind) const {
  switch (kind) {
    case Precision::int8:
      return Int8{.plan = plan, .keep = keep};
    case Precision::int8_dynamic:
      return Int8Dynamic{.per_sample_scales = dynamic_scales != "per-tensor"};
    case Precision::w4:
      return W4{.group = group_size.value_or(0)};
    default:
      return kind;
  }
}

LoadOptions CommonOptions::load_options() const {
  LoadOptions load;
  load.device.kind = device;
  load.device.threads = threads;
  load.precision = with_options(precision);
  tuning.add_to(load);
  load.kernels.prefer = prefer_kernels;
  load.kernels.exclude = exclude_kernels;
  load.device.allow_fallback = allow_fallback;
  load.kernels.micro_batch = micro_batch;
  return load;
}

}  // namespace pipit::internal::apps
