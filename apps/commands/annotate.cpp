// pipit annotate MODEL --output FILE: the model with labels and preprocessing in its metadata.
#include <CLI/CLI.hpp>

#include "apps/commands/commands.h"
#include "apps/display/next_command.h"
#include "apps/display/output_files.h"
#include "apps/display/table.h"
#include "apps/display/terminal.h"
#include "apps/measuring/runner.h"
#include "apps/options/options.h"
#include "engine/base/file.h"
#include "engine/base/version.h"
#include "models/catalogue.h"
#include "models/onnx/write/annotate.h"
#include "models/score_kind.h"

namespace pipit::apps {

namespace {

namespace fs = std::filesystem;

struct AnnotateOptions {
  CommonOptions common;
  ModelOptions model;
  ImageOptions image;
  std::string output;
};

// Where the model moves to another folder, what lies beside it goes along.
void copy_external(const fs::path& model, const fs::path& output) {
  const auto folder_of = [](const fs::path& file) {
    return file.has_parent_path() ? file.parent_path() : fs::path(".");
  };
  const std::vector<fs::path> files = external_files(model);
  if (files.empty() || fs::equivalent(folder_of(model), folder_of(output))) return;
  for (const fs::path& file : files) {
    const fs::path target = folder_of(output) / file;
    if (target.lexically_normal() == (folder_of(output) / output.filename()).lexically_normal()) {
      fail("{}: weights of {} go into a file of this name; choose another for --output", output.string(),
           model.string());
    }
    if (fs::exists(target)) {
      fail(
          "{}: there is such a file already, and the weights of {} would go there; choose another folder for "
          "--output",
          target.string(), model.string());
    }
  }
  for (const fs::path& file : files) {
    const fs::path target = folder_of(output) / file;
    const fs::path beside = target.string() + ".part";
    fs::create_directories(folder_of(target));
    fs::copy_file(folder_of(model) / file, beside, fs::copy_options::overwrite_existing);
    fs::rename(beside, target);
  }
}

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
  constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 31;  // of a protobuf message
  const std::string bytes = with_metadata(read_file(options.model.model, kMostBytes), metadata);
  copy_external(options.model.model, options.output);
  write_file(options.output, bytes);
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
      "annotate", "Store labels, preprocessing and what scores are in a copy of a model, and nothing else");
  options->common.add_output_to(*command);
  options->model.add_to(*command, false);
  command->get_option("MODEL")->description("An ONNX file")->type_name("FILE");
  options->image.add_to(*command);
  command
      ->add_option("--output", options->output, "The ONNX file to write; replaced when it exists (required)")
      ->type_name("FILE");
  command->footer(
      "Labels go into the metadata (metadata_props) under pipit.labels, one per line, preprocessing under\n"
      "pipit.preprocess as JSON, --scores under pipit.scores (docs/metadata.md). All other bytes of the "
      "model stay as they are; weights "
      "that lie\n"
      "in files beside it are copied where --output is in another folder.\n"
      "Examples:\n"
      "  pipit annotate model.onnx --labels classes.txt --preset timm --output annotated.onnx\n"
      "  pipit annotate model.onnx --resize 256 --crop 224 --mean 0.5,0.5,0.5 --std 0.5,0.5,0.5 --output "
      "m.onnx");
  command->callback([options, &exit_code] { exit_code = annotate(*options); });
}

}  // namespace pipit::apps
