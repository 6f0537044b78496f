#include "pipit/inspect.h"

#include "layers/ops/weight_only.h"
#include "layers/passes/rewriter.h"
#include "models/classification.h"
#include "models/score_kind.h"
#include "pipit/detail/load.h"
#include "pipit/detail/preparation.h"
#include "pipit/detail/step_info.h"
#include "pipit/measuring/json.h"
#include "pipit/measuring/layer_json.h"

namespace pipit::tools {

using namespace internal;
using detail::StepInfo;

namespace {

using Json = nlohmann::ordered_json;

// Weights of 4 bits lie two in an element: how many more than elements a node has.
std::int64_t packed_twice(const Graph& graph, const Node& node) {
  const auto* conv = layer_if<WConv>(node);
  const auto* linear = layer_if<WLinear>(node);
  if (conv == nullptr && linear == nullptr) return 0;
  const Shape& x = graph.value(node.inputs[0]).desc.shape;
  const Shape& stored = graph.value(node.inputs[1]).desc.shape;
  return stored[0] * (conv != nullptr ? x[1] : x[x.rank() - 1]) - stored.elements();
}

std::int64_t parameters(const Graph& graph, int index) {
  const Node& node = graph.nodes()[static_cast<std::size_t>(index)];
  std::int64_t count = packed_twice(graph, node);
  for (const ValueId id : node.inputs) {
    if (id != kNoValue && graph.value(id).is_constant()) count += graph.value(id).desc.elements();
  }
  return count;
}

// The number of parameters of all nodes that the step computes.
std::int64_t parameters(const Graph& graph, const Step& step) {
  std::int64_t count = parameters(graph, step.node);
  for (const int node : step.fused) count += parameters(graph, node);
  return count;
}

bool is_byte(DType type) {
  return type == DType::i8 || type == DType::u8;
}

void count_int8(const Graph& graph, const Step& step, std::int64_t macs, InspectedModel& model) {
  const Node& node = graph.nodes()[static_cast<std::size_t>(step.node)];
  const Arithmetic arithmetic = node.layer->traits().arithmetic;
  const bool moves_bytes =
      is_byte(graph.value(node.inputs[0]).desc.dtype) && is_byte(graph.value(node.outputs[0]).desc.dtype);
  if (arithmetic == Arithmetic::between) {
    ++model.conversions;
  } else if (arithmetic == Arithmetic::integers || moves_bytes) {
    ++model.int8_layers;
    model.int8_macs += macs;
  }
}

InspectedLayer layer_of(const Graph& graph, const Step& step, StepInfo info) {
  InspectedLayer layer;
  layer.name = std::move(info.name);
  layer.type = std::move(info.type);
  layer.kernel = std::move(info.kernel);
  layer.variant = step.variant;
  layer.geometry = std::move(info.geometry);
  layer.input = info.input;
  layer.output = info.output;
  layer.parameters = parameters(graph, step);
  layer.macs = info.macs;
  layer.kept = info.kept;
  layer.chosen = chosen_by_name(step.choice.by);
  layer.note = step.choice.note;
  for (const internal::TimedKernel& t : step.choice.timed)
    layer.timed.push_back({t.name, t.variant, t.ms, t.problem});
  for (const EstimatedCandidate& e : step.estimates) layer.estimated.push_back({e.name, e.time});
  for (const internal::EstimatedChain& c : step.chains)
    layer.chains.push_back({c.name, c.nodes, c.time, c.apart});
  for (const RefusedCandidate& r : step.refused) layer.refused.push_back({r.name, r.reason});
  return layer;
}

void add_reasons(Json& json, const InspectedLayer& layer) {
  json["refused"] = Json::array();
  for (const RefusedKernel& r : layer.refused)
    json["refused"].push_back({{"kernel", r.kernel}, {"why", r.why}});
  json["estimated"] = Json::array();
  for (const EstimatedKernel& e : layer.estimated)
    json["estimated"].push_back({{"kernel", e.kernel}, {"time", e.time}});
  json["chains"] = Json::array();
  for (const EstimatedChain& c : layer.chains)
    json["chains"].push_back(
        {{"kernel", c.kernel}, {"layers", c.layers}, {"time", c.time}, {"one_by_one", c.one_by_one}});
}

Json tensors_json(const std::vector<TensorInfo>& infos) {
  Json list = Json::array();
  for (const TensorInfo& info : infos)
    list.push_back({{"name", info.name}, {"dtype", dtype_name(info.dtype)}, {"shape", info.shape.dims()}});
  return list;
}

Json document_json(const InspectedModel& model, const detail::CompiledState& state, bool why) {
  const ExecutionPlan& plan = *state.plans[0];
  Json json = detail::json_header("inspect", model.name, plan);
  json["inputs"] = tensors_json(model.inputs);
  json["outputs"] = tensors_json(model.outputs);
  json["widened"] = model.widened;
  json["labels"] = model.labels;
  json["scores"] = model.scores ? Json(score_kind_name(*model.scores)) : Json();
  const std::optional<Preprocess>& preprocess = state.facts.preprocess;
  json["preprocessing"] = preprocess ? Json::parse(to_json(*preprocess)) : Json();
  json["rewrites"] = Json::object();
  for (const Rewrite& rewrite : model.rewrites) json["rewrites"][rewrite.name] = rewrite.changes;
  json["notes"] = model.notes;
  json["layers"] = Json::array();
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    const InspectedLayer& of = model.layers[i];
    Json layer = {{"index", i},
                  {"name", of.name},
                  {"type", of.type},
                  {"kernel", of.kernel},
                  {"input", of.input.dims()},
                  {"output", of.output.dims()},
                  {"geometry", of.geometry},
                  {"parameters", of.parameters},
                  {"macs", of.macs}};
    if (of.kept < 1) layer["kept"] = of.kept;
    detail::add_choice(layer, plan.steps()[i]);
    if (why) add_reasons(layer, of);
    json["layers"].push_back(std::move(layer));
  }
  json["parameters"] = model.parameters;
  json["parameter_bytes"] = model.parameter_bytes;
  json["macs"] = model.macs;
  json["int8"] = {
      {"nodes", model.int8_layers}, {"conversions", model.conversions}, {"macs", model.int8_macs}};
  json["arena_bytes"] = model.arena_bytes;
  json["peak_live_bytes"] = model.peak_live_bytes;
  json["activation_bytes"] = model.activation_bytes;
  detail::add_micro_batches(json, plan.micro_batches());
  json["view_nodes"] = model.view_nodes;
  return json;
}

}  // namespace

