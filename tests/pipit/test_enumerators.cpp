// Values that are no enumerators are refused with their numbers, wherever options or arrays have them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "pipit/pipit.h"
#include "tests/pipit/models.h"

namespace {

namespace tools = pipit::tools;
using pipit::ArgumentError;
using pipit::internal::test::Scratch;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr char kModel[] = "resnet20-cifar10";

template <typename E>
constexpr E no_enumerator() {
  return static_cast<E>(77);
}

template <typename Act>
void refused(const char* name, Act act) {
  EXPECT_THAT(act, ThrowsMessage<ArgumentError>(AllOf(HasSubstr(name), HasSubstr("77")))) << name;
}

#define SET(member, type) [](auto& options) { options.member = no_enumerator<type>(); }

template <typename Change>
void refused_load(const char* name, Change change) {
  pipit::LoadOptions options;
  change(options);
  refused(name, [&] { pipit::CompiledModel(kModel, options); });
  refused(name, [&] { pipit::Classifier(kModel, {.load = options}); });
  refused(name, [&] { pipit::AsyncRunner(kModel, options); });
}

TEST(Enumerators, OfLoading) {
  refused_load("device.kind", SET(device.kind, pipit::DeviceKind));
  refused_load("kernels.tuning", SET(kernels.tuning, pipit::Tuning));
  refused("precision", [] { pipit::LoadOptions{.precision = no_enumerator<pipit::Precision>()}; });
  refused("scores", [] { pipit::Classifier(kModel, {.scores = no_enumerator<pipit::ScoreKind>()}); });
}

TEST(Enumerators, OfArrays) {
  const pipit::CompiledModel model(kModel);
  pipit::ModelSession session = model.session();
  std::vector<float> pixels(3 * 32 * 32);
  pipit::ArrayView input(pixels, pipit::Shape{1, 3, 32, 32});
  std::vector<float> scores(10);
  pipit::MutableArrayView output(scores, pipit::Shape{1, 10});
  input.dtype = no_enumerator<pipit::DType>();
  refused("dtype of an input", [&] { session.run({input}); });
  refused("dtype", [&] { pipit::Array copy(input); });
  input.dtype = pipit::DType::f32;
  output.dtype = no_enumerator<pipit::DType>();
  refused("dtype of an output", [&] { session.run({input}, {output}); });
  refused("dtype", [] { pipit::Array(no_enumerator<pipit::DType>(), pipit::Shape{1}); });
}

TEST(Enumerators, OfTools) {
  const Scratch scratch("enumerators");
  const std::vector<std::filesystem::path> images = pipit::internal::test::write_images(scratch, 4);
  const std::filesystem::path folder = scratch.path(), output = scratch / "output";
  const auto calibrate = [&](const char* name, auto change) {
    tools::CalibrateOptions options;
    change(options);
    refused(name, [&] { tools::calibrate(kModel, images, {.plan = output}, options); });
  };
  calibrate("range.method", SET(range.method, tools::RangeMethod));
  const auto tune = [&](const char* name, auto change) {
    tools::TuneOptions options;
    change(options);
    refused(name, [&] { tools::tune(kModel, folder, output, options); });
  };
  tune("keep_as", SET(keep_as, pipit::Precision));
  tune("judge_by", SET(judge_by, tools::JudgeBy));
  tune("device.kind", SET(classifier.load.device.kind, pipit::DeviceKind));
  const auto prune = [&](const char* name, auto change) {
    tools::PruneOptions options;
    options.goal.keep = 0.5;
    change(options);
    refused(name, [&] { tools::prune(kModel, folder, output, options); });
  };
  prune("goal.judge_by", SET(goal.judge_by, tools::JudgeBy));
  prune("mode", SET(mode, tools::PruneMode));
  prune("importance", SET(importance, tools::Importance));
  prune("rows", SET(rows, tools::PrunedRows));
  prune("device.kind", SET(classifier.load.device.kind, pipit::DeviceKind));
  EXPECT_FALSE(std::filesystem::exists(output));
}

TEST(Enumerators, OfMeasurements) {
  const auto profile = [](const char* name, auto change) {
    tools::ProfileModelOptions options;
    change(options);
    refused(name, [&] { tools::profile_model(kModel, options); });
  };
  profile("group_by", SET(group_by, tools::GroupBy));
  profile("device.kind", SET(timing.load.device.kind, pipit::DeviceKind));
  tools::BenchOptions bench;
  bench.timing.load.device.kind = no_enumerator<pipit::DeviceKind>();
  refused("device.kind", [&] { tools::bench({kModel}, bench); });
  tools::CeilingsOptions ceilings;
  ceilings.device.kind = no_enumerator<pipit::DeviceKind>();
  refused("device.kind", [&] { tools::measure_ceilings(ceilings); });
  const auto sweep = [](const char* name, auto change) {
    tools::SparsitySweepOptions options;
    change(options);
    refused(name, [&] { tools::sweep_sparsity(options); });
  };
  sweep("device.kind", SET(run.device.kind, pipit::DeviceKind));
  sweep("precision", [](auto& options) { options.precisions = {no_enumerator<pipit::Precision>()}; });
  sweep("mode", [](auto& options) { options.modes = {no_enumerator<tools::SparsityMode>()}; });
  sweep("importance", SET(importance, tools::Importance));
  refused("form", [] { tools::report("{}", no_enumerator<tools::ReportForm>()); });
}

TEST(Enumerators, SweepsAndCeilingsTakeOneDevice) {
  tools::CeilingsOptions ceilings;
  ceilings.device.gpus = {1};
  EXPECT_THAT([&] { tools::measure_ceilings(ceilings); }, ThrowsMessage<ArgumentError>(HasSubstr("gpus")));
  tools::ConvSweepOptions sweep;
  sweep.run.device.allow_fallback = true;
  EXPECT_THAT([&] { tools::sweep_convolutions(sweep); },
              ThrowsMessage<ArgumentError>(HasSubstr("allow_fallback")));
}

}  // namespace
