// Tensor payloads that lie in a file next to the model.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

#include "onnx.pb.h"

namespace pipit::internal::onnx {

/// A checked range of a file.
struct ExternalRange {
  std::filesystem::path file;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

/// Resolves the external_data entries of a tensor against the model's folder. Throws Error when the location
/// leaves the folder (absolute, "..", or through a symbolic link), is not a regular file, or the range is
/// not inside the file.
ExternalRange resolve_external(const onnx_pb::TensorProto& proto, const std::filesystem::path& folder);

/// Fills `target` (range.length bytes).
void read_external(const ExternalRange& range, std::span<std::byte> target);

}  // namespace pipit::internal::onnx
