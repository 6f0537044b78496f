// Accuracy on a folder of images, through the public headers alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pipit/pipit.h>

#include <nlohmann/json.hpp>

#include "tests/pipit/models.h"

namespace {

namespace fs = std::filesystem;
namespace tools = pipit::tools;

using pipit::ArgumentError;
using pipit::Error;
using pipit::Precision;
using pipit::internal::test::Scratch;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr char kModel[] = "resnet20-cifar10";
constexpr std::int64_t kImages = 12;

// Two thirds of the images have the class that the model gives them in fp32.
class Evaluate : public ::testing::Test {
 protected:
  void SetUp() override {
    pipit::ClassifierOptions options;
    options.load.device.threads = 1;
    pipit::Classifier classifier(kModel, options);
    for (unsigned i = 0; i < kImages; ++i) {
      const fs::path image = scratch.write("image.bmp", pipit::internal::test::bmp(32, i));
      const int answer = classifier.classify(image, 1)[0].index;
      const int label = i % 3 == 0 ? (answer + 1) % 10 : answer;
      fs::create_directories(scratch / "images" / std::to_string(label));
      fs::rename(image, scratch / "images" / std::to_string(label) / (std::to_string(i) + ".bmp"));
    }
    // Every class has a folder.
    for (int c = 0; c < 10; ++c) fs::create_directories(scratch / "images" / std::to_string(c));
    how.classifier.load.device.threads = 1;
  }
  Scratch scratch{"evaluate"};
  fs::path folder = scratch / "images";
  tools::EvaluateOptions how;
};

TEST_F(Evaluate, CountsWhatIsRight) {
  std::vector<std::int64_t> done;
  how.progress = [&](std::int64_t now, std::int64_t total, const std::string& found) {
    EXPECT_EQ(total, kImages);
    EXPECT_THAT(found, HasSubstr("top-1"));
    done.push_back(now);
  };
  const tools::Evaluation result = tools::evaluate(kModel, folder, how);
  EXPECT_EQ(result.measure, "top-1");
  EXPECT_EQ(result.right.count, 8);
  EXPECT_EQ(result.right.of, kImages);
  EXPECT_DOUBLE_EQ(result.right.value, 8.0 / 12);
  EXPECT_LT(result.right.low, result.right.value);
  EXPECT_GT(result.right.high, result.right.value);
  ASSERT_TRUE(result.top5.has_value());
  EXPECT_GE(result.top5->count, 8);
  EXPECT_EQ(done.size(), static_cast<std::size_t>(kImages));
  EXPECT_EQ(done.back(), kImages);
  EXPECT_GT(result.images_per_s, 0);
  EXPECT_GT(result.model_images_per_s, 0);
  EXPECT_EQ(result.labels.size(), 10U);
  const auto json = nlohmann::json::parse(result.json);
  EXPECT_EQ(json["command"], "evaluate");
  EXPECT_EQ(json["top1_correct"], 8);
  EXPECT_EQ(json["images"], kImages);

  how.limit = 3;
  how.classifier.load.shapes.batch = 2;
  how.progress = {};
  EXPECT_EQ(tools::evaluate(kModel, folder, how).right.of, 3);
}

TEST_F(Evaluate, ComparesWithAnotherPrecisionOfTheSameModel) {
  tools::Baseline base;
  base.precision = Precision::fp16;
  how.against = base;
  how.max_drop = 100;
  const tools::Evaluation result = tools::evaluate(kModel, folder, how);
  ASSERT_TRUE(result.against.has_value());
  const tools::Drop& drop = result.against->drop;
  EXPECT_EQ(drop.images, kImages);
  EXPECT_DOUBLE_EQ(drop.points, 100.0 * static_cast<double>(drop.only_base_right - drop.only_model_right) /
                                    static_cast<double>(kImages));
  EXPECT_LT(drop.low, drop.high);
  ASSERT_TRUE(result.against->judged.has_value());
  EXPECT_EQ(result.against->judged->verdict, tools::Verdict::proven);
  EXPECT_TRUE(result.against->judged->within);
  EXPECT_EQ(nlohmann::json::parse(result.json)["against"]["verdict"], "proven");
}

TEST_F(Evaluate, ExcludesWhatItCannotReadOrThrows) {
  scratch.write("images/3/broken.bmp", "BM");
  const tools::Evaluation result = tools::evaluate(kModel, folder, how);
  ASSERT_EQ(result.excluded.size(), 1U);
  EXPECT_EQ(result.excluded[0].path, folder / "3" / "broken.bmp");
  EXPECT_EQ(result.right.of, kImages);
  EXPECT_THAT(result.notes, Contains(HasSubstr("cannot be used")));
  how.strict = true;
  EXPECT_THAT([&] { tools::evaluate(kModel, folder, how); }, ThrowsMessage<Error>(HasSubstr("broken.bmp")));
}

TEST_F(Evaluate, WhatProgressThrowsEndsIt) {
  struct Stopped {};
  how.progress = [](std::int64_t done, std::int64_t, const std::string&) {
    if (done == 2) throw Stopped();
  };
  EXPECT_THROW(tools::evaluate(kModel, folder, how), Stopped);
}

TEST_F(Evaluate, RefusesOptionsThatContradictEachOther) {
  const auto refused = [&](const tools::EvaluateOptions& options, const char* words) {
    EXPECT_THAT([&] { tools::evaluate(kModel, folder, options); },
                ThrowsMessage<ArgumentError>(HasSubstr(words)));
  };
  tools::EvaluateOptions options = how;
  options.max_drop = 1;
  refused(options, "against");
  options.against.emplace();
  options.max_drop = -1;
  refused(options, "-1 points");
  options = how;
  options.limit = -3;
  refused(options, "-3 images");
  options = how;
  options.classifier.threshold = 2;
  refused(options, "threshold is 2");
  options = how;
  options.classifier.load.device.gpus = {0};
  refused(options, "the CPU");
  options = how;
  options.classifier.load.precision = Precision::int8;
  refused(options, "quantization plan");
  EXPECT_THAT([&] { tools::evaluate(kModel, scratch / "nowhere", how); },
              ThrowsMessage<Error>(HasSubstr("nowhere")));
}

}  // namespace
