/// @file
/// Models as INT8 files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "pipit/compiled_model.h"
#include "pipit/export.h"
#include "pipit/progress.h"

namespace pipit::tools {

/// What a quantized file is for. The same plan and the same integers in all of them; readers fuse different patterns of
/// QuantizeLinear and DequantizeLinear (docs/deploy.md).
enum class QuantizeTarget : std::uint8_t {
  pipit,        ///< the bits of Precision::int8 with the plan
  tensorrt,     ///< i8 with zero point 0, biases in f32, rounded where TensorRT fuses it into a layer
  onnxruntime,  ///< every layer rounded by itself, also a convolution before its residual is added
  openvino,     ///< biases in f32, rounded after the activation only
};

/// As the command and QuantizedFile::json have it: "pipit", "tensorrt", "onnxruntime" or "openvino".
PIPIT_API std::string_view quantize_target_name(QuantizeTarget target);

/// How a quantized file is written.
struct QuantizeOptions {
  /// How the model is read; its other members have no part in it. Without a batch that stays open where the model
  /// leaves it open.
  LoadOptions load = {};
  /// Layers that stay in floating point besides those that the plan keeps, or do not, as Int8::keep.
  std::vector<std::string> keep = {};
  QuantizeTarget target = QuantizeTarget::pipit;  ///< what reads the file
  /// i8 with zero point 0 instead of u8 with 128; both hold the same values. TensorRT has only the former, so that its
  /// files always have it. Refused for OpenVINO, which computes a Concat of them wrongly (2026.4).
  bool signed_activations = false;
  StageProgress progress = {};  ///< "reading", "quantizing" and "writing"
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
/// for QuantizeTarget::pipit with the bits that Precision::int8 with the plan gives; those for other targets may round
/// values next to a tie otherwise. Throws Error for a plan of another model, for files that cannot be read or written,
/// and for an `output` that is the model or the plan, or what pipit keeps; UnsupportedError for a model that is
/// quantized already; ArgumentError for options that contradict each other. May be called from any thread.
PIPIT_API QuantizedFile quantize(const std::string& model, const std::filesystem::path& plan,
                                 const std::filesystem::path& output, const QuantizeOptions& options = {});

}  // namespace pipit::tools
