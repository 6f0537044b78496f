// pipit sweep: tables of single layers over a range of settings.
#include "apps/commands/commands.h"

namespace pipit::internal::apps {

void add_sweep(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("sweep", "Measure single layers over a range of settings");
  command->require_subcommand(1);
  command->footer(
      "Examples:\n  pipit sweep conv --sample 200 --precision int8 --results conv.jsonl\n"
      "  pipit sweep sparsity --layer 1x256x14x14:256x3x3");
  add_sweep_conv(*command, exit_code);
  add_sweep_sparsity(*command, exit_code);
}

}  // namespace pipit::internal::apps
