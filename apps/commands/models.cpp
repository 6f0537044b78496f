// pipit models: the models that have names.
#include <fmt/core.h>

#include <filesystem>

#include "apps/commands/commands.h"
#include "apps/display/table.h"
#include "apps/measuring/runner.h"
#include "engine/base/version.h"
#include "engine/platform/host_memory.h"
#include "models/catalogue.h"

namespace pipit::apps {

namespace {

bool is_here(const NamedModel& model) {
  std::error_code ignored;
  return model.origin != ModelOrigin::fetched ||
         std::filesystem::exists(fetched_model_path(model.name), ignored);
}

std::string percent(double value) {
  return value > 0 ? fmt::format("{:.2f} %", value) : "";
}

std::string weights(const NamedModel& model) {
  switch (model.origin) {
    case ModelOrigin::embedded:
      return "built in";
    case ModelOrigin::random:
      return "random";
    case ModelOrigin::fetched:
      return is_here(model) ? "fetched" : "to fetch";
  }
  return {};
}

// In fp32.
std::int64_t weight_bytes(const NamedModel& model) {
  return 4 * model.parameters;
}

void print_text() {
  using enum Table::Align;
  Table table({{"model"},
               {"weights"},
               {"input"},
               {"classes", right},
               {"parameters", right},
               {"size", right},
               {"top-1", right},
               {"top-5", right},
               {"measured on"},
               {"licence"},
               {"source"}});
  for (const NamedModel& model : named_models()) {
    table.add({std::string(model.name), weights(model), fmt::format("3x{}x{}", model.side, model.side),
               fmt::format("{}", model.classes), with_prefix(static_cast<double>(model.parameters)),
               mebibytes(static_cast<std::size_t>(weight_bytes(model))), percent(model.top1),
               percent(model.top5), std::string(model.measured_on), std::string(model.licence),
               std::string(model.source)});
  }
  fmt::print("{}\npipit fetch NAME downloads what is not here yet; any ONNX classifier runs as well.\n",
             table.str());
}

nlohmann::ordered_json to_json(const NamedModel& model) {
  const std::filesystem::path path =
      model.origin == ModelOrigin::fetched ? fetched_model_path(model.name) : std::filesystem::path();
  const auto known = [](double value) { return value > 0 ? nlohmann::ordered_json(value) : nullptr; };
  return {{"name", model.name},
          {"description", model.description},
          {"weights", model.origin == ModelOrigin::embedded ? "built in"
                      : model.origin == ModelOrigin::random ? "random"
                                                            : "fetched"},
          {"here", is_here(model)},
          {"path", path.empty() ? nullptr : nlohmann::ordered_json(path.string())},
          {"input", {3, model.side, model.side}},
          {"classes", model.classes},
          {"parameters", model.parameters},
          {"bytes", weight_bytes(model)},
          {"top1", known(model.top1)},
          {"top5", known(model.top5)},
          {"measured_on", model.measured_on},
          {"licence", model.licence},
          {"source", model.source}};
}

}  // namespace

void add_models(CLI::App& app, int& exit_code) {
  const auto json = std::make_shared<bool>(false);
  const auto quiet = std::make_shared<bool>(false);
  CLI::App* command =
      app.add_subcommand("models", "List the models that have names: size, accuracy, licence, source");
  add_output_flags(*command, *json, *quiet);
  command->footer("Example: pipit models --json");
  command->callback([json, quiet, &exit_code] {
    if (*json) {
      nlohmann::ordered_json document = {{"pipit", version()}, {"command", "models"}};
      for (const NamedModel& model : named_models()) document["models"].push_back(to_json(model));
      print_json(document);
    } else {
      print_text();
    }
    exit_code = kExitOk;
  });
}

}  // namespace pipit::apps
