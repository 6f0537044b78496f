// pipit inspect MODEL: every node with shapes, parameters, MACs and the kernel chosen.
#include "pipit/inspect.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "apps/commands/commands.h"
#include "apps/display/next_command.h"
#include "apps/display/refusals.h"
#include "apps/display/table.h"
#include "apps/display/terminal.h"
#include "apps/options/options.h"
#include "pipit/text.h"

namespace pipit::internal::apps {

namespace {

struct InspectOptions {
  CommonOptions common;
  ModelOptions model;
  bool why = false;
  bool wide = false;
};

// A line of text at the left of its label, whose width is `indent`.
std::string line(const std::string& text, std::size_t indent, int width) {
  return wrapped(printable(text) + "\n", indent, width);
}

// The kernels that refused the layer, and how its kernel was chosen: lines below the layer's row.
std::string reasons_of(const tools::InspectedLayer& layer, const Refusals& refusals) {
  const auto named = [](const std::string& kernel, const std::string& variant) {
    return variant.empty() ? kernel : kernel + " " + variant;
  };
  std::vector<std::string> lines;
  for (const tools::RefusedKernel& r : refusals.of(layer))
    lines.push_back(fmt::format("     not {}: {}", r.kernel, r.why));
  lines.push_back(fmt::format("     {}: by {}{}{}", named(layer.kernel, layer.variant), layer.chosen,
                              layer.note.empty() ? "" : "; ", layer.note));
  std::string estimates;
  for (const tools::EstimatedKernel& e : layer.estimated)
    estimates += fmt::format("{} {} {:.3g}", estimates.empty() ? "" : ",", e.kernel, e.time);
  if (!estimates.empty()) lines.push_back("       estimated:" + estimates);
  for (const tools::EstimatedChain& c : layer.chains)
    lines.push_back(fmt::format("       estimated for {} layers together: {} {:.3g}; one by one: {:.3g}",
                                c.layers, c.kernel, c.time, c.one_by_one));
  for (const tools::TimedKernel& t : layer.timed)
    lines.push_back(fmt::format("       {}: {}", named(t.kernel, t.variant),
                                t.problem.empty() ? fmt::format("{:.4f} ms", t.ms) : t.problem));
  std::string text;
  for (const std::string& one : lines) text += printable(one) + "\n";
  return text;
}

// What the model's file says of itself.
std::string head_text(const tools::InspectedModel& model, int width) {
  std::string text = printable(model.name) + "\n";
  const auto described = [](const TensorInfo& info) {
    return fmt::format("{} {}", dtype_name(info.dtype), info.shape.str());
  };
  for (const TensorInfo& input : model.inputs)
    text += fmt::format("input   {}  {}\n", printable(input.name), described(input));
  for (const TensorInfo& output : model.outputs)
    text += fmt::format("output  {}  {}\n", output.name, described(output));
  if (!model.widened.empty())
    text += line("widened   16-bit floating point in the file, f32 here: " + model.widened, 10, width);
  if (!model.labels.empty()) {
    text += wrapped(fmt::format("labels  {}: {}, ..., {}{}\n", model.labels.size(),
                                printable(model.labels.front()), printable(model.labels.back()),
                                model.labels_from.empty() ? "" : " (from " + model.labels_from + ")"),
                    8, width);
  }
  if (model.scores) {
    text += wrapped(fmt::format("scores  {}{}{}\n", score_kind_name(*model.scores),
                                model.scores_note.empty() ? "" : ": ", model.scores_note),
                    8, width);
    if (!model.heads_note.empty()) text += wrapped(fmt::format("        {}\n", model.heads_note), 8, width);
  }
  if (!model.preprocessing.empty())
    text += wrapped(fmt::format("preprocessing  stored in {}: {}\n",
                                model.preprocessing_from.empty() ? "the model" : model.preprocessing_from,
                                model.preprocessing),
                    15, width);
  std::string rewrites;
  for (const tools::Rewrite& rewrite : model.rewrites) {
    if (rewrite.changes > 0)
      rewrites += fmt::format("{}{} ({})", rewrites.empty() ? "" : ", ", rewrite.name, rewrite.changes);
  }
  text += wrapped(fmt::format("rewrites  {}\n", rewrites.empty() ? "none" : rewrites), 10, width);
  for (const std::string& note : model.notes) text += line("note      " + note, 10, width);
  return text + "\n";
}

std::string layers_text(const tools::InspectedModel& model, bool why, int width) {
  using enum Table::Align;
  Table table({{"#", right},
               {"layer", left, 0, true},
               {"type"},
               {"kernel"},
               {"input", left, 3},
               {"output", left, 2},
               {"geometry", left, 1},
               {"parameters", right, 4},
               {"MACs", right}});
  const Refusals refusals(model);
  std::vector<std::string> reasons = {""};  // below the title and each row
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    const tools::InspectedLayer& layer = model.layers[i];
    table.add({fmt::format("{}", i), layer.name, layer.type, layer.kernel, layer.input.str(),
               layer.output.str(), layer.geometry,
               layer.parameters > 0 ? fmt::format("{}", layer.parameters) : "",
               layer.macs > 0 ? with_prefix(static_cast<double>(layer.macs)) : ""});
    reasons.push_back(why ? reasons_of(layer, refusals) : "");
  }
  std::string text;
  std::istringstream lines(table.str(0, width));
  std::string row;
  for (std::size_t r = 0; std::getline(lines, row); ++r) text += row + "\n" + wrapped(reasons[r], 8, width);
  text += "\n";
  if (!why) return text;
  const std::vector<std::string> everywhere = refusals.of_all();
  for (const std::string& refused : everywhere) text += wrapped(refused + "\n", 2, width);
  return everywhere.empty() ? text : text + "\n";
}

std::string totals_text(const tools::InspectedModel& model, bool why, int width) {
  std::string text = fmt::format("nodes         {} ({} run, {} are views)\n", model.nodes,
                                 model.layers.size(), model.view_nodes);
  text += fmt::format("parameters    {} ({})\n", model.parameters, mebibytes(model.parameter_bytes));
  text += fmt::format("MACs          {}\n", with_prefix(static_cast<double>(model.macs)));
  if (model.int8_layers > 0) {
    const std::int64_t all = std::max<std::int64_t>(1, model.macs);
    text += fmt::format(
        "INT8          {} of {} nodes that run, {:.1f} % of the MACs; {} convert from or to it\n",
        model.int8_layers, model.layers.size(),
        100.0 * static_cast<double>(model.int8_macs) / static_cast<double>(all), model.conversions);
  }
  if (model.is_cut || why)
    text += wrapped(fmt::format("micro-batches {}\n", model.micro_batch_text), 14, width);
  // In a tiny model the kernels' scratch and the alignment outweigh the activations: no share of them.
  const std::string share = model.arena_bytes < model.activation_bytes
                                ? fmt::format(" ({:.1f} %)", 100.0 * static_cast<double>(model.arena_bytes) /
                                                                 static_cast<double>(model.activation_bytes))
                                : "";
  return text + wrapped(fmt::format("arena         {} for {} of activations{}; the largest set alive at "
                                    "once is {}\n",
                                    mebibytes(model.arena_bytes), mebibytes(model.activation_bytes), share,
                                    mebibytes(model.peak_live_bytes)),
                        14, width);
}

int inspect(const InspectOptions& options) {
  options.common.check_precision();
  LoadOptions load = options.common.load_options();
  options.model.add_to(load);
  const CompiledModel compiled(options.model.model, load);
  if (!options.common.quiet) print_notes({compiled.notes().begin(), compiled.notes().end()});
  const tools::InspectedModel model = tools::inspect(compiled, {.why = options.why});
  if (options.common.json) {
    fmt::print("{}", model.json);
  } else {
    const int width = table_width(options.wide);
    fmt::print("{}{}{}", head_text(model, width), layers_text(model, options.why, width),
               totals_text(model, options.why, width));
  }
  print_next(options.common.quiet, {"profile", options.model.model}, "how long each layer takes");
  return kExitOk;
}

}  // namespace

void add_inspect(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<InspectOptions>();
  CLI::App* command = app.add_subcommand(
      "inspect", "Show a model as it will run: layers, shapes, parameters, MACs, kernels, memory");
  options->common.add_to(*command);
  options->model.add_to(*command, true);
  command->add_flag(
      "--why", options->why,
      "Also show every kernel that refused a layer, with its reason, and how the layer's kernel was chosen; "
      "a kernel that refuses all layers, or all of a type, is listed once, below the table");
  add_wide_to(*command, options->wide);
  command->footer(
      "Examples:\n"
      "  pipit inspect resnet50 --why\n"
      "  pipit inspect model.onnx --batch 8 --json");
  command->callback([options, &exit_code] { exit_code = inspect(*options); });
}

}  // namespace pipit::internal::apps