InspectedModel inspect(const CompiledModel& compiled, const InspectOptions& options) {
  const detail::CompiledState& state = compiled.state();
  const detail::ModelFacts& facts = state.facts;
  const ExecutionPlan& plan = *state.plans[0];
  const Graph& graph = plan.graph();
  InspectedModel model;
  model.name = state.name;
  model.inputs = state.inputs;
  model.outputs = state.outputs;
  model.widened = facts.widened;
  model.labels = facts.labels;
  model.labels_from = facts.labels_from;
  if (const auto output = find_class_output(graph, facts.scores)) {
    model.scores = output->kind;
    model.scores_note = detail::scores_note(*output);
    model.heads_note = heads_note(graph, output->kind);
  }
  if (facts.preprocess) model.preprocessing = detail::describe(*facts.preprocess);
  model.preprocessing_from = facts.preprocess_from;
  model.notes = facts.notes;
  for (const PassReport& pass : facts.passes) {
    model.rewrites.push_back({pass.pass, pass.changes});
    model.notes.insert(model.notes.end(), pass.notes.begin(), pass.notes.end());
  }
  for (const Value& value : graph.values()) {
    if (!value.is_constant()) continue;
    model.parameters += value.desc.elements();
    model.parameter_bytes += value.desc.bytes();
  }
  for (const Node& node : graph.nodes()) model.parameters += packed_twice(graph, node);
  for (const Step& step : plan.steps()) {
    model.layers.push_back(layer_of(graph, step, detail::step_info(plan, step)));
    const std::int64_t macs = model.layers.back().macs;
    model.macs += macs;
    count_int8(graph, step, macs, model);
  }
  model.nodes = graph.nodes().size();
  model.view_nodes = plan.view_nodes();
  model.is_cut = plan.micro_batches().cut();
  model.micro_batch_text = detail::describe(plan.micro_batches());
  model.arena_bytes = plan.arena_bytes();
  model.peak_live_bytes = plan.peak_live_bytes();
  model.activation_bytes = plan.activation_bytes();
  model.json = detail::json_text(document_json(model, state, options.why));
  return model;
}

}  // namespace pipit::tools
