/// @file
/// For tools: INT8 scales from images, quantized ONNX files, times layer by layer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pipit/classifier.h"

/// The functions of `pipit calibrate`, `quantize` and `profile`. All may be called from any thread.
namespace pipit::tools {

/// Called as images are done, in any thread, one call at a time.
using Progress = std::function<void(std::int64_t done, std::int64_t total)>;

/// How far the range of a tensor reaches.
enum class RangeMethod : std::uint8_t {
  minmax,      ///< to the largest magnitude
  percentile,  ///< to CalibrateOptions::percentile percent of the magnitudes
  entropy,     ///< where the KL divergence between both distributions is least
  mse,         ///< where the mean squared error of rounding and clipping is least
};

/// How scales are found.
struct CalibrateOptions {
  RangeMethod method = RangeMethod::mse;  ///< how far ranges reach
  double percentile = 99.99;              ///< for RangeMethod::percentile, in (0, 100]
  bool per_channel_weights = true;        ///< a scale per output channel; else one for all weights of a layer
  bool equalize = false;                  ///< cross-layer equalization (Nagel et al. 2019, section 4.1)
  bool bias_correction = false;           ///< bias correction (the same, section 4.2)
  std::vector<std::string> keep;          ///< as LoadOptions::keep; the plan says so
  PreprocessOptions preprocess;           ///< how the images are prepared
  int threads = 0;                        ///< as LoadOptions::threads
  Progress progress;                      ///< may be empty
  /// Throw Error for the first image or folder that cannot be used, instead of excluding it.
  bool strict = false;
};

/// Runs a model in fp32 on the CPU over images (files, or folders of them; a hundred of all kinds are a good start) and
/// writes the ranges and INT8 scales of its tensors to `plan`, a JSON file for LoadOptions::plan
/// (docs/quantization-plan.md). The same kernels run every time, so the same images give the same plan. Returns what a
/// user should know, as which images were excluded because they cannot be used, and how many there are of formats that
/// are not read. An image that is given twice counts once, copies count each. Throws Error where no image can be used,
/// for a model that cannot be read and a file that cannot be written, which is there in full or not at all; before
/// anything runs, for a `plan` that is, under whatever name, the model, one of the images or what pipit keeps in its
/// cache; UnsupportedError for a model that is quantized already or has nothing to quantize.
std::vector<std::string> calibrate(const std::string& model, std::span<const std::filesystem::path> images,
                                   const std::filesystem::path& plan, const CalibrateOptions& options = {});

/// How a quantized file is written.
struct QuantizeOptions {
  /// Symbolic dimensions, shapes and batch, as in LoadOptions; its other members have no part in it.
  LoadOptions load;
  std::vector<std::string> keep;  ///< as LoadOptions::keep
  bool signed_activations =
      false;  ///< i8 with zero point 0 instead of u8 with 128; both hold the same values
};

/// What was written.
struct QuantizedFile {
  int int8_layers = 0;             ///< layers that compute in INT8
  int float_layers = 0;            ///< convolutions and fully connected layers that do not
  std::int64_t bytes = 0;          ///< size of the file
  std::vector<std::string> notes;  ///< what a user should know
};

/// Writes a model with a plan's scales as standard ONNX (opset 13, or a later one that has all layers: QuantizeLinear
/// and DequantizeLinear around the layers in INT8, weights and biases as integers). pipit runs the file without a plan,
/// with the bits that Precision::int8 with the plan gives. Throws Error for a plan of another model, for files that
/// cannot be read or written, and for an `output` that is the model or the plan, or what pipit keeps; UnsupportedError
/// for a model that is quantized already.
QuantizedFile quantize(const std::string& model, const std::filesystem::path& plan,
                       const std::filesystem::path& output, const QuantizeOptions& options = {});

/// One kernel call of a run: a layer, with what its kernel computes besides.
struct LayerTime {
  std::string name;        ///< of the layer in the model
  std::string type;        ///< Conv, Gemm, Pool, ...
  std::string kernel;      ///< what ran it; "cpu:NAME" for a layer of a GPU's model that runs on the CPU
  std::string geometry;    ///< for people: "3x3 s2 p1 +relu"
  Shape input;             ///< of its first input
  Shape output;            ///< of its first output
  std::int64_t macs = 0;   ///< multiply-accumulates
  std::int64_t bytes = 0;  ///< inputs, outputs and weights, each once: what must move at least
  double median_ms = 0;    ///< of the runs
};

/// Where the time of a model goes. Medians over runs, in milliseconds.
struct ModelProfile {
  int runs = 0;                   ///< that were timed
  std::vector<LayerTime> layers;  ///< in the order in which they run
  double layers_ms = 0;           ///< the sum of a run's layers
  double end_to_end_ms = 0;       ///< a run; on a GPU with copies in and out
  double residual_ms = 0;         ///< what no layer explains
  double graph_ms = 0;            ///< on a GPU: device time of one replay of the captured graph; 0 on a CPU
};

/// How a profile is taken.
struct ProfileOptions {
  int runs = 50;    ///< timed runs, at least 1
  int warmup = 10;  ///< runs before them
  int device = 0;   ///< as CompiledModel::session()
};

/// Times every layer of a model on `inputs`, one array for each of its inputs as ModelSession::run() takes them; on
/// none at all: on standard normal numbers, always the same. Throws what ModelSession::run() does, and Error when runs
/// < 1.
ModelProfile profile(const CompiledModel& model, std::span<const ArrayView> inputs = {},
                     const ProfileOptions& options = {});

}  // namespace pipit::tools
