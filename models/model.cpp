#include "models/model.h"

#include <fmt/format.h>

#include <filesystem>

#include "engine/base/error.h"
#include "engine/base/file.h"
#include "engine/platform/float_mode.h"
#include "models/catalogue.h"
#include "models/embedded.h"
#include "models/fetched_model.h"
#include "models/published.h"
#include "models/resnet.h"
#include "models/score_kind.h"

namespace pipit::internal {

namespace {

// What is wrong with a value is kept: a user may give another.
template <typename Read>
void read_metadata(const std::map<std::string, std::string>& metadata, std::string_view key, Model& model,
                   const Read& read) {
  const auto found = metadata.find(std::string(key));
  if (found == metadata.end()) return;
  try {
    read(found->second);
  } catch (const Error& e) {
    model.metadata_errors.emplace(key, fmt::format("{}: metadata {}: {}", model.name, key, e.what()));
  }
}

// `file`: where it lies; empty for a model in memory.
Model from_onnx(std::string name, OnnxModel onnx, const std::filesystem::path& file) {
  Model model;
  model.name = std::move(name);
  model.graph = std::move(onnx.graph);
  model.fixed_batch = !onnx.symbolic_batch;
  model.widened = std::move(onnx.widened);
  if (!model.graph.outputs().empty()) model.scores = score_kind(model.graph);
  read_metadata(onnx.metadata, kLabelsKey, model,
                [&](const std::string& text) { model.labels = labels_from_text(text, "labels"); });
  read_metadata(onnx.metadata, kPreprocessKey, model,
                [&](const std::string& json) { model.preprocess = preprocess_from_json(json); });
  read_metadata(onnx.metadata, kScoresKey, model, [&](const std::string& value) {
    const std::optional<ScoreKind> kind = find_score_kind(value);
    if (!kind) fail("'{}' is none of {}", value, score_kind_list());
    model.scores = *kind;
  });
  Published others = published(onnx.metadata, file);
  if (model.labels.empty() && !onnx.metadata.contains(std::string(kLabelsKey))) {
    model.labels = std::move(others.labels);
    model.labels_from = std::move(others.labels_from);
  }
  if (!onnx.metadata.contains(std::string(kPreprocessKey))) {
    model.preprocess = others.preprocess;
    model.preprocess_from = std::move(others.preprocess_from);
    if (!others.problem.empty())
      model.metadata_errors.emplace(kPreprocessKey, fmt::format("{}: {}", model.name, others.problem));
  }
  model.unread = std::move(onnx.unread);
  model.metadata = std::move(onnx.metadata);
  return model;
}

}  // namespace

void need_metadata(const Model& model, std::string_view key) {
  const auto error = model.metadata_errors.find(std::string(key));
  if (error == model.metadata_errors.end()) return;
  fail("{}; give it as an option instead, or store another with pipit annotate", error->second);
}

Model parse_model(std::span<const std::byte> onnx, const std::string& name, const OnnxOptions& options) {
  const ScopedFloatMode mode;
  return from_onnx(name, naming(name, [&] { return parse_onnx(onnx, {}, options); }), {});
}

Model load_model(const std::string& name, const OnnxOptions& options) {
  const ScopedFloatMode mode;
  const NamedModel* named = find_named_model(name);
  if (named == nullptr) {
    if (!is_missing(name)) return from_onnx(name, read_onnx(name, options), name);
    fail("{}: there is no such file, and no model of that name ({})", name, named_model_list());
  }
  if (named->origin == ModelOrigin::embedded) return parse_model(resnet20_cifar10_onnx(), name, options);
  if (named->origin == ModelOrigin::fetched) {
    const FetchedFile file = read_fetched_model(name, fetched_model_path(name));
    if (file.state == FetchedState::missing)
      fail("{} is not on this machine yet: pipit fetch {}", name, name);
    if (file.state == FetchedState::blocked) fail("{}", file.problem);
    if (file.state == FetchedState::broken) fail("{}; repair it: pipit fetch {}", file.problem, name);
    return parse_model(std::as_bytes(std::span(file.content)), name, options);
  }
  if (options.batch < 1) fail("{}: batch {} must be at least 1", name, options.batch);
  Model model;
  model.name = name;
  model.graph =
      build_resnet(name == "resnet18" ? ResnetDepth::resnet18 : ResnetDepth::resnet50, options.batch);
  return model;
}

}  // namespace pipit::internal
