// Tensor payloads that lie in a file next to the model.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <vector>

#include "onnx.pb.h"

namespace pipit::internal::onnx {

/// A checked range of a file.
struct ExternalRange {
  std::filesystem::path file;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  bool to_end = false;  ///< the model gives no length
};

/// Where a model finds its external data: the folder of its path, and that of the file which a symbolic link leads to
/// (Hugging Face's cache links model and data to one folder of blobs).
std::vector<std::filesystem::path> external_folders(const std::filesystem::path& model);

/// Resolves the external_data entries of a tensor against these folders, the first that has the file; none: no
/// external data is allowed. Without a length the range goes to the end of the file. Throws Error when the location
/// leaves all of the folders (absolute, "..", or through a symbolic link), is not a regular file, or the range is not
/// inside the file.
ExternalRange resolve_external(const onnx_pb::TensorProto& proto,
                               std::span<const std::filesystem::path> folders);

/// Fills `target` (range.length bytes).
void read_external(const ExternalRange& range, std::span<std::byte> target);

}  // namespace pipit::internal::onnx
