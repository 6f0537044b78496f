#include "models/model.h"

#include <filesystem>

#include "models/embedded.h"
#include "models/resnet.h"

namespace pipit {

namespace {

Model from_onnx(std::string name, OnnxModel onnx) {
  Model model;
  model.name = std::move(name);
  model.graph = std::move(onnx.graph);
  model.fixed_batch = !onnx.symbolic_batch;
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
  model.metadata = std::move(onnx.metadata);
  return model;
}

}  // namespace

const std::vector<BuiltinModel>& builtin_models() {
  static const std::vector<BuiltinModel> models = {
      {"resnet20-cifar10", "ResNet-20 trained on CIFAR-10 (32x32 pixels, 10 classes)"},
      {"resnet18", "ResNet-18 for 224x224 pixels, seeded random weights, for timing"},
      {"resnet50", "ResNet-50 for 224x224 pixels, seeded random weights, for timing"},
  };
  return models;
}

Model load_model(const std::string& name, const OnnxOptions& options) {
  if (name == "resnet20-cifar10") return from_onnx(name, parse_onnx(resnet20_cifar10_onnx(), {}, options));
  if (name == "resnet18" || name == "resnet50") {
    if (options.batch < 1) fail("{}: batch {} must be at least 1", name, options.batch);
    Model model;
    model.name = name;
    model.graph =
        build_resnet(name == "resnet18" ? ResnetDepth::resnet18 : ResnetDepth::resnet50, options.batch);
    return model;
  }
  if (!std::filesystem::exists(name)) {
    std::string names;
    for (const BuiltinModel& m : builtin_models())
      names += fmt::format("{}{}", names.empty() ? "" : ", ", m.name);
    fail("{}: there is no such file, and no built-in model of that name ({})", name, names);
  }
  return from_onnx(name, read_onnx(name, options));
}

}  // namespace pipit
