// pipit annotate MODEL --output FILE: the model with labels and preprocessing in its metadata.
#include "pipit/annotate.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "apps/commands/commands.h"
#include "apps/display/next_command.h"
#include "apps/display/output_files.h"
#include "apps/display/table.h"
#include "apps/display/terminal.h"
#include "apps/options/options.h"
#include "pipit/fetch.h"

namespace pipit::internal::apps {

namespace {

struct AnnotateOptions {
  CommonOptions common;
  ModelOptions model;
  ImageOptions image;
  std::string output;
};

std::string stored_text(const tools::AnnotatedFile& file) {
  std::string stored = file.labels > 0 ? counted(file.labels, "label") : "";
  if (!file.preprocessing.empty()) stored += (stored.empty() ? "" : "; ") + file.preprocessing;
  if (!file.scores.empty()) stored += (stored.empty() ? "scores: " : "; scores: ") + file.scores;
  return stored;
}

int annotate(const AnnotateOptions& options) {
  const std::string& model = options.model.model;
  if (options.output.empty()) throw CLI::RequiredError("--output");
  if (options.image.labels.empty() && !options.image.has_preprocessing() && options.image.scores.empty())
    throw CLI::ValidationError("annotate",
                               "nothing to store: give --labels, --scores, or --preset, --mean and the like");
  check_output("--output", options.output, {model, options.image.labels});
  if (tools::find_named_model(model) != nullptr)
    throw CLI::ValidationError(
        "MODEL", fmt::format("{} is a model that pipit knows by name; annotate takes an ONNX file", model));
  tools::AnnotateOptions how;
  options.model.add_to(how.classifier.load);
  how.classifier.preprocess = options.image.preprocess_options();
  how.classifier.labels = options.image.labels;
  how.classifier.scores = options.image.score_kind();
  const tools::AnnotatedFile file = tools::annotate(model, options.output, how);
  if (!options.common.quiet) print_notes(file.notes);
  if (options.common.json) {
    fmt::print("{}", file.json);
  } else {
    fmt::print("{}", wrapped(fmt::format("{}: {}\n", printable(options.output), printable(stored_text(file))),
                             2, terminal_width()));
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
