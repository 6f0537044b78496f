// What others than pipit say of a model's labels and preprocessing: in its metadata (Ultralytics) and in files beside
// it (Hugging Face, timm).
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "models/image/preprocess.h"
#include "models/labels.h"

namespace pipit::internal {

/// What was found, with where it is from: "config.json", "the metadata of Ultralytics".
struct Published {
  Labels labels;
  std::string labels_from;
  std::optional<Preprocess> preprocess;
  std::string preprocess_from;
  std::string
      problem;  ///< why preprocessing that is there could not be taken; empty: it was, or there is none
};

/// `metadata`: of the file, whose names, imgsz and task Ultralytics writes. Files are config.json and
/// preprocessor_config.json in the folder of `model`, or in the one above a folder "onnx" or "onnx_..."; with an empty
/// path none are looked for. Files of these names that say something else are passed over.
Published published(const std::map<std::string, std::string>& metadata, const std::filesystem::path& model);

/// The names in {0: 'cat', 1: "it's"}, as Python prints a dict, by their numbers; empty for other text.
Labels labels_of_dict(std::string_view text);

}  // namespace pipit::internal
