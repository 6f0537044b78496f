// Options that several subcommands share.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "apps/display/preparation_notes.h"
#include "apps/options/tuning_options.h"
#include "models/image/preprocess.h"
#include "models/model.h"
#include "pipit/classifier.h"
#include "quant/compile.h"

namespace pipit::apps {

/// Checks of values. CLI11's own accept nan and print limits of 309 digits.
CLI::Validator finite_number();
CLI::Validator positive_number();
CLI::Validator nonnegative_number();
/// An integer from 0 to 2^63 - 1.
CLI::Validator count_value();

/// --json, --threads, --device, --precision and its own (--plan, --keep, --group-size, --dynamic-scales), --quiet,
/// --kernel, --conv-backend, --no-winograd, --micro-batch, those of tuning_options.h: on every subcommand.
struct CommonOptions {
  bool json = false;
  bool quiet = false;
  int threads = 0;
  DeviceKind device = DeviceKind::cpu;
  Precision precision = Precision::fp32;
  std::string plan;               ///< file of a quantization plan; for int8
  std::vector<std::string> keep;  ///< NAME=fp32|fp16 (quant/kept_layers.h), added to what the plan keeps
  std::optional<std::int64_t> group_size;  ///< weights that share a scale; for w4
  std::string dynamic_scales;              ///< per-tensor or per-sample; for int8-dynamic
  std::string kernel;
  std::string conv_backend;
  bool allow_fallback = false;
  TuningOptions tuning;
  bool no_winograd = false;
  std::optional<std::int64_t> micro_batch;  ///< PlanOptions::micro_batch
  /// Not on the command line: of the run's images, to compare with the plan's.
  std::optional<Preprocess> preprocess;

  void add_to(CLI::App& command);
  /// Throws CLI::ValidationError when --precision and its options (--plan, ...) do not go together.
  void check_precision() const;
  /// --keep, parsed.
  std::vector<QuantizationPlan::Kept> kept() const;
  /// The same without --threads and --precision, for a command that takes several of each.
  void add_shared_to(CLI::App& command);
  /// How a model is read and compiled, but for --plan, tuning, and what ModelOptions says.
  LoadOptions load_options() const;
  /// How the model is compiled, but for the scales of --plan.
  CompileOptions compile_options() const;
  /// What `images` does to images in another way than was done to those that `scales`, read from --plan, was calibrated
  /// on. Unless `quiet`, a note on stderr says it: ranges may not fit, but that is for the user to judge.
  std::vector<std::string> compare_preprocess(const QuantizationPlan& scales, const Preprocess& images) const;
};

/// The choices of --precision.
const std::map<std::string, Precision>& precisions();
/// What MODEL is, with the names of models.
std::string model_help();

/// Takes options that mean nothing to a command out of its help. Giving one another value than those listed is a usage
/// error that says `why`.
void without_options(CLI::App& command, const std::map<std::string, std::set<std::string>>& options,
                     const std::string& why);

/// For without_options(): what means nothing to a command that computes on the CPU in these precisions, and where it
/// does not choose kernels by timing, what is about that.
std::map<std::string, std::set<std::string>> foreign_on_the_cpu(std::set<std::string> precisions,
                                                                bool times_kernels);

/// MODEL, --batch, --dim, --shape: how a model is loaded.
struct ModelOptions {
  std::string model;
  std::optional<std::int64_t> batch;  ///< unset: 1, or what the file fixes
  std::vector<std::string> dims;      ///< NAME=VALUE for symbolic dimensions
  std::vector<std::string> shapes;    ///< NAME=1x3x224x224 for inputs with open extents

  void add_to(CLI::App& command, bool with_batch);
  /// --dim and --shape.
  static void add_extents(CLI::App& command, std::vector<std::string>& dims,
                          std::vector<std::string>& shapes);
  /// With `run_batch` instead of --batch where it is given: --batch, reduced to what a run can use. An option
  /// that contradicts another throws CLI::ValidationError, one that contradicts the file Error.
  Model load(std::optional<std::int64_t> run_batch = std::nullopt) const;
};

/// --preset, --resize, --crop, --interpolation, --mean, --std, --bgr, --no-exif-transpose, --labels.
struct ImageOptions {
  std::string preset;
  std::optional<int> resize, crop;
  std::string interpolation;
  std::vector<float> mean, std;
  bool bgr = false;
  bool no_exif_transpose = false;
  std::string labels;

  void add_to(CLI::App& command);
  /// Throws CLI::ValidationError for --mean or --std of other than three numbers.
  PreprocessOptions preprocess_options() const;
  /// detail::prepare_for() with them.
  Preparation resolve(const Model& model) const;
  /// Whether an option about preprocessing was given.
  bool has_preprocessing() const;
  /// detail::labels_for() with --labels.
  Labels resolve_labels(const Model& model, std::int64_t classes) const;
};

}  // namespace pipit::apps
