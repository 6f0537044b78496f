// What models are and answer, through the public headers alone: inspect, classify, verify, those that have names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pipit/pipit.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "tests/pipit/models.h"

namespace {

namespace fs = std::filesystem;
namespace tools = pipit::tools;

using nlohmann::ordered_json;
using pipit::ArgumentError;
using pipit::CompiledModel;
using pipit::Error;
using pipit::internal::test::Scratch;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::ThrowsMessage;

constexpr char kModel[] = "resnet20-cifar10";

TEST(Inspect, SaysWhatRunsAndWhy) {
  const CompiledModel model(kModel);
  const tools::InspectedModel found = tools::inspect(model);
  EXPECT_EQ(found.name, kModel);
  EXPECT_THAT(found.labels, SizeIs(10));
  EXPECT_EQ(found.scores, pipit::ScoreKind::logits);
  EXPECT_THAT(found.preprocessing, Not(IsEmpty()));
  EXPECT_EQ(found.arena_bytes, model.arena_bytes());
  EXPECT_LE(found.peak_live_bytes, found.arena_bytes);
  std::int64_t macs = 0;
  bool any_refused = false;
  for (const tools::InspectedLayer& layer : found.layers) {
    EXPECT_EQ(layer.chosen, "order") << layer.name;
    macs += layer.macs;
    any_refused |= !layer.refused.empty();
  }
  EXPECT_EQ(macs, found.macs);
  EXPECT_TRUE(any_refused);
  const ordered_json json = ordered_json::parse(found.json);
  EXPECT_EQ(json["parameters"], found.parameters);
  EXPECT_EQ(json["layers"].size(), found.layers.size());
  EXPECT_FALSE(json["layers"][0].contains("refused"));
  const ordered_json why = ordered_json::parse(tools::inspect(model, {.why = true}).json);
  EXPECT_EQ(why["layers"][0]["refused"].size(), found.layers[0].refused.size());
}

TEST(Models, HaveNames) {
  ASSERT_NE(tools::find_named_model(kModel), nullptr);
  EXPECT_EQ(tools::find_named_model(kModel)->classes, 10);
  EXPECT_EQ(tools::find_named_model("resnet20"), nullptr);
  EXPECT_THAT(tools::named_model_list(), HasSubstr("resnet18, "));
  Scratch cache("models");
  setenv("PIPIT_CACHE_DIR", cache.path().c_str(), 1);
  const tools::ModelList list = tools::list_models();
  unsetenv("PIPIT_CACHE_DIR");
  ASSERT_EQ(list.models.size(), tools::named_models().size());
  for (const tools::ListedModel& listed : list.models)
    EXPECT_EQ(listed.is_here, listed.model.weights != tools::ModelWeights::fetched) << listed.model.name;
  EXPECT_EQ(ordered_json::parse(list.json)["models"].size(), list.models.size());
}

TEST(Models, OfOtherNamesAreNotFetched) {
  EXPECT_THAT(tools::fetch_problem("efficientnet-lite0"), IsEmpty());
  EXPECT_THAT([] { tools::fetch({kModel}); }, ThrowsMessage<ArgumentError>(HasSubstr("is built in")));
  EXPECT_THAT(
      [] {
        tools::fetch({"efficientnet-lite0", "vgg"});
      },
      ThrowsMessage<ArgumentError>(HasSubstr("'vgg' is no model that can be fetched")));
}

TEST(Classify, NamesImagesAndGoesOnAfterAnError) {
  Scratch images("classify");
  images.write("a.bmp", pipit::internal::test::bmp(40, 1));
  images.write("b.bmp", "no image");
  images.write("c.bmp", pipit::internal::test::bmp(40, 2));
  tools::ClassifyOptions how;
  how.classifier.load.device.threads = 1;
  how.top = 3;
  how.profile_runs = 2;
  std::vector<std::string> seen;
  how.image = [&](const tools::ClassifiedImage& image) { seen.push_back(image.path.filename()); };
  const tools::Classification result = tools::classify(kModel, {images.path()}, how);
  EXPECT_THAT(seen, ElementsAre("a.bmp", "b.bmp", "c.bmp"));
  ASSERT_THAT(result.images, SizeIs(3));
  EXPECT_TRUE(result.failed);
  EXPECT_THAT(result.images[1].error, HasSubstr("b.bmp"));
  ASSERT_THAT(result.images[2].top, SizeIs(3));
  EXPECT_GE(result.images[2].top[0].prediction.probability, result.images[2].top[1].prediction.probability);
  EXPECT_FALSE(result.images[2].top[0].yes);
  pipit::Classifier classifier(kModel, how.classifier);
  EXPECT_EQ(classifier.classify(images / "c.bmp", 1).at(0).label, result.images[2].top[0].prediction.label);
  EXPECT_TRUE(result.labelled);
  ASSERT_TRUE(result.profile);
  EXPECT_EQ(result.profile->runs, 2);
  EXPECT_EQ(ordered_json::parse(result.json)["images"][2]["top"].size(), 3U);

  how.image = [](const tools::ClassifiedImage&) { throw std::runtime_error("enough"); };
  EXPECT_THAT([&] { tools::classify(kModel, {images.path()}, how); },
              ThrowsMessage<std::runtime_error>("enough"));
  how.top = 0;
  EXPECT_THROW(tools::classify(kModel, {images.path()}, how), ArgumentError);
  EXPECT_TRUE(tools::is_for_images(images.path()));
  EXPECT_FALSE(tools::is_for_images(kModel));
}

class Verify : public ::testing::Test {
 protected:
  // A tensor [1, 2, 1, 1] of f32: TensorProto with dims, data_type, name and raw_data.
  void write(const std::string& file, const std::string& name, float first, float second) {
    std::string text;
    for (const char extent : {1, 2, 1, 1}) text += std::string("\x08") + extent;
    text += std::string("\x10\x01", 2) + "\x42" + static_cast<char>(name.size()) + name + "\x4a\x08";
    for (const float value : {first, second})
      text.append(reinterpret_cast<const char*>(&value), sizeof value);
    folder.write(file, text);
  }
  void SetUp() override {
    fs::create_directories(folder / "relu/test_data_set_0");
    folder.write("relu/model.onnx", pipit::internal::test::chain(2, {"Relu"}));
    write("relu/test_data_set_0/input_0.pb", "x", -1, 2);
    write("relu/test_data_set_0/output_0.pb", "y", 0, 2);
  }
  Scratch folder{"verify"};
};

TEST_F(Verify, ComparesOutputs) {
  std::int64_t done = 0;
  tools::VerifyOptions how;
  how.progress = [&](std::int64_t tests, std::int64_t total) {
    EXPECT_EQ(total, 1);
    done = tests;
  };
  tools::Verification result = tools::verify({folder.path()}, how);
  EXPECT_EQ(done, 1);
  ASSERT_THAT(result.tests, SizeIs(1));
  EXPECT_EQ(result.tests[0].verdict, tools::TestVerdict::passed) << result.tests[0].note;
  EXPECT_EQ(result.tests[0].max_error, 0);

  write("relu/test_data_set_0/output_0.pb", "y", 0.5, 2);
  result = tools::verify({folder.path()});
  EXPECT_EQ(result.failed, 1);
  EXPECT_EQ(result.tests[0].max_error, 0.5);
  EXPECT_THAT(result.tests[0].note, HasSubstr("element 0 is 0, expected 0.5"));
  EXPECT_EQ(ordered_json::parse(result.json)["tests"][0]["verdict"], "failed");

  how.norm = 0.5;
  EXPECT_EQ(tools::verify({folder.path()}, how).passed, 1);
}

TEST_F(Verify, EndsWithWhatIsThrown) {
  tools::VerifyOptions how;
  how.progress = [](std::int64_t, std::int64_t) { throw std::runtime_error("enough"); };
  EXPECT_THAT([&] { tools::verify({folder.path()}, how); }, ThrowsMessage<std::runtime_error>("enough"));
  EXPECT_THAT([&] { tools::verify({folder / "missing"}); },
              ThrowsMessage<Error>(HasSubstr("no such folder")));
  how = {};
  how.atol = -1;
  EXPECT_THROW(tools::verify({folder.path()}, how), ArgumentError);
}

}  // namespace
