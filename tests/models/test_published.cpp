// Labels and preprocessing as Ultralytics, Hugging Face and timm publish them.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "models/published.h"
#include "tests/models/image/image_test_util.h"

namespace pipit::internal {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Published beside(const std::vector<std::pair<std::string, std::string>>& files,
                 const char* model = "model.onnx") {
  const test::TemporaryFolder folder;
  for (const auto& [name, text] : files) folder.write(name, std::string_view(text));
  return published({}, folder.path() / model);
}

TEST(Published, NamesOfADict) {
  EXPECT_THAT(labels_of_dict(R"({0: 'cat', 1: "it's", 2: 'a\'b'})"), ElementsAre("cat", "it's", "a'b"));
  EXPECT_THAT(labels_of_dict("{1: 'b', 0: 'a'}"), ElementsAre("a", "b"));
  for (const char* text : {"", "{", "['a']", "{0: 'a'", "{0: 'a', 0: 'b'}", "{1: 'a'}", "{0: a}", "{0: 'a"})
    EXPECT_TRUE(labels_of_dict(text).empty()) << text;
}

TEST(Published, UltralyticsMetadata) {
  std::map<std::string, std::string> metadata{
      {"names", "{0: 'a', 1: 'b'}"}, {"imgsz", "[224, 224]"}, {"task", "classify"}};
  const Published found = published(metadata, {});
  EXPECT_THAT(found.labels, ElementsAre("a", "b"));
  ASSERT_TRUE(found.preprocess);
  EXPECT_EQ(found.preprocess->resize, 224);
  EXPECT_EQ(found.preprocess->crop, 224);
  EXPECT_THAT(found.preprocess->mean, ElementsAre(0, 0, 0));
  metadata["task"] = "detect";
  EXPECT_TRUE(published(metadata, {}).labels.empty());
}

TEST(Published, PreprocessorOfHuggingFace) {
  const char* const vit = R"({"do_resize": true, "size": {"height": 224, "width": 224}, "resample": 2,
    "do_rescale": true, "rescale_factor": 0.00392156862745098, "do_normalize": true,
    "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]})";
  Preprocess p = beside({{"preprocessor_config.json", vit}}).preprocess.value();
  EXPECT_EQ(p.resize_mode, ResizeRule::stretch);
  EXPECT_EQ(p.resize, 224);
  EXPECT_EQ(p.crop, 0);
  EXPECT_EQ(p.interpolation, Interpolation::bilinear);
  EXPECT_THAT(p.std, ElementsAre(0.5F, 0.5F, 0.5F));
  const char* const resnet = R"({"do_resize": true, "size": {"shortest_edge": 256}, "resample": 3,
    "do_center_crop": true, "crop_size": {"height": 224, "width": 224}, "do_normalize": false})";
  p = beside({{"preprocessor_config.json", resnet}}).preprocess.value();
  EXPECT_EQ(p.resize_mode, ResizeRule::short_side);
  EXPECT_EQ(p.resize, 256);
  EXPECT_EQ(p.crop, 224);
  EXPECT_EQ(p.interpolation, Interpolation::bicubic);
  EXPECT_THAT(p.mean, ElementsAre(0, 0, 0));
  const char* const convnext =
      R"({"size": {"shortest_edge": 224}, "crop_pct": 0.875, "resample": 3, "image_mean": [0, 0, 0]})";
  p = beside({{"preprocessor_config.json", convnext}}).preprocess.value();
  EXPECT_EQ(p.resize, 256);
  EXPECT_EQ(p.crop, 224);
  const Published lanczos =
      beside({{"preprocessor_config.json", R"({"size": 224, "resample": 1, "image_mean": [0]})"}});
  EXPECT_FALSE(lanczos.preprocess);
  EXPECT_THAT(lanczos.problem, HasSubstr("preprocessor_config.json beside the model: the filter 1"));
}

TEST(Published, ConfigurationOfTimm) {
  const char* const config = R"({"architecture": "x", "label_names": ["a", "b"], "pretrained_cfg": {
    "input_size": [3, 224, 224], "interpolation": "bicubic", "crop_pct": 0.95, "crop_mode": "center",
    "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}})";
  const Published found = beside({{"config.json", config}});
  EXPECT_THAT(found.labels, ElementsAre("a", "b"));
  EXPECT_EQ(found.labels_from, "config.json");
  ASSERT_TRUE(found.preprocess);
  EXPECT_EQ(found.preprocess->resize, 235);  // floor(224 / 0.95)
  EXPECT_EQ(found.preprocess->crop, 224);
  EXPECT_EQ(found.preprocess->interpolation, Interpolation::bicubic);
}

TEST(Published, FilesAreLookedForAboveAFolderOfExports) {
  const test::TemporaryFolder folder;
  const std::string config = R"({"id2label": {"0": "a", "1": "b"}})";
  folder.write("config.json", std::string_view(config));
  for (const char* name : {"onnx", "other"}) fs::create_directory(folder.path() / name);
  EXPECT_THAT(published({}, folder.path() / "onnx" / "model.onnx").labels, ElementsAre("a", "b"));
  EXPECT_TRUE(published({}, folder.path() / "other" / "model.onnx").labels.empty());
}

TEST(Published, FilesOfOthersArePassedOver) {
  for (const char* text :
       {"", "{", "[]", "3", R"({"id2label": 3})", R"({"id2label": {"a": "b"}})", R"({"size": "x"})"}) {
    const Published found = beside({{"config.json", text}, {"preprocessor_config.json", text}});
    EXPECT_TRUE(found.labels.empty()) << text;
    EXPECT_FALSE(found.preprocess) << text;
    EXPECT_EQ(found.problem, "") << text;
  }
}

}  // namespace
}  // namespace pipit::internal
