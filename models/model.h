// A model as the commands use it: a graph, its labels and its preprocessing.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/graph/graph.h"
#include "models/image/preprocess.h"
#include "models/labels.h"
#include "models/onnx/read/reader.h"
#include "pipit/scores.h"

namespace pipit::internal {

struct Model {
  std::string name;                             ///< as given: a built-in name or a path
  Graph graph;                                  ///< as read, before any rewrite
  std::map<std::string, std::string> metadata;  ///< all of the file's
  Labels labels;                                ///< from the model's metadata; may be empty
  std::optional<Preprocess> preprocess;         ///< from the model's metadata
  /// Where these are from when not from pipit's own entries: "config.json" (models/published.h).
  std::string labels_from, preprocess_from;
  ScoreKind scores = ScoreKind::logits;  ///< from the model's metadata, else score_kind() of its graph
  /// What of its own keys the metadata says wrongly, and so is missing here: messages by key. Code that needs one of
  /// them calls need_metadata(), unless the user gives it another way.
  std::map<std::string, std::string> metadata_errors;
  std::vector<std::string> unread;  ///< OnnxModel::unread
  bool fixed_batch = false;         ///< the file fixes the batch size
  std::string widened;              ///< OnnxModel::widened
};

/// Throws Error where the metadata of the model says wrongly what stands under `key`.
void need_metadata(const Model& model, std::string_view key);

/// Loads a model by its name (models/catalogue.h; names win over files) or an ONNX file. Throws what read_onnx throws;
/// Error saying what to do when a model was not fetched yet or its file is damaged, and naming all when `name` is
/// neither name nor file.
Model load_model(const std::string& name, const OnnxOptions& options);

/// The same from the bytes of an ONNX file without external data, called `name`; errors begin with it.
Model parse_model(std::span<const std::byte> onnx, const std::string& name, const OnnxOptions& options);

}  // namespace pipit::internal
