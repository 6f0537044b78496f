// Models that are loaded and run while the process ends, and what a session's outputs may be used for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pipit/pipit.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <thread>

#include "tests/pipit/models.h"

namespace {

using pipit::ArrayView;
using pipit::CompiledModel;
using pipit::LoadOptions;
using pipit::Precision;
using pipit::Shape;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr char kModel[] = "resnet20-cifar10";

LoadOptions two_threads(Precision precision = Precision::fp32) {
  LoadOptions options;
  options.threads = 2;
  options.precision = precision;
  return options;
}

void load_and_run(Precision precision) {
  const CompiledModel model(kModel, two_threads(precision));
  const std::vector<float> image(3 * 32 * 32, 0.5F);
  pipit::ModelSession session = model.session();
  session.run({ArrayView(image, Shape{1, 3, 32, 32})});
}

// Made before anything of the library and so destroyed after it.
struct LoadsWhenDestroyed {
  std::optional<CompiledModel> model;
  std::optional<pipit::Classifier> classifier;
  ~LoadsWhenDestroyed() {
    load_and_run(Precision::fp32);
    load_and_run(Precision::int8_dynamic);
    const pipit::Classifier copy(*classifier);
    std::fputs("loaded at the end\n", stderr);
  }
};

[[noreturn]] void end_with_a_static_object() {
  static LoadsWhenDestroyed server;
  server.model.emplace(kModel, two_threads());
  pipit::ClassifierOptions options;
  options.load = two_threads();
  server.classifier.emplace(kModel, options);
  std::exit(0);
}

TEST(LifetimesDeathTest, StaticObjectsMayLoadModelsWhenTheyAreDestroyed) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(end_with_a_static_object(), testing::ExitedWithCode(0), "loaded at the end");
}

// exit() while other threads load and run: without a crash, whenever it comes.
[[noreturn]] void end_while_threads_load(int loads) {
  static std::atomic<int> loaded{0};
  for (int t = 0; t < 2; ++t) {
    std::thread([] {
      for (;;) {
        load_and_run(Precision::fp32);
        ++loaded;
      }
    }).detach();
  }
  while (loaded < loads) std::this_thread::yield();
  std::exit(0);
}

TEST(LifetimesDeathTest, DetachedThreadsMayLoadModelsWhileTheProcessEnds) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (int loads = 0; loads < 6; ++loads)
    EXPECT_EXIT(end_while_threads_load(loads), testing::ExitedWithCode(0), "");
}

TEST(Lifetimes, AnOutputIsNoInputOfItsSession) {
  const std::string onnx = pipit::internal::test::chain(16, {"Sigmoid", "Tanh"});
  LoadOptions options = two_threads();
  const CompiledModel model(std::as_bytes(std::span(onnx)), "feedback.onnx", options);
  pipit::ModelSession session = model.session(), other = model.session();
  const Shape shape = model.inputs()[0].shape;
  const std::vector<float> values(static_cast<std::size_t>(shape.elements()), 0.25F);
  const ArrayView output = session.run({ArrayView(values, shape)})[0];
  EXPECT_THAT(
      [&] { session.run({output}); },
      ThrowsMessage<pipit::Error>(AllOf(HasSubstr("feedback.onnx"), HasSubstr("memory of this session"))));
  // What lies elsewhere may be read: another session's output, and a copy.
  const std::span<const float> view = output.values<float>();
  const std::vector<float> copy(view.begin(), view.end());
  const std::span<const float> second = other.run({output})[0].values<float>();
  const std::vector<float> expected(second.begin(), second.end());
  const std::span<const float> third = session.run({ArrayView(copy, shape)})[0].values<float>();
  EXPECT_TRUE(std::equal(third.begin(), third.end(), expected.begin(), expected.end()));
}

}  // namespace
