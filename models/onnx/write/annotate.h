// Metadata of an ONNX file: changing it, and nothing else.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace pipit::internal {

/// The model with these entries of metadata_props instead of those of the same keys that it has. Every other byte is
/// copied as it is, so also what this reader does not know. Throws Error where `model` is not made of protobuf fields.
std::string with_metadata(std::string_view model, const std::map<std::string, std::string>& metadata);

/// The files with payloads of an ONNX file's tensors, relative to its folder, each once. Throws Error for locations
/// outside of it and where the file is no model.
std::vector<std::filesystem::path> external_files(const std::filesystem::path& model);

}  // namespace pipit::internal
