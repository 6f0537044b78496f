#include "models/model.h"

#include <filesystem>

#include "engine/base/error.h"
#include "models/catalogue.h"
#include "models/embedded.h"
#include "models/resnet.h"
#include "models/score_kind.h"

namespace pipit {

namespace {

Model from_onnx(std::string name, OnnxModel onnx) {
  Model model;
  model.name = std::move(name);
  model.graph = std::move(onnx.graph);
  model.fixed_batch = !onnx.symbolic_batch;
  model.widened = std::move(onnx.widened);
  if (const auto labels = onnx.metadata.find(std::string(kLabelsKey)); labels != onnx.metadata.end()) {
    model.labels = labels_from_text(labels->second, model.name + " metadata " + std::string(kLabelsKey));
  }
  if (const auto json = onnx.metadata.find(std::string(kPreprocessKey)); json != onnx.metadata.end()) {
    try {
      model.preprocess = preprocess_from_json(json->second);
    } catch (const Error& e) {
      fail("{}: metadata {}: {}", model.name, kPreprocessKey, e.what());
    }
  }
  if (const auto stored = onnx.metadata.find(std::string(kScoresKey)); stored != onnx.metadata.end()) {
    const std::optional<ScoreKind> kind = find_score_kind(stored->second);
    if (!kind)
      fail("{}: metadata {}: '{}' is none of {}", model.name, kScoresKey, stored->second, score_kind_list());
    model.scores = *kind;
  } else if (!model.graph.outputs().empty()) {
    model.scores = score_kind(model.graph);
  }
  model.metadata = std::move(onnx.metadata);
  return model;
}

}  // namespace

Model parse_model(std::span<const std::byte> onnx, const std::string& name, const OnnxOptions& options) {
  return from_onnx(name, naming(name, [&] { return parse_onnx(onnx, {}, options); }));
}

Model load_model(const std::string& name, const OnnxOptions& options) {
  const NamedModel* named = find_named_model(name);
  if (named == nullptr) {
    if (std::filesystem::exists(name)) return from_onnx(name, read_onnx(name, options));
    fail("{}: there is no such file, and no model of that name ({})", name, named_model_list());
  }
  if (named->origin == ModelOrigin::embedded) return parse_model(resnet20_cifar10_onnx(), name, options);
  if (named->origin == ModelOrigin::fetched) {
    const std::filesystem::path file = fetched_model_path(name);
    if (!std::filesystem::exists(file)) fail("{} is not on this machine yet: pipit fetch {}", name, name);
    return from_onnx(name, read_onnx(file, options));
  }
  if (options.batch < 1) fail("{}: batch {} must be at least 1", name, options.batch);
  Model model;
  model.name = name;
  model.graph =
      build_resnet(name == "resnet18" ? ResnetDepth::resnet18 : ResnetDepth::resnet50, options.batch);
  return model;
}

}  // namespace pipit
