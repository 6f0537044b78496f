/// @file
/// Models as INT8 files, and as files with weights in 8 or 4 bits.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pipit/accuracy.h"
#include "pipit/classifier.h"
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

/// How weights become integers.
enum class Rounding : std::uint8_t {
  nearest,       ///< each to the nearest step of its scale
  second_order,  ///< so that the outputs of each layer on images change least (docs/quantization.md)
};

/// As the command and QuantizedFile::json have it: "nearest" or "second-order".
PIPIT_API std::string_view rounding_name(Rounding rounding);

/// How a quantized file is written.
struct QuantizeOptions {
  /// Precision::int8, or Precision::w8, Precision::w4 or W4: weights of fully connected layers and 1x1 convolutions in
  /// 8 or 4 bits, which compute in f32. The options from `keep` to `weight_bits` are for Precision::int8.
  ModelPrecision precision = Precision::int8;
  /// How the model is read, and the threads that round its weights; its other members have no part in it. Without a
  /// batch that stays open where the model leaves it open.
  LoadOptions load = {};
  /// Layers that stay in floating point besides those that the plan keeps, or do not, as Int8::keep.
  std::vector<std::string> keep = {};
  QuantizeTarget target = QuantizeTarget::pipit;  ///< what reads the file
  /// i8 with zero point 0 instead of u8 with 128; both hold the same values. TensorRT has only the former, so that its
  /// files always have it. Refused for OpenVINO, which computes a Concat of them wrongly (2026.4).
  bool signed_activations = false;
  /// For Precision::int8: the bits of weights, 8 or 4. With 4 they are in [-8, 7], one scale for each output channel,
  /// and computed with as those of 8 bits are, so that the file is smaller and no run faster. The smallest layers,
  /// which hold a tenth of the weights, and rows of fewer than 32 (depthwise convolutions) keep 8. For
  /// QuantizeTarget::pipit and plans with scales per channel.
  int weight_bits = 8;
  /// How weights become integers. Unset: Rounding::second_order where there are images, else Rounding::nearest.
  std::optional<Rounding> rounding = {};
  /// For Rounding::second_order: images or arrays, or folders of them, of the kind that the model will see; classes
  /// do not matter.
  std::vector<std::filesystem::path> images = {};
  /// How they are prepared. Without any option: as the images of the plan, else as the model stores.
  PreprocessOptions preprocess = {};
  /// Number of images to use, at even intervals in the list; 0: as many as fit in memory.
  std::int64_t limit = 0;
  /// Throw Error for the first image or folder that cannot be used, instead of excluding it.
  bool strict = false;
  StageProgress progress = {};  ///< "reading", with images "rounding", "quantizing" and "writing"
};

/// What rounding costs a layer: the change of its outputs on the images, as a share of their variance.
struct RoundedLayer {
  std::string name;    ///< in the model
  double nearest = 0;  ///< with Rounding::nearest
  double rounded = 0;  ///< in the file
};

/// What was written.
struct QuantizedFile {
  int int8_layers = 0;                    ///< layers that compute in INT8
  int stored_layers = 0;                  ///< layers that compute in f32 with weights in 8 or 4 bits
  int float_layers = 0;                   ///< convolutions and fully connected layers that are neither
  std::int64_t bytes = 0;                 ///< size of the file
  Rounding rounding = Rounding::nearest;  ///< of the weights
  std::int64_t images = 0;                ///< that they were rounded on
  std::vector<ExcludedImage> excluded;    ///< that could not be used
  std::vector<RoundedLayer> rounded;      ///< with Rounding::second_order: layers, in the order of the model
  std::vector<std::string> notes;         ///< notes for the user
  std::string json;                       ///< as `pipit quantize --json` writes it
};

/// Writes a model as standard ONNX.
///
/// Precision::int8: with a plan's scales (opset 13, or a later one that has all layers: QuantizeLinear and
/// DequantizeLinear around the layers in INT8, weights and biases as integers; opset 21 for weights in 4 bits). pipit
/// runs the file without a plan. For QuantizeTarget::pipit with Rounding::nearest it computes the bits that
/// Precision::int8 with the plan gives; files for other targets may round values next to a tie otherwise.
/// Precision::w8 and w4: with DequantizeLinear in blocks (opset 21) of int8 or int4 weights, which pipit runs on the
/// CPU as these precisions do, on a GPU with Precision::fp16; `plan` is empty.
///
/// Rounding::second_order runs the model on images, in fp32 on the CPU, layer after layer; the same images give the
/// same file for any number of threads. Throws Error for a plan of another model, for files that cannot be read or
/// written, where no image can be used, and for an `output` that is the model, the plan or an image, or what pipit
/// keeps; UnsupportedError for a model that is quantized already or has no layer that could be; ArgumentError for
/// options that contradict each other. May be called from any thread.
PIPIT_API QuantizedFile quantize(const std::string& model, const std::filesystem::path& plan,
                                 const std::filesystem::path& output, const QuantizeOptions& options = {});

}  // namespace pipit::tools
