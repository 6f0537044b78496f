// Options that several subcommands share.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "apps/display/notes.h"
#include "apps/options/tuning_options.h"
#include "pipit/classifier.h"

namespace pipit::internal::apps {

/// --json and --quiet, which every command has.
void add_output_flags(CLI::App& command, bool& json, bool& quiet);
/// --wide, of commands whose tables leave out columns where the terminal is too narrow.
void add_wide_to(CLI::App& command, bool& wide);
/// --image-bytes, of commands that time models.
void add_byte_images_to(CLI::App& command, bool& byte_images);

/// How a command runs what it runs. A command declares those that it takes; what it does not declare does not exist
/// there.
struct CommonOptions {
  bool json = false;
  bool quiet = false;
  int threads = 0;
  DeviceKind device = DeviceKind::cpu;
  Precision precision = Precision::fp32;
  std::string plan;               ///< file of a quantization plan; for int8
  std::vector<std::string> keep;  ///< NAME=fp32|fp16|bf16 (LoadOptions::keep), added to what the plan keeps
  std::optional<std::int64_t> group_size;                    ///< weights that share a scale; for w4
  std::string dynamic_scales;                                ///< per-tensor or per-sample; for int8-dynamic
  std::vector<std::string> prefer_kernels, exclude_kernels;  ///< --kernel, as in LoadOptions
  bool allow_fallback = false;
  TuningOptions tuning;
  std::optional<std::int64_t> micro_batch;  ///< PlanOptions::micro_batch

  /// All of them.
  void add_to(CLI::App& command);
  /// All but --threads and --precision, for a command that takes several of each.
  void add_shared_to(CLI::App& command);
  void add_output_to(CLI::App& command);
  void add_threads_to(CLI::App& command);
  void add_device_to(CLI::App& command);
  /// --allow-fallback, of commands that run whole models on --device.
  void add_fallback_to(CLI::App& command);
  /// The option for these precisions; without it `precision` stays what it is.
  void add_precision_to(CLI::App& command, const std::vector<std::string>& names, const std::string& help);
  void add_plan_to(CLI::App& command);
  void add_group_size_to(CLI::App& command);
  void add_keep_to(CLI::App& command);
  /// --kernel, --micro-batch.
  void add_kernels_to(CLI::App& command);
  /// Throws CLI::ValidationError for an option (--plan, ...) of another --precision.
  void check_precision() const;
  /// That precision with those of these options that are its own.
  ModelPrecision with_options(Precision kind) const;
  /// Throws CLI::ValidationError where --precision int8 lacks --plan, which models do that are not quantized already.
  void need_plan() const;
  /// How a model is compiled; ModelOptions says how it is read.
  LoadOptions load_options() const;
};

/// The choices of --precision.
const std::map<std::string, Precision>& precisions();
std::vector<std::string> precision_names();
/// What MODEL is, with the names of models.
std::string model_help();

/// MODEL, --batch, --dim, --shape: how a model is loaded.
struct ModelOptions {
  std::string model;
  std::optional<std::int64_t> batch;  ///< unset: 1, or what the file fixes
  std::vector<std::string> dims;      ///< NAME=VALUE for symbolic dimensions
  std::vector<std::string> shapes;    ///< NAME=1x3x224x224 for inputs with open extents
  std::vector<std::string> values;    ///< NAME=NUMBER or NAME=a,b,c for inputs that are no data
  std::vector<std::string> arrays;    ///< NAME=FILE.npy, likewise; of commands with add_heads_to()
  std::string output;                 ///< the one to keep; empty: all

  void add_to(CLI::App& command, bool with_batch);
  /// --input NAME=FILE.npy, and --output NAME.
  void add_heads_to(CLI::App& command);
  /// --dim, --shape and --value.
  static void add_extents(CLI::App& command, std::vector<std::string>& dims, std::vector<std::string>& shapes,
                          std::vector<std::string>& values);
  /// What these options say of how the model is loaded. Throws CLI::ValidationError for what they cannot mean.
  void add_to(LoadOptions& options) const;
};

/// --strict, of commands that exclude images which cannot be used.
void add_strict_to(CLI::App& command, bool& strict);

/// --preset, --resize, --crop, --interpolation, --mean, --std, --bgr, --no-exif-transpose, --labels, --scores,
/// --threshold.
struct ImageOptions {
  std::string preset;
  std::optional<int> resize, crop;
  std::string interpolation;
  std::vector<float> mean, std;
  bool bgr = false;
  bool no_exif_transpose = false;
  std::string labels;
  std::string scores;  ///< the name of a kind, or nothing
  double threshold = 0.5;

  /// All but --threshold.
  void add_to(CLI::App& command);
  void add_threshold_to(CLI::App& command);
  /// The options about pixels.
  void add_preprocessing_to(CLI::App& command);
  /// Throws CLI::ValidationError for --mean or --std of other than three numbers.
  PreprocessOptions preprocess_options() const;
  /// --scores.
  std::optional<ScoreKind> score_kind() const;
  /// Whether an option about preprocessing was given.
  bool has_preprocessing() const;
};

}  // namespace pipit::internal::apps
