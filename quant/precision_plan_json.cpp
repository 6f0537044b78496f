// The JSON form of a precision plan.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/error.h"
#include "quant/hash.h"
#include "quant/precision_plan.h"

namespace pipit {

namespace {

using Json = nlohmann::ordered_json;

constexpr int kVersion = 1;
constexpr std::uintmax_t kMostBytes = std::uintmax_t{1} << 30;
// A plan has 5 levels. Writing JSON takes stack for each level, so brackets without end would kill the process.
constexpr int kMostLevels = 64;

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

// Reads typed members and names them in errors.
class Object {
 public:
  Object(const Json& json, std::string where) : json_(json), where_(std::move(where)) {
    if (!json.is_object()) fail("{} must be a JSON object", where_);
  }
  bool has(const char* key) const { return json_.contains(key); }
  const Json& at(const char* key) const {
    const auto found = json_.find(key);
    if (found == json_.end()) fail("{}: '{}' is missing", where_, key);
    return *found;
  }
  std::string text(const char* key) const {
    if (!at(key).is_string()) wrong(key, "a string");
    return at(key).get<std::string>();
  }
  double number(const char* key) const {
    const Json& value = at(key);
    if (!value.is_number() || !std::isfinite(value.get<double>())) wrong(key, "a finite number");
    return value.get<double>();
  }
  float real(const char* key) const {
    const auto value = static_cast<float>(number(key));
    if (!std::isfinite(value)) wrong(key, "a number that fits 32-bit floating point");
    return value;
  }
  std::int64_t integer(const char* key, std::int64_t low, std::int64_t high) const {
    const Json& value = at(key);
    // Counts above 2^63 are unsigned in JSON; none is valid here.
    if (!value.is_number_integer() || (value.is_number_unsigned() && value.get<std::uint64_t>() >> 63 != 0))
      wrong(key, "an integer");
    const auto n = value.get<std::int64_t>();
    if (n < low || n > high) wrong(key, fmt::format("an integer from {} to {}", low, high).c_str());
    return n;
  }
  const Json& array(const char* key) const {
    if (!at(key).is_array()) wrong(key, "an array");
    return at(key);
  }
  [[noreturn]] void wrong(const char* key, const char* expected) const {
    fail("{}: '{}' must be {}, not {}", where_, key, expected, at(key).dump().substr(0, 80));
  }
  const std::string& where() const { return where_; }

