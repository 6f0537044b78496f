// pipit compare A B: whether what was measured twice differs, by more than the noise of both.
#include "pipit/compare.h"

#include <fmt/format.h>

#include "apps/commands/commands.h"
#include "apps/display/comparison_text.h"
#include "apps/display/next_command.h"
#include "apps/display/notes.h"
#include "apps/display/terminal.h"
#include "apps/options/options.h"
#include "apps/options/output_option.h"
#include "apps/options/values.h"

namespace pipit::internal::apps {

namespace {

struct CompareOptions {
  std::string first, second;
  OutputOption output;
  tools::CompareOptions how;
  bool wide = false;
  bool json = false;
  bool quiet = false;
};

int compare(const CompareOptions& options) {
  options.output.check({options.first, options.second});
  const tools::CompareResult result = tools::compare(options.first, options.second, options.how);
  const int width = table_width(options.wide);
  if (options.json) {
    fmt::print("{}", result.json);
  } else {
    for (const tools::TimeComparison& comparison : result.comparisons)
      fmt::print("{}{}", &comparison == result.comparisons.data() ? "" : "\n",
                 comparison_text(comparison, width));
  }
  options.output.write(result.json);
  if (!options.quiet) print_notes(result.notes);
  // With too few processes a note has said what to type.
  const bool limited = options.how.max_slowdown.has_value();
  if (result.comparisons[0].ratio.change != tools::TimeChange::unknown)
    print_next(options.quiet,
               {"compare", options.first, options.second, limited ? "--output" : "--fail-above",
                limited ? "comparison.csv" : "3"},
               limited ? "all of it for a spreadsheet" : "exit code 4 where it is slower, for scripts");
  return result.too_slow ? kExitCheckFailed : kExitOk;
}

}  // namespace

void add_compare(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<CompareOptions>();
  CLI::App* command = app.add_subcommand(
      "compare", "Say whether two profiles, benchmarks or sweeps differ by more than their noise");
  command
      ->add_option("A", options->first,
                   "JSON of pipit profile or bench; JSON, CSV or --results of pipit sweep")
      ->required()
      ->type_name("FILE");
  command->add_option("B", options->second, "The same for the other side of the comparison")
      ->required()
      ->type_name("FILE");
  command
      ->add_option("--fail-above", options->how.max_slowdown,
                   "Exit code 4 if a whole run, or the geometric mean of a sweep, is shown to be slower by "
                   "more than N percent, or if there are too few processes to tell")
      ->check(nonnegative_number());
  options->output.add_to(*command, {OutputForm::json, OutputForm::csv});
  add_wide_to(*command, options->wide);
  add_output_flags(*command, options->json, options->quiet);
  command->footer(
      "Ratios are medians of B over medians of A, with 95 % intervals; layers are judged together. "
      "Disturbances of a whole process cannot be seen inside it, so a verdict needs at least three processes "
      "of each side, run in turns; more are better. A file holds their JSON one after the other.\n"
      "Examples:\n"
      "  for i in 1 2 3 4 5; do pipit bench resnet50 --json >> a.json; pipit bench resnet50 --kernel "
      "no-winograd --json >> b.json; done\n"
      "  pipit compare a.json b.json --fail-above 3");
  command->callback([options, &exit_code] { exit_code = compare(*options); });
}

}  // namespace pipit::internal::apps
