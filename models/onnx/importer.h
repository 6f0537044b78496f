// ModelProto -> OnnxModel.
#pragma once

#include "models/onnx/reader.h"
#include "onnx.pb.h"

namespace pipit::onnx {

/// Converts a parsed model; its tensors are released on the way. Messages do not name the file. Throws as
/// read_onnx does.
OnnxModel import_model(onnx_pb::ModelProto model, const std::filesystem::path& folder,
                       const OnnxOptions& options);

}  // namespace pipit::onnx
