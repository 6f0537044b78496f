// pipit models: the models that have names.
#include <fmt/core.h>

#include <algorithm>

#include "apps/commands/commands.h"
#include "apps/display/next_command.h"
#include "apps/display/table.h"
#include "apps/display/terminal.h"
#include "apps/options/options.h"
#include "pipit/fetch.h"
#include "pipit/text.h"

namespace pipit::internal::apps {

namespace {

using tools::ListedModel;
using tools::ModelWeights;

std::string percent(double value) {
  return value > 0 ? fmt::format("{:.2f} %", value) : "";
}

std::string weights(const ListedModel& listed) {
  switch (listed.model.weights) {
    case ModelWeights::built_in:
      return "built in";
    case ModelWeights::random:
      return "random";
    case ModelWeights::fetched:
      return listed.is_here ? "fetched" : listed.problem.empty() ? "to fetch" : "broken";
  }
  return {};
}

void print_text(const std::vector<ListedModel>& models, bool wide) {
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
  for (const ListedModel& listed : models) {
    const tools::NamedModel& model = listed.model;
    table.add({model.name, weights(listed), fmt::format("3x{}x{}", model.side, model.side),
               fmt::format("{}", model.classes), with_prefix(static_cast<double>(model.parameters)),
               mebibytes(static_cast<std::size_t>(4 * model.parameters)), percent(model.top1),
               percent(model.top5), model.measured_on, model.licence, model.source});
  }
  fmt::print("{}\n", table.str(0, table_width(wide)));
  for (const ListedModel& listed : models) {
    if (listed.is_here || listed.problem.empty()) continue;
    fmt::print("{}", wrapped(fmt::format("{}{}\n", printable(listed.problem),
                                         listed.repairs
                                             ? fmt::format("; repair it: pipit fetch {}", listed.model.name)
                                             : ""),
                             2, terminal_width()));
  }
  fmt::print(
      "{}", wrapped("pipit fetch NAME downloads what is not here yet; any ONNX classifier runs as well.\n", 2,
                    terminal_width()));
}

void print_next_of(const std::vector<ListedModel>& models, bool quiet) {
  const auto missing = std::ranges::find_if_not(models, &ListedModel::is_here);
  if (missing != models.end()) {
    print_next(quiet, {"fetch", missing->model.name}, "weights that were trained on ImageNet");
  } else {
    print_next(quiet, {"classify", models.back().model.name, "photo.jpg"},
               "what a photograph of yours shows");
  }
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
    const tools::ModelList list = tools::list_models();
    if (*json) {
      fmt::print("{}", list.json);
    } else {
      print_text(list.models, *wide);
    }
    print_next_of(list.models, *quiet);
    exit_code = kExitOk;
  });
}

}  // namespace pipit::internal::apps
