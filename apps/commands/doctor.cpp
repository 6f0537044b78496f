// pipit doctor: what pipit finds on this machine, what it uses of it, and what to do about the rest.
#include <fmt/core.h>

#include <algorithm>

#include "apps/commands/commands.h"
#include "apps/display/next_command.h"
#include "apps/display/table.h"
#include "apps/display/terminal.h"
#include "apps/options/options.h"
#include "pipit/machine.h"

namespace pipit::internal::apps {

namespace {

void print_text(const std::vector<tools::Finding>& findings) {
  std::size_t names = 0;
  for (const tools::Finding& f : findings) names = std::max(names, f.name.size());
  for (const tools::Finding& f : findings) {
    std::string text = fmt::format("{:<{}}  {}\n", f.name, names, printable(f.value));
    if (!f.advice.empty()) text += fmt::format("{:<{}}  -> {}\n", "", names, printable(f.advice));
    fmt::print("{}", wrapped(text, names + 5, terminal_width()));
  }
}

int doctor(bool as_json, bool quiet) {
  const tools::MachineFacts facts = tools::examine_machine();
  if (as_json) {
    fmt::print("{}", facts.json);
  } else {
    print_text(facts.findings);
  }
  print_next(quiet, {"profile", "resnet50"}, "where the time of a model goes");
  return kExitOk;
}

}  // namespace

void add_doctor(CLI::App& app, int& exit_code) {
  const auto as_json = std::make_shared<bool>(false);
  const auto quiet = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand(
      "doctor", "Show what pipit finds on this machine, what it uses, and what is missing");
  add_output_flags(*command, *as_json, *quiet);
  command->footer(
      "Nothing is measured and no model is loaded. The exit code is 0 whatever is found; '->' marks advice.\n"
      "Example:\n"
      "  pipit doctor");
  command->callback([as_json, quiet, &exit_code] { exit_code = doctor(*as_json, *quiet); });
}

}  // namespace pipit::internal::apps
