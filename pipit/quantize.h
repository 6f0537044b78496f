/// @file
/// Models as INT8 files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "pipit/compiled_model.h"
#include "pipit/export.h"

namespace pipit::tools {

/// How a quantized file is written.
struct QuantizeOptions {
  /// How the model is read; its other members have no part in it. Without a batch that stays open where the model
  /// leaves it open.
  LoadOptions load = {};
  /// Layers that stay in floating point besides those that the plan keeps, or do not, as Int8::keep.
  std::vector<std::string> keep = {};
  bool signed_activations =
      false;  ///< i8 with zero point 0 instead of u8 with 128; both hold the same values
};

/// What was written.
struct QuantizedFile {
  int int8_layers = 0;             ///< layers that compute in INT8
  int float_layers = 0;            ///< convolutions and fully connected layers that do not
  std::int64_t bytes = 0;          ///< size of the file
  std::vector<std::string> notes;  ///< notes for the user
  std::string json;                ///< as `pipit quantize --json` writes it
};

/// Writes a model with a plan's scales as standard ONNX (opset 13, or a later one that has all layers: QuantizeLinear
/// and DequantizeLinear around the layers in INT8, weights and biases as integers). pipit runs the file without a plan,
/// with the bits that Precision::int8 with the plan gives. Throws Error for a plan of another model, for files that
/// cannot be read or written, and for an `output` that is the model or the plan, or what pipit keeps; UnsupportedError
/// for a model that is quantized already. May be called from any thread.
PIPIT_API QuantizedFile quantize(const std::string& model, const std::filesystem::path& plan,
                                 const std::filesystem::path& output, const QuantizeOptions& options = {});

}  // namespace pipit::tools
