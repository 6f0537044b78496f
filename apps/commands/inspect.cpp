// pipit inspect MODEL: every node with shapes, parameters, MACs and the kernel chosen.
#include <sstream>

#include "apps/commands/commands.h"
#include "apps/display/layer_json.h"
#include "apps/display/layer_table.h"
#include "apps/display/next_command.h"
#include "apps/display/print_json.h"
#include "apps/display/refusals.h"
#include "apps/display/table.h"
#include "apps/display/terminal.h"
#include "apps/options/options.h"
#include "engine/platform/host_memory.h"
#include "layers/ops/weight_only.h"
#include "layers/passes/rewriter.h"
#include "models/score_kind.h"
#include "pipit/measuring/runner.h"

namespace pipit::internal::apps {

namespace {

struct InspectOptions {
  CommonOptions common;
  ModelOptions model;
  bool why = false;
  bool wide = false;
};

// Weights of 4 bits lie two in an element: how many more than elements a node has.
std::int64_t packed_twice(const Graph& graph, const Node& node) {
  const auto* conv = layer_if<WConv>(node);
  const auto* linear = layer_if<WLinear>(node);
  if (conv == nullptr && linear == nullptr) return 0;
  const Shape& x = graph.value(node.inputs[0]).desc.shape;
  const Shape& stored = graph.value(node.inputs[1]).desc.shape;
  return stored[0] * (conv != nullptr ? x[1] : x[x.rank() - 1]) - stored.elements();
}

std::int64_t parameters(const Graph& graph, const Node& node) {
  std::int64_t count = packed_twice(graph, node);
  for (const ValueId id : node.inputs) {
    if (id != kNoValue && graph.value(id).is_constant()) count += graph.value(id).desc.elements();
  }
  return count;
}

// The number of parameters of all nodes that the step computes.
std::int64_t parameters(const Graph& graph, const Step& step) {
  std::int64_t count = parameters(graph, graph.nodes()[static_cast<std::size_t>(step.node)]);
  for (const int node : step.fused) count += parameters(graph, graph.nodes()[static_cast<std::size_t>(node)]);
  return count;
}

struct Totals {
  std::int64_t parameters = 0;
  std::size_t parameter_bytes = 0;  // in the graph; kernels may keep less (f16) or more (Winograd)
  std::int64_t macs = 0;
  int int8_steps = 0;   // that compute with 8-bit integers
  int conversions = 0;  // between these and floating point
  std::int64_t int8_macs = 0;
};

bool is_byte(DType type) {
  return type == DType::i8 || type == DType::u8;
}

void count_int8(const Graph& graph, const Step& step, std::int64_t macs, Totals& sum) {
  const Node& node = graph.nodes()[static_cast<std::size_t>(step.node)];
  const Arithmetic arithmetic = node.layer->traits().arithmetic;
  const bool moves_bytes =
      is_byte(graph.value(node.inputs[0]).desc.dtype) && is_byte(graph.value(node.outputs[0]).desc.dtype);
  if (arithmetic == Arithmetic::between) {
    ++sum.conversions;
  } else if (arithmetic == Arithmetic::integers || moves_bytes) {
    ++sum.int8_steps;
    sum.int8_macs += macs;
  }
}

Totals totals(const ExecutionPlan& plan) {
  Totals sum;
  const Graph& graph = plan.graph();
  for (const Value& value : graph.values()) {
    if (!value.is_constant()) continue;
    sum.parameters += value.desc.elements();
    sum.parameter_bytes += value.desc.bytes();
  }
  for (const Node& node : graph.nodes()) sum.parameters += packed_twice(graph, node);
  for (const Step& step : plan.steps()) {
    const std::int64_t macs = step_info(plan, step).macs;
    sum.macs += macs;
    count_int8(graph, step, macs, sum);
  }
  return sum;
}

// Microseconds on a GPU; on the CPU what Winograd takes, in the time of the direct sums.
std::string estimates_of(const Step& step) {
  std::string text = "estimated:";
  for (const EstimatedCandidate& e : step.estimates) {
    text += fmt::format("{} {} {:.3g}", &e == step.estimates.data() ? "" : ",", e.name, e.time);
  }
  return text;
}

// The kernels that refused the layer, and how its kernel was chosen: lines below the layer's row.
std::string reasons_of(const Step& step, const Refusals& refusals) {
  std::string text;
  for (const RefusedCandidate& r : refusals.of(step))
    text += printable(fmt::format("     not {}: {}", r.name, r.reason)) + "\n";
  const std::string variant = step.variant.empty() ? "" : " " + step.variant;
  text +=
      printable(fmt::format("     {}{}: by {}{}{}", step.kernel_name, variant, chosen_by_name(step.choice.by),
                            step.choice.note.empty() ? "" : "; ", step.choice.note)) +
      "\n";
  if (!step.estimates.empty()) text += printable("       " + estimates_of(step)) + "\n";
  for (const EstimatedChain& c : step.chains) {
    text += printable(fmt::format("       estimated for {} layers together: {} {:.3g}; one by one: {:.3g}",
                                  c.nodes, c.name, c.time, c.apart)) +
            "\n";
  }
  for (const TimedKernel& t : step.choice.timed) {
    text += printable(fmt::format("       {}{}{}: {}", t.name, t.variant.empty() ? "" : " ", t.variant,
                                  t.problem.empty() ? fmt::format("{:.4f} ms", t.ms) : t.problem)) +
            "\n";
  }
  return text;
}

std::vector<std::string> notes_of(const Model& model, const Runner& runner) {
  std::vector<std::string> notes = metadata_notes(model);
  for (const PassReport& pass : runner.passes)
    notes.insert(notes.end(), pass.notes.begin(), pass.notes.end());
  return notes;
}

void print_text(const Model& model, const Runner& runner, const InspectOptions& options) {
  using enum Table::Align;
  const ExecutionPlan& plan = *runner.plan;
  const Graph& graph = plan.graph();
  const int width = table_width(options.wide);
  fmt::print("{}\n", printable(model.name));
  for (const ValueId id : graph.inputs())
    fmt::print("input   {}  {}\n", printable(graph.value(id).name), graph.value(id).desc.str());
  for (std::size_t i = 0; i < graph.outputs().size(); ++i) {
    fmt::print("output  {}  {}\n", graph.output_names()[i], graph.value(graph.outputs()[i]).desc.str());
  }
  if (!model.widened.empty())
    fmt::print("{}", wrapped(fmt::format("widened   16-bit floating point in the file, f32 here: {}\n",
                                         printable(model.widened)),
                             10, width));
  if (!model.labels.empty()) {
    fmt::print("{}",
               wrapped(fmt::format("labels  {}: {}, ..., {}{}\n", model.labels.size(),
                                   printable(model.labels.front()), printable(model.labels.back()),
                                   model.labels_from.empty() ? "" : " (from " + model.labels_from + ")"),
                       8, width));
  }
  if (const auto output = find_class_output(graph, model.scores)) {
    const std::string note = detail::scores_note(*output);
    fmt::print("{}", wrapped(fmt::format("scores  {}{}{}\n", score_kind_name(output->kind),
                                         note.empty() ? "" : ": ", note),
                             8, width));
    if (const std::string heads = heads_note(graph, output->kind); !heads.empty())
      fmt::print("{}", wrapped(fmt::format("        {}\n", heads), 8, width));
  }
  if (model.preprocess)
    fmt::print("{}", wrapped(fmt::format("preprocessing  stored in {}: {}\n",
                                         model.preprocess_from.empty() ? "the model" : model.preprocess_from,
                                         detail::describe(*model.preprocess)),
                             15, width));
  std::string rewrites;
  for (const PassReport& pass : runner.passes) {
    if (pass.changes > 0)
      rewrites += fmt::format("{}{} ({})", rewrites.empty() ? "" : ", ", pass.pass, pass.changes);
  }
  fmt::print("{}", wrapped(fmt::format("rewrites  {}\n", rewrites.empty() ? "none" : rewrites), 10, width));
  for (const std::string& note : notes_of(model, runner))
    fmt::print("{}", wrapped(fmt::format("note      {}\n", printable(note)), 10, width));
  fmt::print("\n");

  Table table({{"#", right},
               {"layer", left, 0, true},
               {"type"},
               {"kernel"},
               {"input", left, 3},
               {"output", left, 2},
               {"geometry", left, 1},
               {"parameters", right, 4},
               {"MACs", right}});
  const Refusals refusals(plan);
  std::vector<std::string> reasons;  // of each row
  for (const Step& step : plan.steps()) {
    const StepInfo info = step_info(plan, step);
    const std::int64_t params = parameters(graph, step);
    table.add({fmt::format("{}", info.index), info.name, info.type, info.kernel, info.input.str(),
               info.output.str(), info.geometry, params > 0 ? fmt::format("{}", params) : "",
               info.macs > 0 ? with_prefix(static_cast<double>(info.macs)) : ""});
    reasons.push_back(options.why ? reasons_of(step, refusals) : "");
  }
  std::istringstream lines(table.str(0, width));
  std::string line;
  std::getline(lines, line);
  fmt::print("{}\n", line);
  for (std::size_t row = 0; std::getline(lines, line); ++row)
    fmt::print("{}\n{}", line, wrapped(reasons[row], 8, width));
  fmt::print("\n");
  if (options.why) {
    const std::vector<std::string> everywhere = refusals.of_all();
    for (const std::string& refused : everywhere) fmt::print("{}", wrapped(refused + "\n", 2, width));
    if (!everywhere.empty()) fmt::print("\n");
  }
  const Totals sum = totals(plan);
  fmt::print("nodes         {} ({} run, {} are views)\n", graph.nodes().size(), plan.steps().size(),
             plan.view_nodes());
  fmt::print("parameters    {} ({})\n", sum.parameters, mebibytes(sum.parameter_bytes));
  fmt::print("MACs          {}\n", with_prefix(static_cast<double>(sum.macs)));
  if (sum.int8_steps > 0) {
    const std::int64_t all = std::max<std::int64_t>(1, sum.macs);
    fmt::print("INT8          {} of {} nodes that run, {:.1f} % of the MACs; {} convert from or to it\n",
               sum.int8_steps, plan.steps().size(),
               100.0 * static_cast<double>(sum.int8_macs) / static_cast<double>(all), sum.conversions);
  }
  const MicroBatches& batches = plan.micro_batches();
  if (batches.cut() || options.why)
    fmt::print("{}", wrapped(fmt::format("micro-batches {}\n", describe(batches)), 14, width));
  // In a tiny model the kernels' scratch and the alignment outweigh the activations: no share of them.
  const std::string share = plan.arena_bytes() < plan.activation_bytes()
                                ? fmt::format(" ({:.1f} %)", 100.0 * static_cast<double>(plan.arena_bytes()) /
                                                                 static_cast<double>(plan.activation_bytes()))
                                : "";
  fmt::print("{}", wrapped(fmt::format("arena         {} for {} of activations{}; the largest set alive at "
                                       "once is {}\n",
                                       mebibytes(plan.arena_bytes()), mebibytes(plan.activation_bytes()),
                                       share, mebibytes(plan.peak_live_bytes())),
                           14, width));
}

nlohmann::ordered_json to_json(const Model& model, const Runner& runner, bool why) {
  const ExecutionPlan& plan = *runner.plan;
  const Graph& graph = plan.graph();
  nlohmann::ordered_json json = json_header("inspect", model.name, plan);
  const auto describe = [&](const std::vector<ValueId>& ids) {
    auto list = nlohmann::ordered_json::array();
    for (const ValueId id : ids) {
      const Value& v = graph.value(id);
      list.push_back({{"name", v.name}, {"dtype", dtype_name(v.desc.dtype)}, {"shape", v.desc.shape.dims()}});
    }
    return list;
  };
  json["inputs"] = describe(graph.inputs());
  json["outputs"] = describe(graph.outputs());
  for (std::size_t i = 0; i < graph.outputs().size(); ++i)
    json["outputs"][i]["name"] = graph.output_names()[i];
  json["widened"] = model.widened;
  json["labels"] = model.labels;
  const auto output = find_class_output(graph, model.scores);
  json["scores"] = output ? nlohmann::ordered_json(score_kind_name(output->kind)) : nlohmann::ordered_json();
  json["preprocessing"] =
      model.preprocess ? nlohmann::ordered_json::parse(to_json(*model.preprocess)) : nlohmann::ordered_json();
  json["rewrites"] = nlohmann::ordered_json::object();
  for (const PassReport& pass : runner.passes) json["rewrites"][pass.pass] = pass.changes;
  json["notes"] = notes_of(model, runner);
  json["layers"] = nlohmann::ordered_json::array();
  for (const Step& step : plan.steps()) {
    const StepInfo info = step_info(plan, step);
    nlohmann::ordered_json layer = {{"index", info.index},        {"name", info.name},
                                    {"type", info.type},          {"kernel", info.kernel},
                                    {"input", info.input.dims()}, {"output", info.output.dims()},
                                    {"geometry", info.geometry},  {"parameters", parameters(graph, step)},
                                    {"macs", info.macs}};
    if (info.kept < 1) layer["kept"] = info.kept;
    add_choice(layer, step);
    if (why) {
      layer["refused"] = nlohmann::ordered_json::array();
      for (const RefusedCandidate& r : step.refused)
        layer["refused"].push_back({{"kernel", r.name}, {"why", r.reason}});
      layer["estimated"] = nlohmann::ordered_json::array();
      for (const EstimatedCandidate& e : step.estimates)
        layer["estimated"].push_back({{"kernel", e.name}, {"time", e.time}});
      layer["chains"] = nlohmann::ordered_json::array();
      for (const EstimatedChain& c : step.chains)
        layer["chains"].push_back(
            {{"kernel", c.name}, {"layers", c.nodes}, {"time", c.time}, {"one_by_one", c.apart}});
    }
    json["layers"].push_back(std::move(layer));
  }
  const Totals sum = totals(plan);
  json["parameters"] = sum.parameters;
  json["parameter_bytes"] = sum.parameter_bytes;
  json["macs"] = sum.macs;
  json["int8"] = {{"nodes", sum.int8_steps}, {"conversions", sum.conversions}, {"macs", sum.int8_macs}};
  json["arena_bytes"] = plan.arena_bytes();
  json["peak_live_bytes"] = plan.peak_live_bytes();
  json["activation_bytes"] = plan.activation_bytes();
  add_micro_batches(json, plan.micro_batches());
  json["view_nodes"] = plan.view_nodes();
  return json;
}

int inspect(const InspectOptions& options) {
  Model model = options.model.load();
  const Runner runner = options.common.make_runner(model.name, std::move(model.graph));
  if (options.common.json) {
    print_json(to_json(model, runner, options.why));
  } else {
    print_text(model, runner, options);
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
