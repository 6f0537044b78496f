// Loading, profiling, quantizing and annotating report their stages, and end
// where the callback throws.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "pipit/pipit.h"
#include "tests/pipit/models.h"

namespace {

namespace fs = std::filesystem;
namespace tools = pipit::tools;
using pipit::LoadOptions;
using pipit::internal::test::Scratch;
using pipit::internal::test::StageLog;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr char kModel[] = "resnet20-cifar10";

// One of pipit's own kinds, which arrives unchanged all the same.
struct Cancelled : pipit::Error {
  Cancelled() : Error("cancelled") {}
};

// Throws at call `at`, counted from 1, of both callbacks together.
tools::StageProgress cancels(int at) {
  const auto calls = std::make_shared<int>(0);
  const auto count = [calls, at] {
    if (++*calls == at) throw Cancelled();
  };
  return {.planned = [count](const std::vector<tools::Stage>&) { count(); },
          .update = [count](const std::string&, std::int64_t, std::int64_t) { count(); }};
}

LoadOptions one_thread() {
  LoadOptions load;
  load.device.threads = 1;
  return load;
}

std::string text_of(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

std::vector<fs::path> files_in(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path());
  return files;
}

TEST(Stages, LoadingReportsReadingAndCompiling) {
  const auto load = [](auto&& with) {
    StageLog log;
    LoadOptions options = one_thread();
    options.progress = log.progress();
    with(options);
    EXPECT_THAT(log.planned, ElementsAre("reading", "compiling"));
    EXPECT_THAT(log.entered, ElementsAre("reading", "compiling"));
  };
  load([](const LoadOptions& options) { pipit::CompiledModel(kModel, options); });
  load([](const LoadOptions& options) { pipit::Classifier(kModel, {.load = options}); });
  load([](const LoadOptions& options) { pipit::AsyncRunner(kModel, options, {.streams = 1, .threads = 1}); });
}

TEST(Stages, LoadingEndsWhereTheCallbackThrows) {
  for (const int at : {1, 2, 3, 4}) {
    LoadOptions options = one_thread();
    options.progress = cancels(at);
    EXPECT_THROW(pipit::CompiledModel(kModel, options), Cancelled) << at;
    options.progress = cancels(at);
    EXPECT_THROW(pipit::Classifier(kModel, {.load = options}), Cancelled) << at;
  }
}

TEST(Stages, TheCallbackBelongsToOneLoadingAlone) {
  LoadOptions options = one_thread();
  int calls = 0;
  options.progress.update = [&](const std::string&, std::int64_t, std::int64_t) { ++calls; };
  const pipit::CompiledModel model(kModel, options);
  const int loaded = calls;
  EXPECT_GT(loaded, 1);
  EXPECT_EQ(model.with_batch(2).inputs()[0].shape[0], 2);
  EXPECT_EQ(calls, loaded);
}

TEST(Stages, TimingOfKernelsEndsAndLeavesNoCache) {
  const Scratch scratch("stages");
  LoadOptions options = one_thread();
  options.kernels.tuning = pipit::Tuning::all;
  options.kernels.cache = scratch / "tuning.json";
  options.progress = cancels(12);  // without timing there are fewer calls
  EXPECT_THROW(pipit::CompiledModel(kModel, options), Cancelled);
  EXPECT_FALSE(fs::exists(options.kernels.cache));
}

TEST(Stages, ProfilingReportsRunsAndEnds) {
  const pipit::CompiledModel model(kModel, one_thread());
  StageLog log;
  tools::ProfileOptions options{.runs = 3, .warmup = 1};
  options.progress = log.progress();
  EXPECT_EQ(tools::profile(model, {}, options).runs, 3);
  EXPECT_THAT(log.planned, ElementsAre("running"));
  EXPECT_THAT(log.entered, ElementsAre("running"));
  for (const int at : {1, 2, 3, 5}) {
    options.progress = cancels(at);
    EXPECT_THROW(tools::profile(model, {}, options), Cancelled) << at;
  }
  options.progress = {};
  EXPECT_EQ(tools::profile(model, {}, options).runs, 3);
}

TEST(Stages, QuantizingEndsAndLeavesNoPartOfAFile) {
  const Scratch images("stages-images");
  pipit::internal::test::write_images(images, 2);
  const Scratch scratch("stages");
  tools::CalibrateOptions calibrate;
  calibrate.load = one_thread();
  const fs::path plan = images / "plan.json";
  tools::calibrate(kModel, std::vector<fs::path>{images.path()}, {.plan = plan}, calibrate);
  const fs::path output = scratch / "int8.onnx";
  tools::QuantizeOptions options;
  for (const int at : {1, 2, 3, 4}) {
    options.progress = cancels(at);
    EXPECT_THROW(tools::quantize(kModel, plan, output, options), Cancelled) << at;
    EXPECT_THAT(files_in(scratch.path()), IsEmpty()) << at;
  }
  StageLog log;
  options.progress = log.progress();
  tools::quantize(kModel, plan, output, options);
  EXPECT_THAT(log.entered, ElementsAre("reading", "quantizing", "writing"));
  EXPECT_EQ(log.planned, log.entered);
  const std::string written = text_of(output);
  options.progress = cancels(4);
  EXPECT_THROW(tools::quantize(kModel, plan, output, options), Cancelled);
  EXPECT_EQ(text_of(output), written);
}

TEST(Stages, AnnotatingEndsAndLeavesNoPartOfAFile) {
  const Scratch models("stages-models");
  const fs::path model = models.write("model.onnx", pipit::internal::test::chain(3, {"Relu"}));
  const Scratch scratch("stages");
  const fs::path output = scratch / "folder" / "annotated.onnx";
  fs::create_directory(output.parent_path());
  tools::AnnotateOptions options;
  options.classifier.scores = pipit::ScoreKind::softmax;
  for (const int at : {1, 2, 3}) {
    options.progress = cancels(at);
    EXPECT_THROW(tools::annotate(model.string(), output, options), Cancelled) << at;
    EXPECT_THAT(files_in(output.parent_path()), IsEmpty()) << at;
  }
  StageLog log;
  options.progress = log.progress();
  tools::annotate(model.string(), output, options);
  EXPECT_THAT(log.entered, ElementsAre("reading", "writing"));
  EXPECT_EQ(log.planned, log.entered);
}

}  // namespace
