// ParsedModel -> OnnxModel.
#pragma once

#include "models/onnx/parsed_model.h"
#include "models/onnx/read/reader.h"

namespace pipit::internal::onnx {

/// Converts a parsed model with external data from `folders` (resolve_external()); its tensors are released
/// meanwhile. Messages do not name the file. Throws as read_onnx does.
OnnxModel import_model(ParsedModel model, const std::vector<std::filesystem::path>& folders,
                       const OnnxOptions& options);

}  // namespace pipit::internal::onnx
