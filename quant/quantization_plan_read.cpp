// Reads the JSON form of a quantization plan.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "engine/base/error.h"
#include "engine/base/file.h"
#include "quant/json_object.h"
#include "quant/kept_layers.h"
#include "quant/quantization_plan.h"

namespace pipit::internal {

namespace {

using Json = JsonObject::Json;

constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 28;
// Five are needed. Writing JSON takes stack for each level.
constexpr int kMaxLevels = 8;

ThresholdOptions method_from(const JsonObject& plan) {
  ThresholdOptions options;
  const std::string name = plan.text("method");
  bool known = false;
  for (const auto method : {ThresholdMethod::minmax, ThresholdMethod::percentile, ThresholdMethod::entropy,
                            ThresholdMethod::mse}) {
    if (name != threshold_method_name(method)) continue;
    options.method = method;
    known = true;
  }
  if (!known) plan.wrong("method", "minmax, percentile, entropy or mse");
  if (options.method == ThresholdMethod::percentile) {
    options.percentile = plan.number("percentile");
    if (!(options.percentile > 0 && options.percentile <= 100))
      plan.wrong("percentile", "above 0 and at most 100");
  }
  return options;
}

Histogram histogram_from(const Json& json, const TensorScale& tensor) {
  const JsonObject object(json, fmt::format("histogram of '{}'", tensor.name));
  object.only({"exponent", "zeros", "runs"});
  Histogram::State state;
  state.min = tensor.min;
  state.max = tensor.max;
  state.exponent = static_cast<int>(object.integer("exponent", -200, 200));
  constexpr std::int64_t kMax = std::int64_t{1} << 62;
  state.zeros = static_cast<std::uint64_t>(object.integer("zeros", 0, kMax));
  for (const Json& entry : object.array("runs")) {
    Histogram::Run run;
    bool valid = entry.is_array() && entry.size() >= 2 && entry.size() <= 2 * Histogram::kSide + 1 &&
                 entry[0].is_number_integer();
    for (std::size_t i = 1; valid && i < entry.size(); ++i) {
      valid = entry[i].is_number_unsigned();
      if (valid) run.counts.push_back(entry[i].get<std::uint64_t>());
    }
    const std::int64_t first = valid ? entry[0].get<std::int64_t>() : 0;
    if (!valid || first < -Histogram::kSide || first >= Histogram::kSide)
      fail("{}: a run must be [first bin, counts...]", object.where());
    run.first = static_cast<int>(first);
    state.runs.push_back(std::move(run));
  }
  try {
    return Histogram::from_state(state);
  } catch (const Error& e) {
    fail("{}: {}", object.where(), e.what());
  }
}

// People edit scales. One that has nothing to do with the values observed is a slip, and would silently make every
// value of the tensor 0 or clip it.
void check_scale(const JsonObject& object, const TensorScale& tensor) {
  constexpr double kMaxApart = 1024;
  if (!std::isnormal(tensor.scale) || tensor.scale < 0)
    object.wrong("scale", "a positive, normal 32-bit number");
  if (tensor.min > tensor.max) object.wrong("min", "at most 'max'");
  const double largest = std::max(-static_cast<double>(tensor.min), static_cast<double>(tensor.max));
  if (tensor.scale == default_scale(largest)) return;
  const double reach = 127.0 * tensor.scale;
  if (reach > kMaxApart * largest || reach * kMaxApart < largest)
    object.wrong("scale",
                 fmt::format("near {:.4g} / 127, the largest magnitude observed (within a factor of {})",
                             largest, kMaxApart));
}

TensorScale tensor_from(const Json& json, std::size_t index) {
  const std::string name = JsonObject(json, fmt::format("tensor {}", index)).text("name");
  const JsonObject object(json, fmt::format("tensor '{}'", name));
  object.only({"name", "min", "max", "threshold", "scale", "zero_point", "clipped"});
  TensorScale tensor;
  tensor.name = name;
  tensor.min = object.real("min");
  tensor.max = object.real("max");
  tensor.threshold = object.number("threshold");
  if (!(tensor.threshold >= 0)) object.wrong("threshold", "0 or more");
  tensor.scale = object.real("scale");
  check_scale(object, tensor);
  tensor.zero_point = static_cast<int>(object.integer("zero_point", 0, 0));
  tensor.clipped = object.number("clipped");
  if (!(tensor.clipped >= 0 && tensor.clipped <= 1)) object.wrong("clipped", "a share, from 0 to 1");
  return tensor;
}

std::vector<float> floats_from(const Json& json, const std::string& where) {
  if (!json.is_array()) fail("{} must be an array of numbers", where);
  std::vector<float> values;
  for (const Json& entry : json) {
    const double value = entry.is_number() ? entry.get<double>() : std::nan("");
    values.push_back(static_cast<float>(value));
    if (!std::isfinite(values.back())) fail("{}: {} is not a finite number", where, shown(entry));
  }
  return values;
}

void corrections_from(const JsonObject& object, QuantizationPlan& plan) {
  if (object.has("equalization")) {
    for (const Json& entry : object.array("equalization")) {
      const JsonObject pair(entry, fmt::format("equalization {}", plan.equalized.size()));
      pair.only({"first", "second", "factors"});
      plan.equalized.push_back({pair.text("first"), pair.text("second"),
                                floats_from(pair.at("factors"), pair.where() + ": 'factors'")});
      for (const float factor : plan.equalized.back().factors) {
        if (!std::isnormal(factor) || factor < 0) fail("{}: factor {} is not positive", pair.where(), factor);
      }
    }
  }
  if (object.has("bias_correction")) {
    const Json& nodes = object.object("bias_correction", R"({"node name": [numbers]})");
    for (const auto& [node, deltas] : nodes.items())
      plan.corrected.push_back({node, floats_from(deltas, fmt::format("bias correction of '{}'", node))});
  }
  if (plan.equalized.empty() && plan.corrected.empty()) {
    if (object.has("corrections_hash"))
      fail("'corrections_hash' stands without factors and deltas: they were taken out; calibrate again");
    return;
  }
  const std::string hash = corrections_hash(plan);
  if (object.text("corrections_hash") != hash)
    fail(
        "'corrections_hash' is {}, but that of the factors and deltas is {}: they were changed; calibrate "
        "again",
        object.text("corrections_hash"), hash);
}

void images_from(const JsonObject& object, QuantizationPlan& plan) {
  const JsonObject images(object.at("images"), "'images'");
  images.only({"count", "hash", "files"});
  constexpr std::size_t kHashDigits = 32;
  for (const auto& [path, hash] : images.object("files", R"({"path": "hash"})").items()) {
    const std::string text = hash.is_string() ? hash.get<std::string>() : std::string{};
    if (text.size() != kHashDigits || text.find_first_not_of("0123456789abcdef") != text.npos)
      fail("'images': the hash of '{}' must be {} hexadecimal digits, not {}", path, kHashDigits,
           shown(hash));
    plan.images.push_back({path, text});
  }
  const auto count = static_cast<std::int64_t>(plan.images.size());
  if (images.integer("count", 0, std::numeric_limits<std::int64_t>::max()) != count)
    images.wrong("count", fmt::format("{}, the number of its 'files'", count));
  const std::string hash = image_list_hash(plan.images);
  if (images.text("hash") != hash) images.wrong("hash", fmt::format("{}, that of its 'files'", hash));
}

void tensors_from(const JsonObject& object, QuantizationPlan& plan) {
  std::set<std::string> names;
  for (const Json& entry : object.array("tensors")) {
    plan.tensors.push_back(tensor_from(entry, plan.tensors.size()));
    if (!names.insert(plan.tensors.back().name).second)
      fail("tensor '{}' is there twice", plan.tensors.back().name);
  }
  if (!object.has("histograms")) return;
  std::map<std::string_view, const Json*> histograms;
  for (const auto& [name, histogram] : object.object("histograms", R"({"tensor name": {...}})").items()) {
    if (!names.contains(name))
      fail("'histograms': '{}' is none of the 'tensors'; a tensor is taken out together with its histogram",
           name);
    histograms.emplace(name, &histogram);
  }
  for (TensorScale& tensor : plan.tensors) {
    const auto found = histograms.find(tensor.name);
    if (found == histograms.end()) fail("'histograms': '{}' is missing", tensor.name);
    tensor.histogram = histogram_from(*found->second, tensor);
  }
}

void keep_from(const JsonObject& object, QuantizationPlan& plan) {
  for (const auto& [node, kept] :
       object.object("keep", R"({"node name": "fp32", "fp16" or "bf16"})").items()) {
    std::string why;
    if (kept.is_object()) {
      const JsonObject reasoned(kept, fmt::format("'keep': '{}'", node));
      reasoned.only({"precision", "why"});
      why = reasoned.text("why");
    }
    const Json& precision = kept.is_object() ? JsonObject(kept, node).at("precision") : kept;
    if (!precision.is_string() || !is_kept_precision(precision.get_ref<const std::string&>()))
      fail("'keep': the precision of '{}' must be fp32, fp16 or bf16, not {}", node, shown(precision));
    plan.keep.push_back({node, precision.get<std::string>(), std::move(why)});
  }
}

QuantizationPlan plan_from(const Json& json) {
  const JsonObject object(json, "a quantization plan");
  if (object.integer("pipit_precision_plan", 1, kQuantizationPlanVersion) == 1)
    fail(
        "a plan of version 1, whose model hash left attributes out and can no longer be compared; calibrate "
        "the model again ('pipit calibrate MODEL IMAGES')");
  object.only({"pipit_precision_plan", "model", "model_hash", "preprocess", "method", "percentile", "weights",
               "keep", "tensors", "images", "equalization", "bias_correction", "corrections_hash",
               "histograms",
               // What the document of calibrate --json has besides.
               "notes", "clipping", "moved", "left_out", "unreadable", "checks", "check"});
  QuantizationPlan plan;
  plan.model = object.text("model");
  plan.model_hash = object.text("model_hash");
  const auto& preprocess = object.at("preprocess");
  if (!preprocess.is_null()) plan.preprocess = preprocess.dump();
  plan.method = method_from(object);
  const std::string weights = object.text("weights");
  if (weights != "per_channel" && weights != "per_tensor")
    object.wrong("weights", "per_channel or per_tensor");
  plan.weights_per_channel = weights == "per_channel";
  images_from(object, plan);
  tensors_from(object, plan);
  keep_from(object, plan);
  corrections_from(object, plan);
  return plan;
}

}  // namespace

QuantizationPlan quantization_plan_from_json(std::string_view text) {
  JsonObject::Json json;
  try {
    json = parse_json(text, kMaxLevels);
  } catch (const Error& e) {
    fail("not a quantization plan: {}", e.what());
  }
  return plan_from(json);
}

QuantizationPlan read_quantization_plan(const std::filesystem::path& path) {
  const std::string text = read_file(path, kMaxBytes);
  try {
    return quantization_plan_from_json(text);
  } catch (const Error& e) {
    fail("{}: {}", path.string(), e.what());
  }
}

}  // namespace pipit::internal
