// Pruning through the public headers alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pipit/pipit.h>

#include <algorithm>
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
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr char kModel[] = "resnet20-cifar10";

class Prune : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("PIPIT_SHORT_MEASUREMENTS", "1", 1);  // the test is of what is made of times
    pipit::internal::test::write_images(images, 8);
    how.classifier.load.device.threads = 1;
    how.goal.judge_by = tools::JudgeBy::model;
    how.goal.keep = 0.5;
    how.importance = tools::Importance::l1;
    how.refit = false;
  }
  Scratch images{"prune-images"};
  Scratch results{"prune"};
  fs::path output = results / "pruned.onnx";
  tools::PruneOptions how;
};

TEST_F(Prune, WritesWhatItSays) {
  images.write("damaged.bmp", "BM");
  pipit::internal::test::StageLog log;
  std::vector<std::string> notes;
  how.progress = log.progress();
  how.note = [&](const std::string& note) { notes.push_back(note); };
  const tools::PrunedModel pruned = tools::prune(kModel, images.path(), output, how);
  EXPECT_EQ(log.entered, log.planned);
  EXPECT_EQ(pruned.problem, "");
  EXPECT_TRUE(pruned.passed);
  EXPECT_EQ(pruned.measure, "agreement with dense");
  EXPECT_EQ(pruned.dense_right, 1);
  ASSERT_EQ(pruned.steps.size(), 1U);
  EXPECT_TRUE(pruned.steps[0].chosen);
  EXPECT_FALSE(pruned.steps[0].predicted);
  EXPECT_FALSE(pruned.reached);
  EXPECT_GT(pruned.speedup.low, 0);
  EXPECT_EQ(pruned.speedup.median, pruned.steps[0].speedup.median);
  EXPECT_GT(pruned.steps[0].ms, 0);
  EXPECT_TRUE(pruned.selections.empty());
  EXPECT_NEAR(pruned.macs_kept, 0.5, 0.03);
  EXPECT_EQ(pruned.calibration_images + pruned.unseen.images, 8);
  EXPECT_EQ(static_cast<std::uintmax_t>(pruned.bytes), fs::file_size(output));
  const auto inner =
      std::ranges::find(pruned.layers, "/stages/stages.1/stages.1.1/conv1/Conv", &tools::PrunedLayer::name);
  ASSERT_NE(inner, pruned.layers.end());
  EXPECT_NEAR(inner->kept, 0.5, 0.01);
  EXPECT_EQ(inner->rows, tools::PrunedRows::tap);
  ASSERT_EQ(pruned.excluded.size(), 1U);
  EXPECT_EQ(pruned.excluded[0].path.filename(), "damaged.bmp");
  ASSERT_EQ(pruned.notes.size(), 1U);
  EXPECT_THAT(notes, Contains(pruned.notes[0]));
  const auto json = nlohmann::json::parse(pruned.json);
  EXPECT_EQ(json["command"], "prune");
  EXPECT_EQ(json["mode"], "k");
  EXPECT_EQ(json["pruned"]["bytes"], pruned.bytes);
  EXPECT_EQ(json["notes"].size(), pruned.remarks.size());
  EXPECT_EQ(json["layers"].size(), pruned.layers.size());
  const pipit::CompiledModel again(output.string());
  EXPECT_EQ(again.inputs().size(), 1U);
}

TEST_F(Prune, RemovesChannelsInInt8) {
  how.classifier.load.precision = Precision::int8;
  how.mode = tools::PruneMode::channels;
  const tools::PrunedModel pruned = tools::prune(kModel, images.path(), output, how);
  ASSERT_TRUE(pruned.int8);
  EXPECT_GE(pruned.int8->int8_layers, 20);
  EXPECT_GT(pruned.int8->fp32_ms, 0);
  EXPECT_EQ(pruned.int8->dense_unseen.images, 4);
  EXPECT_LT(pruned.bytes, pruned.dense_bytes / 2);
  EXPECT_EQ(nlohmann::json::parse(pruned.json)["precision"], "int8");
}

TEST_F(Prune, RefusesWhatCannotBe) {
  const auto refused = [&](const tools::PruneOptions& options, const char* words) {
    EXPECT_THAT([&] { tools::prune(kModel, images.path(), output, options); },
                ThrowsMessage<ArgumentError>(HasSubstr(words)));
    EXPECT_FALSE(fs::exists(output));
  };
  tools::PruneOptions options = how;
  options.goal.keep.reset();
  refused(options, "exactly one goal");
  options = how;
  options.goal.speedup = 2;
  refused(options, "exactly one goal");
  options = how;
  options.goal.keep = 1.5;
  refused(options, "1.5");
  options = how;
  options.goal.keep.reset();
  options.goal.speedup = 1;
  refused(options, "speedup is 1;");
  options.goal.speedup.reset();
  options.goal.max_drop = -1;
  refused(options, "-1 points");
  options = how;
  options.goal.global = true;
  options.mode = tools::PruneMode::channels;
  refused(options, "rows");
  options = how;
  options.group = 3;
  refused(options, "3; expected one of 1, 4, 8, 16");
  options = how;
  options.panel = 1;
  options.group = 4;
  refused(options, "panel of 1");
  options = how;
  options.classifier.load.precision = Precision::fp16;
  refused(options, "fp16");
  options = how;
  options.classifier.load.device.kind = pipit::DeviceKind::cuda;
  refused(options, "cuda");
  options = how;
  options.classifier.labels = results / "labels.txt";
  refused(options, "no effect");
  options = how;
  options.check = images.path();
  refused(options, "images to check on");
  options = how;
  options.goal.judge_by = tools::JudgeBy::labels;
  EXPECT_THAT([&] { tools::prune(kModel, images.path(), output, options); },
              ThrowsMessage<Error>(HasSubstr("images without classes")));
  EXPECT_THAT([&] { tools::prune(kModel, images.path(), images.path() / "image0.bmp", how); },
              ThrowsMessage<Error>(HasSubstr("image0.bmp")));
}

TEST_F(Prune, EndsWithWhatACallbackThrows) {
  struct Stopped : Error {
    Stopped() : Error("stopped") {}
  };
  std::ofstream(output) << "as it was";
  for (const char* stage : {"the dense model", "ordering groups", "fitting weights", "checking"}) {
    how.progress.update = [&](const std::string& name, std::int64_t, std::int64_t) {
      if (name == stage) throw Stopped();
    };
    EXPECT_THROW(tools::prune(kModel, images.path(), output, how), Stopped) << stage;
    EXPECT_EQ(fs::file_size(output), 9U) << stage;
  }
}

}  // namespace
