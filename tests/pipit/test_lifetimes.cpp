// Models that are loaded and run while the process ends, and what a session's outputs may be used for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pipit/pipit.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
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
  options.device.threads = 2;
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

// Whatever order they are destroyed in, and after moves and assignments.
TEST(Lifetimes, SessionsClassifiersAndRunnersKeepWhatTheyNeedOfTheirModel) {
  const std::vector<float> image(3 * 32 * 32, 0.5F);
  const ArrayView input(image, Shape{1, 3, 32, 32});
  auto model = std::make_unique<CompiledModel>(kModel, two_threads());
  auto session = std::make_unique<pipit::ModelSession>(model->session());
  auto runner = std::make_unique<pipit::AsyncRunner>(*model);
  const CompiledModel copy = *model;
  model.reset();
  const std::span<const float> scores = session->run({input})[0].values<float>();
  const std::vector<float> expected(scores.begin(), scores.end());
  const auto is_expected = [&](std::span<const float> got) { return std::ranges::equal(got, expected); };
  EXPECT_TRUE(is_expected(runner->submit({input}).get()[0].values<float>()));
  EXPECT_EQ(copy.inputs().size(), 1U);
  // A session that is assigned to takes over; the one that was moved from may be assigned to again.
  pipit::ModelSession moved = std::move(*session);
  EXPECT_TRUE(is_expected(moved.run({input})[0].values<float>()));
  *session = copy.session();
  EXPECT_TRUE(is_expected(session->run({input})[0].values<float>()));
  moved = std::move(*session);
  session.reset();
  EXPECT_TRUE(is_expected(moved.run({input})[0].values<float>()));
  std::future<std::vector<pipit::Array>> last = runner->submit({input});
  runner.reset();
  EXPECT_TRUE(is_expected(last.get()[0].values<float>()));
  pipit::ClassifierOptions options;
  options.load = two_threads();
  auto classifier = std::make_unique<pipit::Classifier>(kModel, options);
  pipit::Classifier other(*classifier);
  const std::vector<std::uint8_t> rgb = pipit::internal::test::pattern(32, 1);
  const int answer = classifier->classify(pipit::PixelView{rgb, 32, 32}, 1)[0].index;
  classifier.reset();
  EXPECT_EQ(other.classify(pipit::PixelView{rgb, 32, 32}, 1)[0].index, answer);
  pipit::Classifier taken = std::move(other);
  other = taken;
  EXPECT_EQ(other.classify(pipit::PixelView{rgb, 32, 32}, 1)[0].index, answer);
  EXPECT_EQ(taken.classify(pipit::PixelView{rgb, 32, 32}, 1)[0].index, answer);
}

// What an array is after it was moved from, and that its memory stays where it was.
TEST(Lifetimes, ArraysMoveWithTheirMemory) {
  pipit::Array array(pipit::DType::f32, Shape{2, 3});
  const void* const data = array.view().data;
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % 64, 0U);
  pipit::Array moved = std::move(array);
  EXPECT_EQ(moved.view().data, data);
  array = pipit::Array(ArrayView(moved));
  EXPECT_NE(array.view().data, data);
  EXPECT_EQ(array.shape(), moved.shape());
  EXPECT_EQ(array.dtype(), pipit::DType::f32);
}

}  // namespace
