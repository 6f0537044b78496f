// Writes a quantization plan as JSON; quantization_plan_read.cpp reads it.
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/file.h"
#include "quant/quantization_plan.h"

namespace pipit::internal {

namespace {

using Json = nlohmann::ordered_json;

Json histogram_json(const Histogram& histogram) {
  const Histogram::State state = histogram.state();
  Json runs = Json::array();
  for (const Histogram::Run& run : state.runs) {
    Json entry = Json::array({run.first});
    for (const std::uint64_t count : run.counts) entry.push_back(count);
    runs.push_back(std::move(entry));
  }
  return {{"exponent", state.exponent}, {"zeros", state.zeros}, {"runs", std::move(runs)}};
}

}  // namespace

std::string to_json(const QuantizationPlan& plan, bool with_histograms) {
  Json json;
  json["pipit_precision_plan"] = kQuantizationPlanVersion;
  json["model"] = plan.model;
  json["model_hash"] = plan.model_hash;
  json["preprocess"] = plan.preprocess.empty() ? Json() : Json::parse(plan.preprocess);
  json["method"] = threshold_method_name(plan.method.method);
  if (plan.method.method == ThresholdMethod::percentile) json["percentile"] = plan.method.percentile;
  json["weights"] = plan.weights_per_channel ? "per_channel" : "per_tensor";
  json["keep"] = Json::object();
  for (const QuantizationPlan::Kept& kept : plan.keep) {
    json["keep"][kept.node] = kept.precision;
    if (!kept.why.empty()) json["keep"][kept.node] = {{"precision", kept.precision}, {"why", kept.why}};
  }
  json["tensors"] = Json::array();
  for (const TensorScale& t : plan.tensors) {
    json["tensors"].push_back({{"name", t.name},
                               {"min", t.min},
                               {"max", t.max},
                               {"threshold", t.threshold},
                               {"scale", t.scale},
                               {"zero_point", t.zero_point},
                               {"clipped", t.clipped}});
  }
  // Looked up by its name, every member would be compared with all before it.
  Json::object_t files;
  for (const CalibrationImage& image : plan.images) files.emplace_back(image.path, image.hash);
  json["images"] = {
      {"count", plan.images.size()}, {"hash", image_list_hash(plan.images)}, {"files", std::move(files)}};
  for (const QuantizationPlan::Equalized& pair : plan.equalized)
    json["equalization"].push_back(
        {{"first", pair.first}, {"second", pair.second}, {"factors", pair.factors}});
  for (const QuantizationPlan::Corrected& node : plan.corrected)
    json["bias_correction"][node.node] = node.deltas;
  if (!plan.equalized.empty() || !plan.corrected.empty()) json["corrections_hash"] = corrections_hash(plan);
  std::string text = json.dump(2, ' ', false, Json::error_handler_t::replace);
  if (!with_histograms) return text + "\n";
  // Numbers that people do not read: one line per tensor instead of one per number.
  text.erase(text.find_last_of('}'));
  text.erase(text.find_last_not_of(" \n") + 1);
  text += ",\n  \"histograms\": {";
  for (const TensorScale& t : plan.tensors) {
    if (!t.histogram) fail("tensor '{}' has no histogram to write", t.name);
    text += fmt::format("{}\n    {}: {}", &t == plan.tensors.data() ? "" : ",",
                        Json(t.name).dump(-1, ' ', false, Json::error_handler_t::replace),
                        histogram_json(*t.histogram).dump());
  }
  return text + "\n  }\n}\n";
}

void write_quantization_plan(const std::filesystem::path& path, const QuantizationPlan& plan,
                             bool with_histograms) {
  const std::string text = to_json(plan, with_histograms);
  try {
    if (to_json(quantization_plan_from_json(text), with_histograms) != text)
      fail("it would be read as another one");
  } catch (const Error& e) {
    fail("{}: the plan cannot be written: {}", path.string(), e.what());
  }
  write_file(path, text);
}

}  // namespace pipit::internal
