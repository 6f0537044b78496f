// pipit prune MODEL IMAGES: takes structured groups of weights out of a model and fits the others, without training.
#include "pipit/prune.h"

#include <fmt/format.h>

#include "apps/commands/commands.h"
#include "apps/commands/prune_options.h"
#include "apps/commands/prune_report.h"
#include "apps/display/next_command.h"
#include "apps/display/stage_progress.h"
#include "apps/display/terminal.h"
#include "pipit/output_file.h"

namespace pipit::internal::apps {

namespace {

int prune(const PruneOptions& options) {
  const bool quiet = options.common.quiet;
  tools::PruneOptions how = options.library_options();
  StageProgress progress("prune", quiet);
  how.progress = progress.callbacks();
  how.note = note_printer(quiet);
  const tools::PrunedModel pruned = tools::prune(options.model.model, options.images, options.output, how);
  progress.end();
  const bool written = pruned.problem.empty();
  if (!written) print_error(fmt::format("{}: {}", options.model.model, pruned.problem));
  if (!options.svg.empty()) tools::write_file(options.svg, prune_svg(options, pruned));
  if (options.common.json) {
    fmt::print("{}", pruned.json);
  } else {
    print_pruned(options, pruned);
  }
  if (written)
    print_next(quiet, {"bench", options.model.model, "--against", options.output},
               "both in turns, whole runs");
  return pruned.passed ? kExitOk : kExitCheckFailed;
}

}  // namespace

void add_prune(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<PruneOptions>();
  CLI::App* command = app.add_subcommand(
      "prune",
      "Remove groups of weights from a model, fit the others without training, and write it as ONNX");
  add_prune_options(options, *command);
  command->callback([options, command, &exit_code] {
    options->check_usage(*command);
    exit_code = prune(*options);
  });
}

}  // namespace pipit::internal::apps
