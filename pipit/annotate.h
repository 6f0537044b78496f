/// @file
/// What a model stores about itself: labels, preprocessing, the kind of its scores.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "pipit/classifier.h"
#include "pipit/export.h"
#include "pipit/progress.h"

namespace pipit::tools {

/// What is stored: of `classifier` the labels, the preprocessing and the kind of the scores that are set, as well as
/// how the model is read.
struct AnnotateOptions {
  ClassifierOptions classifier = {};  ///< its threshold has no part in it
  StageProgress progress = {};        ///< "reading" and "writing"
};

/// What was written.
struct AnnotatedFile {
  std::int64_t labels = 0;         ///< how many were stored
  std::string preprocessing;       ///< in words; empty where none was stored
  std::string scores;              ///< the name of their kind; empty where none was stored
  std::int64_t bytes = 0;          ///< size of the file
  std::vector<std::string> notes;  ///< notes for the user
  std::string json;                ///< all of it, as `pipit annotate --json` writes it (docs/json.md)
};

/// Writes a copy of an ONNX file with these entries in its metadata (docs/metadata.md); all other bytes stay as they
/// are. If `output` is in another folder, weights in separate files are copied there unless they exist already. What a
/// call that fails has written goes again. Throws Error for a model that cannot be read, options that do not fit it,
/// and files that cannot be written or would replace another; ArgumentError where nothing is to be stored, and for a
/// model that is none of a file. May be called from any thread.
PIPIT_API AnnotatedFile annotate(const std::string& model, const std::filesystem::path& output,
                                 const AnnotateOptions& options);

}  // namespace pipit::tools
