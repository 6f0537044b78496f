// Bytes -> ModelProto, with the weights left where they lie.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "onnx.pb.h"

namespace pipit::internal::onnx {

/// The raw_data of a tensor, where the parser left it.
struct RawData {
  std::uint64_t size = 0;
  /// Copies all of it into `size` bytes. Throws Error when the file has become shorter meanwhile.
  std::function<void(std::span<std::byte>)> read;
};

/// A parsed model. The graph's initializers have no raw_data: nearly all bytes of a model are there, and each goes
/// straight from the file into its tensor. Files are read, not mapped: a mapped file that is cut short kills its
/// reader.
struct ParsedModel {
  onnx_pb::ModelProto proto;
  std::vector<std::optional<RawData>> raw;  ///< one per initializer of the graph
};

/// Throws Error where the bytes are no model, or cut short; what they are instead is said where it is known.
ParsedModel parse_model(const std::filesystem::path& file);
/// The bytes must outlive the result.
ParsedModel parse_model(std::span<const std::byte> bytes);

}  // namespace pipit::internal::onnx
