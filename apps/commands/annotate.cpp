// pipit annotate MODEL --output FILE: the model with labels and preprocessing in its metadata.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>

#include "apps/commands/commands.h"
#include "apps/display/next_command.h"
#include "apps/display/output_files.h"
#include "apps/display/print_json.h"
#include "apps/display/table.h"
#include "apps/display/terminal.h"
#include "apps/options/options.h"
#include "engine/base/file.h"
#include "engine/base/version.h"
#include "models/catalogue.h"
#include "models/onnx/write/annotate.h"
#include "models/score_kind.h"
#include "pipit/measuring/runner.h"

namespace pipit::internal::apps {

namespace {

namespace fs = std::filesystem;

struct AnnotateOptions {
  CommonOptions common;
  ModelOptions model;
  ImageOptions image;
  std::string output;
};

fs::path folder_of(const fs::path& file) {
  return file.has_parent_path() ? file.parent_path() : fs::path(".");
}

// Copies of the files that lie beside a model. Until keep() what was made goes again with this, so that a run that
// fails leaves nothing.
class WeightCopies {
 public:
  WeightCopies(const fs::path& model, const fs::path& output)
      : model_(model), output_(output), folder_(folder_of(output)) {
    const std::vector<fs::path> files = external_files(model);
    std::error_code error;
    if (files.empty() || fs::equivalent(folder_of(model), folder_, error)) return;
    if (error) fail("{}: {}", folder_.string(), error.message());
    std::erase_if(copied_ = files, [&](const fs::path& file) { return is_there(file); });
  }
  ~WeightCopies() {
    std::error_code ignored;
    for (auto path = made_.rbegin(); path != made_.rend(); ++path) fs::remove(*path, ignored);
  }
  WeightCopies(const WeightCopies&) = delete;
  WeightCopies& operator=(const WeightCopies&) = delete;

  void make() {
    for (const fs::path& file : copied_) {
      make_folders(file.parent_path());
      copy_as_new(folder_of(model_) / file, folder_ / file);
      made_.push_back(folder_ / file);
    }
  }
  void keep() { made_.clear(); }

 private:
  // Whether the folder has these bytes under this name already. Anything else there belongs to the user.
  bool is_there(const fs::path& file) const {
    const fs::path target = folder_ / file;
    if (target.lexically_normal() == (folder_ / output_.filename()).lexically_normal()) {
      fail("{}: weights of {} go into a file of this name; choose another for --output", output_.string(),
           model_.string());
    }
    std::error_code error;
    const fs::path inside = fs::weakly_canonical(fs::absolute(folder_of(target), error), error);
    if (error) fail("{}: {}", target.string(), error.message());
    const fs::path folder = fs::canonical(folder_, error);
    if (std::mismatch(folder.begin(), folder.end(), inside.begin(), inside.end()).first != folder.end()) {
      fail("{}: weights of {} would go there, which leads out of the folder to {}", target.string(),
           model_.string(), inside.string());
    }
    if (!fs::exists(fs::symlink_status(target, error))) return false;
    if (same_content(folder_of(model_) / file, target)) return true;
    fail(
        "{}: there is another file already, and the weights of {} would go there; choose another folder for "
        "--output",
        target.string(), model_.string());
  }
  void make_folders(const fs::path& inside) {
    fs::path folder = folder_;
    for (const fs::path& part : inside) {
      folder /= part;
      std::error_code error;
      if (fs::create_directory(folder, error)) made_.push_back(folder);
      if (error) fail("{}: cannot be made: {}", folder.string(), error.message());
    }
  }

  fs::path model_;
  fs::path output_;
  fs::path folder_;
  std::vector<fs::path> copied_;  // below the folders of both
  std::vector<fs::path> made_;
};

int annotate(const AnnotateOptions& options) {
  if (options.output.empty()) throw CLI::RequiredError("--output");
  if (options.image.labels.empty() && !options.image.has_preprocessing() && options.image.scores.empty())
    throw CLI::ValidationError("annotate",
                               "nothing to store: give --labels, --scores, or --preset, --mean and the like");
  check_output("--output", options.output, {options.model.model, options.image.labels});
  if (find_named_model(options.model.model) != nullptr)
    throw CLI::ValidationError(
        "MODEL", fmt::format("{} is a model that pipit knows by name; annotate takes an ONNX file",
                             options.model.model));
  const Model model = options.model.load();

  if (!options.common.quiet) print_notes(metadata_notes(model));
  std::map<std::string, std::string> metadata;
  nlohmann::ordered_json json = {
      {"pipit", version()}, {"command", "annotate"}, {"model", model.name}, {"output", options.output}};
  std::string stored;
  std::optional<ClassOutput> output;
  if (!options.image.labels.empty() || !options.image.scores.empty())
    output = options.image.resolve_output(model.graph, model);
  if (!options.image.labels.empty()) {
    const Labels labels = options.image.resolve_labels(model, *output);
    metadata.emplace(kLabelsKey, labels_to_text(labels));
    json["labels"] = labels.size();
    stored = counted(static_cast<std::int64_t>(labels.size()), "label");
  }
  if (options.image.has_preprocessing()) {
    const Preparation preparation = options.image.resolve(model);
    metadata.emplace(kPreprocessKey, to_json(preparation.preprocess));
    json["preprocessing"] = preparation_json(preparation);
    stored += (stored.empty() ? "" : "; ") + describe(preparation.preprocess);
  }
  if (!options.image.scores.empty()) {
    metadata.emplace(kScoresKey, options.image.scores);
    json["scores"] = options.image.scores;
    stored += (stored.empty() ? "scores: " : "; scores: ") + options.image.scores;
  }
  constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 31;  // of a protobuf message
  const std::string bytes = with_metadata(read_file(options.model.model, kMaxBytes), metadata);
  WeightCopies weights(options.model.model, options.output);
  weights.make();
  write_file(options.output, bytes);
  weights.keep();
  json["bytes"] = bytes.size();
  if (options.common.json) {
    print_json(json);
  } else {
    fmt::print("{}", wrapped(fmt::format("{}: {}\n", printable(options.output), printable(stored)), 2,
                             terminal_width()));
  }
  print_next(options.common.quiet, {"inspect", options.output}, "what the copy stores");
  return kExitOk;
}

}  // namespace

void add_annotate(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<AnnotateOptions>();
  CLI::App* command = app.add_subcommand(
      "annotate",
      "Store labels, preprocessing and the kind of scores in a copy of a model, and nothing else");
  options->common.add_output_to(*command);
  options->model.add_to(*command, false);
  options->model.classifies = true;
  command->get_option("MODEL")->description("An ONNX file")->type_name("FILE");
  options->image.add_to(*command);
  command
      ->add_option("--output", options->output,
                   "The ONNX file to write; an existing file is replaced (required)")
      ->type_name("FILE");
  command->footer(
      "Labels go into the metadata (metadata_props) under pipit.labels, one per line, preprocessing under\n"
      "pipit.preprocess as JSON, --scores under pipit.scores (docs/metadata.md). All other bytes of the\n"
      "model stay as they are. If --output is in another folder, weights in separate files are copied there, "
      "unless\n"
      "they exist already.\n"
      "Examples:\n"
      "  pipit annotate model.onnx --labels classes.txt --preset timm --output annotated.onnx\n"
      "  pipit annotate model.onnx --resize 256 --crop 224 --mean 0.5,0.5,0.5 --std 0.5,0.5,0.5 --output "
      "m.onnx");
  command->callback([options, &exit_code] { exit_code = annotate(*options); });
}

}  // namespace pipit::internal::apps
