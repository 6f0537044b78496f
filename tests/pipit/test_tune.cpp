// Mixed precision through the public headers alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pipit/pipit.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "tests/pipit/models.h"

namespace {

namespace fs = std::filesystem;
namespace tools = pipit::tools;

using pipit::ArgumentError;
using pipit::Error;
using pipit::Precision;
using pipit::internal::test::Scratch;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr char kModel[] = "resnet20-cifar10";

class Tune : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("PIPIT_SHORT_MEASUREMENTS", "1", 1);  // the test is of what is made of times
    pipit::internal::test::write_images(images, 8);
    how.classifier.load.device.threads = 1;
    how.judge_by = tools::JudgeBy::model;
    how.max_drop = 100;
    how.keep_as = Precision::fp32;
  }
  Scratch images{"tune-images"};
  Scratch results{"tune"};
  fs::path plan = results / "mixed.json";
  tools::TuneOptions how;
};

TEST_F(Tune, WritesAPlanThatKeepsTheChosenLayers) {
  pipit::internal::test::StageLog log;
  how.progress = log.progress();
  const tools::TunedPlan tuned = tools::tune(kModel, images.path(), plan, how);
  EXPECT_EQ(log.planned.size(), 4U);
  EXPECT_EQ(log.entered, log.planned);
  EXPECT_EQ(tuned.measure, "agreement with fp32");
  EXPECT_EQ(tuned.calibration_images, 4);
  EXPECT_EQ(tuned.orders.size(), 2U);
  ASSERT_GT(tuned.steps.size(), 2U);
  EXPECT_EQ(tuned.steps[0].kept, 0);
  EXPECT_EQ(
      std::count_if(tuned.steps.begin(), tuned.steps.end(), [](const auto& step) { return step.chosen; }), 1);
  for (const tools::TuneStep& step : tuned.steps) {
    EXPECT_EQ(step.drop.images, 4);
    EXPECT_LE(step.drop.low, step.drop.points);
    EXPECT_GE(step.drop.high, step.drop.points);
    EXPECT_GT(step.ms, 0);
  }
  EXPECT_EQ(tuned.unseen.images, 4);
  EXPECT_EQ(tuned.judged.verdict, tools::Verdict::proven);
  EXPECT_EQ(nlohmann::json::parse(tuned.json)["kept"].size(), tuned.kept.size());

  std::ifstream file(plan);
  const auto kept = nlohmann::json::parse(file)["keep"];
  for (const std::string& layer : tuned.kept) EXPECT_TRUE(kept.contains(layer)) << layer;
  EXPECT_TRUE(kept.contains("/pool/GlobalAveragePool"));  // by default

  // From that plan: nothing is calibrated, and the plan is replaced.
  how.progress = {};
  how.plan = plan;
  images.write("another.bmp", pipit::internal::test::bmp(32, 77));
  EXPECT_EQ(tools::tune(kModel, images.path(), plan, how).calibration_images, 0);
}

TEST_F(Tune, AllowsNoDropByKeepingWhatCausesIt) {
  how.max_drop = 0;
  how.confidence = 50;
  const tools::TunedPlan tuned = tools::tune(kModel, images.path(), plan, how);
  EXPECT_EQ(tuned.keep_as, Precision::fp32);
  for (const tools::TuneStep& step : tuned.steps) {
    if (step.chosen) {
      EXPECT_LE(step.drop.points, 0);
    }
  }
}

TEST_F(Tune, RefusesWhatCannotBe) {
  const auto refused = [&](const tools::TuneOptions& options, const char* words) {
    EXPECT_THAT([&] { tools::tune(kModel, images.path(), plan, options); },
                ThrowsMessage<ArgumentError>(HasSubstr(words)));
    EXPECT_FALSE(fs::exists(plan));
  };
  tools::TuneOptions options = how;
  options.max_drop = -1;
  refused(options, "-1 points");
  options = how;
  options.confidence = 30;
  refused(options, "30 percent");
  options = how;
  options.keep_as = Precision::int8;
  refused(options, "int8");
  options = how;
  options.classifier.labels = results / "labels.txt";
  refused(options, "do not matter");
  options = how;
  options.limit = 1;
  EXPECT_THAT([&] { tools::tune(kModel, images.path(), plan, options); },
              ThrowsMessage<Error>(HasSubstr("1 image: too few")));
  options = how;
  options.judge_by = tools::JudgeBy::labels;
  EXPECT_THAT([&] { tools::tune(kModel, images.path(), plan, options); },
              ThrowsMessage<Error>(HasSubstr("images without classes")));
  struct Stopped : Error {
    Stopped() : Error("stopped") {}
  };
  options = how;
  options.progress.update = [](const std::string& stage, std::int64_t, std::int64_t) {
    if (stage == "judging layers") throw Stopped();
  };
  EXPECT_THROW(tools::tune(kModel, images.path(), plan, options), Stopped);
  EXPECT_FALSE(fs::exists(plan));
}

}  // namespace
