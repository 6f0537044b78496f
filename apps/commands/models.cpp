// pipit models: the models that have names.
#include <fmt/core.h>

#include <algorithm>
#include <filesystem>

#include "apps/commands/commands.h"
#include "apps/display/next_command.h"
#include "apps/display/print_json.h"
#include "apps/display/table.h"
#include "apps/display/terminal.h"
#include "apps/options/options.h"
#include "engine/base/version.h"
#include "engine/platform/host_memory.h"
#include "models/catalogue.h"
#include "models/fetched_model.h"
#include "pipit/measuring/runner.h"

namespace pipit::internal::apps {

namespace {

// The file of a fetched model, read and checked once.
FetchedFile file_of(const NamedModel& model) {
  FetchedFile file = read_fetched_model(model.name, fetched_model_path(model.name));
  file.content.clear();
  return file;
}

struct Listed {
  const NamedModel& model;
  FetchedFile file;  // `missing` for what is not fetched
  bool is_here() const {
    return model.origin != ModelOrigin::fetched || file.state == FetchedState::whole ||
           file.state == FetchedState::unchecked;
  }
};

std::vector<Listed> listed_models() {
  std::vector<Listed> all;
  for (const NamedModel& model : named_models())
    all.push_back({model, model.origin == ModelOrigin::fetched ? file_of(model) : FetchedFile{}});
  return all;
}

std::string percent(double value) {
  return value > 0 ? fmt::format("{:.2f} %", value) : "";
}

std::string weights(const Listed& listed) {
  switch (listed.model.origin) {
    case ModelOrigin::embedded:
      return "built in";
    case ModelOrigin::random:
      return "random";
    case ModelOrigin::fetched:
      return listed.is_here()                             ? "fetched"
             : listed.file.state == FetchedState::missing ? "to fetch"
                                                          : "broken";
  }
  return {};
}

// In fp32.
std::int64_t weight_bytes(const NamedModel& model) {
  return 4 * model.parameters;
}

void print_text(const std::vector<Listed>& models, bool wide) {
  using enum Table::Align;
  Table table({{"model"},
               {"weights"},
               {"input", left, 1},
               {"classes", right, 3},
               {"parameters", right, 4},
               {"size", right},
               {"top-1", right},
               {"top-5", right, 2},
               {"measured on", left, 5},
               {"licence", left, 6},
               {"source", left, 7}});
  for (const Listed& listed : models) {
    const NamedModel& model = listed.model;
    table.add({std::string(model.name), weights(listed), fmt::format("3x{}x{}", model.side, model.side),
               fmt::format("{}", model.classes), with_prefix(static_cast<double>(model.parameters)),
               mebibytes(static_cast<std::size_t>(weight_bytes(model))), percent(model.top1),
               percent(model.top5), std::string(model.measured_on), std::string(model.licence),
               std::string(model.source)});
  }
  fmt::print("{}\n", table.str(0, table_width(wide)));
  for (const Listed& listed : models) {
    if (listed.is_here() || listed.file.state == FetchedState::missing) continue;
    const bool repairs = listed.file.state == FetchedState::broken;
    fmt::print(
        "{}",
        wrapped(fmt::format("{}{}\n", printable(listed.file.problem),
                            repairs ? fmt::format("; repair it: pipit fetch {}", listed.model.name) : ""),
                2, terminal_width()));
  }
  fmt::print(
      "{}", wrapped("pipit fetch NAME downloads what is not here yet; any ONNX classifier runs as well.\n", 2,
                    terminal_width()));
}

void print_next_of(const std::vector<Listed>& models, bool quiet) {
  const auto missing = std::ranges::find_if_not(models, &Listed::is_here);
  if (missing != models.end()) {
    print_next(quiet, {"fetch", missing->model.name}, "weights that were trained on ImageNet");
  } else {
    print_next(quiet, {"classify", models.back().model.name, "photo.jpg"},
               "what a photograph of yours shows");
  }
}

nlohmann::ordered_json to_json(const Listed& listed) {
  const NamedModel& model = listed.model;
  const std::filesystem::path path =
      model.origin == ModelOrigin::fetched ? fetched_model_path(model.name) : std::filesystem::path();
  const auto known = [](double value) { return value > 0 ? nlohmann::ordered_json(value) : nullptr; };
  return {{"name", model.name},
          {"description", model.description},
          {"weights", model.origin == ModelOrigin::embedded ? "built in"
                      : model.origin == ModelOrigin::random ? "random"
                                                            : "fetched"},
          {"here", listed.is_here()},
          {"problem", listed.file.problem.empty() ? nullptr : nlohmann::ordered_json(listed.file.problem)},
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
  const auto wide = std::make_shared<bool>(false);
  CLI::App* command =
      app.add_subcommand("models", "List the models that have names: size, accuracy, licence, source");
  add_output_flags(*command, *json, *quiet);
  add_wide_to(*command, *wide);
  command->footer("Example: pipit models --json");
  command->callback([json, quiet, wide, &exit_code] {
    const std::vector<Listed> models = listed_models();
    if (*json) {
      nlohmann::ordered_json document = {{"pipit", version()}, {"command", "models"}};
      for (const Listed& listed : models) document["models"].push_back(to_json(listed));
      print_json(document);
    } else {
      print_text(models, *wide);
    }
    print_next_of(models, *quiet);
    exit_code = kExitOk;
  });
}

}  // namespace pipit::internal::apps