 private:
  const Json& json_;
  std::string where_;
};

ThresholdOptions method_from(const Object& plan) {
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
  const Object object(json, fmt::format("histogram of '{}'", tensor.name));
  Histogram::State state;
  state.min = tensor.min;
  state.max = tensor.max;
  state.exponent = static_cast<int>(object.integer("exponent", -200, 200));
  constexpr std::int64_t kMost = std::int64_t{1} << 62;
  state.zeros = static_cast<std::uint64_t>(object.integer("zeros", 0, kMost));
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

// People edit scales. One that has nothing to do with the values observed is a slip, and would silently make every value
// of the tensor 0 or clip it.
void check_scale(const Object& object, const TensorScale& tensor) {
  constexpr double kMostApart = 1024;
  if (!std::isnormal(tensor.scale) || tensor.scale < 0)
    object.wrong("scale", "a positive, normal 32-bit number");
  if (tensor.min > tensor.max) object.wrong("min", "at most 'max'");
  const double largest = std::max(-static_cast<double>(tensor.min), static_cast<double>(tensor.max));
  if (tensor.scale == default_scale(largest)) return;
  const double reach = 127.0 * tensor.scale;
  if (reach > kMostApart * largest || reach * kMostApart < largest)
    object.wrong("scale",
                 fmt::format("near {:.4g} / 127, the largest magnitude observed (within a factor of {})",
                             largest, kMostApart)
                     .c_str());
}

TensorScale tensor_from(const Json& json, std::size_t index) {
  const std::string name = Object(json, fmt::format("tensor {}", index)).text("name");
  const Object object(json, fmt::format("tensor '{}'", name));
  TensorScale tensor;
  tensor.name = name;
  tensor.min = object.real("min");
  tensor.max = object.real("max");
  tensor.threshold = object.number("threshold");
  tensor.scale = object.real("scale");
  check_scale(object, tensor);
  tensor.zero_point = static_cast<int>(object.integer("zero_point", 0, 0));
  tensor.clipped = object.number("clipped");
  return tensor;
}

// Factors and deltas are hardly edited by hand, and a slip in one would be hard to find.
std::string corrections_hash(const PrecisionPlan& plan) {
  std::string bytes;
  const auto add = [&](std::string_view name, const std::vector<float>& values) {
    bytes += fmt::format("{} {}\n", name.size(), name);
    bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  };
  for (const PrecisionPlan::Equalised& pair : plan.equalised) {
    add(pair.first, {});
    add(pair.second, pair.factors);
  }
  for (const PrecisionPlan::Corrected& node : plan.corrected) add(node.node, node.deltas);
  return hash_bytes(std::as_bytes(std::span(bytes)));
}

std::vector<float> floats_from(const Json& json, const std::string& where) {
  if (!json.is_array()) fail("{} must be an array of numbers", where);
  std::vector<float> values;
  for (const Json& entry : json) {
    const double value = entry.is_number() ? entry.get<double>() : std::nan("");
    values.push_back(static_cast<float>(value));
    if (!std::isfinite(values.back())) fail("{}: {} is no finite number", where, entry.dump().substr(0, 80));
  }
  return values;
}

void corrections_from(const Object& object, PrecisionPlan& plan) {
  if (object.has("equalisation")) {
    for (const Json& entry : object.array("equalisation")) {
      const Object pair(entry, fmt::format("equalisation {}", plan.equalised.size()));
      plan.equalised.push_back({pair.text("first"), pair.text("second"),
                                floats_from(pair.at("factors"), pair.where() + ": 'factors'")});
      for (const float factor : plan.equalised.back().factors) {
        if (!std::isnormal(factor) || factor < 0) fail("{}: factor {} is not positive", pair.where(), factor);
      }
    }
  }
  if (object.has("bias_correction")) {
    if (!object.at("bias_correction").is_object())
      object.wrong("bias_correction", R"(an object {"node name": [numbers]})");
    for (const auto& [node, deltas] : object.at("bias_correction").items())
      plan.corrected.push_back({node, floats_from(deltas, fmt::format("bias correction of '{}'", node))});
  }
  if (plan.equalised.empty() && plan.corrected.empty()) return;
  const std::string hash = corrections_hash(plan);
  if (object.text("corrections_hash") != hash)
    fail(
        "'corrections_hash' is {}, but that of the factors and deltas is {}: they were changed; calibrate "
        "again",
        object.text("corrections_hash"), hash);
}

PrecisionPlan plan_from(const Json& json) {
  const Object object(json, "a precision plan");
  object.integer("pipit_precision_plan", kVersion, kVersion);
  PrecisionPlan plan;
  plan.model = object.text("model");
  plan.model_hash = object.text("model_hash");
  plan.preprocess = object.at("preprocess").dump();
  plan.method = method_from(object);
  const std::string weights = object.text("weights");
  if (weights != "per_channel" && weights != "per_tensor")
    object.wrong("weights", "per_channel or per_tensor");
  plan.weights_per_channel = weights == "per_channel";
  const Object images(object.at("images"), "'images'");
  if (!images.at("files").is_object()) images.wrong("files", R"(an object {"path": "hash"})");
  for (const auto& [path, hash] : images.at("files").items()) {
    if (!hash.is_string()) fail("'images': the hash of '{}' must be a string", path);
    plan.images.push_back({path, hash.get<std::string>()});
  }
  std::set<std::string> names;
  for (const Json& entry : object.array("tensors")) {
    plan.tensors.push_back(tensor_from(entry, plan.tensors.size()));
    if (!names.insert(plan.tensors.back().name).second)
      fail("tensor '{}' is there twice", plan.tensors.back().name);
  }
  if (!object.at("keep").is_object()) object.wrong("keep", R"(an object {"node name": "fp32" or "fp16"})");
  for (const auto& [node, precision] : object.at("keep").items()) {
    if (precision != "fp32" && precision != "fp16")
      fail("'keep': the precision of '{}' must be fp32 or fp16, not {}", node,
           precision.dump().substr(0, 80));
    plan.keep.push_back({node, precision.get<std::string>()});
  }
  corrections_from(object, plan);
  if (object.has("histograms")) {
    const Object histograms(object.at("histograms"), "'histograms'");
    for (TensorScale& tensor : plan.tensors)
      tensor.histogram = histogram_from(histograms.at(tensor.name.c_str()), tensor);
  }
  return plan;
}

}  // namespace

std::string to_json(const PrecisionPlan& plan, bool with_histograms) {
  Json json;
  json["pipit_precision_plan"] = kVersion;
  json["model"] = plan.model;
  json["model_hash"] = plan.model_hash;
  json["preprocess"] = Json::parse(plan.preprocess);
  json["method"] = threshold_method_name(plan.method.method);
  if (plan.method.method == ThresholdMethod::percentile) json["percentile"] = plan.method.percentile;
  json["weights"] = plan.weights_per_channel ? "per_channel" : "per_tensor";
  json["keep"] = Json::object();
  for (const PrecisionPlan::Kept& kept : plan.keep) json["keep"][kept.node] = kept.precision;
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
  json["images"] = {
      {"count", plan.images.size()}, {"hash", image_list_hash(plan.images)}, {"files", Json::object()}};
  for (const CalibrationImage& image : plan.images) json["images"]["files"][image.path] = image.hash;
  for (const PrecisionPlan::Equalised& pair : plan.equalised)
    json["equalisation"].push_back(
        {{"first", pair.first}, {"second", pair.second}, {"factors", pair.factors}});
  for (const PrecisionPlan::Corrected& node : plan.corrected)
    json["bias_correction"][node.node] = node.deltas;
  if (!plan.equalised.empty() || !plan.corrected.empty()) json["corrections_hash"] = corrections_hash(plan);
  std::string text = json.dump(2, ' ', false, Json::error_handler_t::replace);
  if (!with_histograms) return text + "\n";
  // Numbers that nobody reads: one line per tensor instead of one per number.
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

PrecisionPlan precision_plan_from_json(std::string_view text) {
  const auto shallow = [](int depth, Json::parse_event_t, Json&) {
    if (depth > kMostLevels)
      fail("not a precision plan: its JSON is nested deeper than {} levels", kMostLevels);
    return true;
  };
  try {
    return plan_from(Json::parse(text, shallow));
  } catch (const nlohmann::json::exception& e) {
    fail("not a precision plan: {}", e.what());
  }
}

PrecisionPlan read_precision_plan(const std::filesystem::path& path) {
  std::error_code error;
  const std::uintmax_t bytes = std::filesystem::file_size(path, error);
  if (error) fail("{}: {}", path.string(), error.message());
  if (bytes > kMostBytes)
    fail("{}: {} bytes; a precision plan has at most {}", path.string(), bytes, kMostBytes);
  std::ifstream file(path, std::ios::binary);
  std::string text(bytes, '\0');
  if (!file.read(text.data(), static_cast<std::streamsize>(bytes))) fail("{}: cannot be read", path.string());
  try {
    return precision_plan_from_json(text);
  } catch (const Error& e) {
    fail("{}: {}", path.string(), e.what());
  }
}

}  // namespace pipit
