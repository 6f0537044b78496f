// Runs on a GPU through the public headers alone: many at once, and in memory of the GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pipit/pipit.h>

#include <atomic>
#include <optional>
#include <thread>

#include "tests/pipit/models.h"

namespace {

using pipit::ArrayView;
using pipit::AsyncOptions;
using pipit::AsyncRunner;
using pipit::CompiledModel;
using pipit::DeviceArray;
using pipit::Error;
using pipit::GpuMemory;
using pipit::LoadOptions;
using pipit::ModelSession;
using pipit::MutableArrayView;
using pipit::Shape;
using pipit::internal::test::Onnx;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Throws;
using ::testing::ThrowsMessage;

constexpr char kModel[] = "resnet20-cifar10";
const Shape kImage{1, 3, 32, 32};
const Shape kScores{1, 10};

LoadOptions on_gpu() {
  LoadOptions options;
  options.device.kind = pipit::DeviceKind::cuda;
  return options;
}

// Empty, or why nothing runs on a GPU here.
const std::string& problem() {
  static const std::string text = [] {
    try {
      CompiledModel(kModel, on_gpu());
      return std::string();
    } catch (const Error& error) {
      return std::string(error.what());
    }
  }();
  return text;
}

class Gpu : public testing::Test {
 protected:
  void SetUp() override {
    if (!problem().empty()) GTEST_SKIP() << problem();
  }
};

std::vector<float> image(unsigned seed) {
  std::vector<float> values(3 * 32 * 32);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>((i * 2654435761U + seed * 40503U) % 1000) / 500 - 1;
  return values;
}

// Images 0 to `count` - 1 and what a session on the GPU says of each.
struct Samples {
  explicit Samples(const CompiledModel& model, unsigned count) {
    ModelSession session = model.session();
    for (unsigned i = 0; i < count; ++i) {
      const std::span<const float> found =
          session.run({{images.emplace_back(image(i)), kImage}})[0].values<float>();
      scores.emplace_back(found.begin(), found.end());
    }
  }
  std::vector<ArrayView> input(std::size_t i) const { return {{images[i], kImage}}; }
  std::vector<std::vector<float>> images, scores;
};

std::vector<std::vector<float>> room(std::size_t count) {
  return std::vector(count, std::vector<float>(10));
}

TEST_F(Gpu, ARunnerGivesWhatASessionGives) {
  constexpr std::size_t kRuns = 60;
  const CompiledModel model(kModel, on_gpu());
  const Samples samples(model, kRuns);
  for (const AsyncOptions& options :
       {AsyncOptions{}, AsyncOptions{.streams = 1, .queue = 1}, AsyncOptions{.streams = 2, .queue = 3},
        AsyncOptions{.streams = 4}, AsyncOptions{.streams = 3, .queue = 100}}) {
    AsyncRunner runner(model, options);
    EXPECT_EQ(runner.streams(), std::max(1, options.streams));
    for (int round = 0; round < 3; ++round) {
      std::vector<std::vector<float>> found = room(kRuns);
      std::atomic<int> errors = 0;
      for (std::size_t i = 0; i < kRuns; ++i) {
        const std::vector<MutableArrayView> into = {{found[i], kScores}};
        runner.submit(samples.input(i), into, [&](const std::exception_ptr& e) { errors += e ? 1 : 0; });
      }
      runner.wait();
      EXPECT_EQ(errors, 0);
      EXPECT_EQ(found, samples.scores) << options.streams << " streams, round " << round;
    }
  }
}

TEST_F(Gpu, AStreamEndsRunsInTheirOrder) {
  constexpr std::size_t kRuns = 40;
  const CompiledModel model(kModel, on_gpu());
  const Samples samples(model, 4);
  AsyncRunner runner(model, {.streams = 1, .queue = 5});
  std::vector<std::vector<float>> found = room(kRuns);
  std::vector<std::size_t> ended;
  for (std::size_t i = 0; i < kRuns; ++i) {
    const std::vector<MutableArrayView> into = {{found[i], kScores}};
    runner.submit(samples.input(i % 4), into, [&ended, i](const std::exception_ptr&) { ended.push_back(i); });
  }
  runner.wait();
  std::vector<std::size_t> in_order(kRuns);
  for (std::size_t i = 0; i < kRuns; ++i) in_order[i] = i;
  EXPECT_EQ(ended, in_order);
  for (std::size_t i = 0; i < kRuns; ++i) EXPECT_EQ(found[i], samples.scores[i % 4]);
}

TEST_F(Gpu, RunsOfWrongArraysFailAlone) {
  const CompiledModel model(kModel, on_gpu());
  const Samples samples(model, 2);
  AsyncRunner runner(model, {.streams = 1, .queue = 20});
  std::vector<std::future<std::vector<pipit::Array>>> futures;
  for (int i = 0; i < 12; ++i) {
    const Shape shape = i % 3 == 1 ? Shape{1, 3, 1024} : kImage;
    futures.push_back(runner.submit({{samples.images[0], shape}}));
  }
  for (std::size_t i = 0; i < futures.size(); ++i) {
    if (i % 3 == 1) {
      EXPECT_THAT([&] { futures[i].get(); },
                  ThrowsMessage<Error>(AllOf(HasSubstr(kModel), HasSubstr("1x3x1024"))));
    } else {
      const std::vector<pipit::Array> outputs = futures[i].get();
      const std::span<const float> found = outputs[0].values<float>();
      EXPECT_EQ(std::vector(found.begin(), found.end()), samples.scores[0]);
    }
  }
}

// What the GPU finds while it runs belongs to one run, however many are on it.
TEST_F(Gpu, RunsOfWrongValuesFailAlone) {
  const std::string file = Onnx()
                               .input("x", {4, 3})
                               .input("indices", {5}, 7)
                               .node("Gather", {"x", "indices"}, "y")
                               .output("y")
                               .file();
  const CompiledModel model(std::as_bytes(std::span(file)), "gather.onnx", on_gpu());
  const std::vector<float> x = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  constexpr std::size_t kRuns = 60;
  for (const int streams : {1, 3}) {
    AsyncRunner runner(model, {.streams = streams});
    std::vector<std::vector<std::int64_t>> indices(kRuns);
    std::vector<std::vector<float>> found(kRuns, std::vector<float>(15));
    std::vector<std::future<void>> futures;
    for (std::size_t i = 0; i < kRuns; ++i) {
      const auto last = static_cast<std::int64_t>(i % 7 == 3 || i % 11 == 5 ? 9 : i % 4);
      indices[i] = {0, 1, 2, 3, last};
      const std::vector<ArrayView> inputs = {{x, Shape{4, 3}}, {indices[i], Shape{5}}};
      const std::vector<MutableArrayView> outputs = {{found[i], Shape{5, 3}}};
      futures.push_back(runner.submit(inputs, outputs));
    }
    for (std::size_t i = 0; i < kRuns; ++i) {
      if (indices[i][4] == 9) {
        EXPECT_THAT([&] { futures[i].get(); }, ThrowsMessage<Error>(HasSubstr("9"))) << "run " << i;
        continue;
      }
      EXPECT_NO_THROW(futures[i].get()) << "run " << i;
      for (std::size_t k = 0; k < 15; ++k) {
        const auto row = static_cast<std::size_t>(indices[i][k / 3]);
        EXPECT_EQ(found[i][k], x[3 * row + k % 3]) << "run " << i << ", element " << k;
      }
    }
  }
}

TEST_F(Gpu, ARunnerEndsWhatIsQueuedWhenItIsDestroyed) {
  const CompiledModel model(kModel, on_gpu());
  const Samples samples(model, 1);
  for (const int streams : {1, 3}) {
    std::vector<std::vector<float>> found = room(50);
    std::atomic<int> ended = 0;
    {
      std::optional<AsyncRunner> runner(std::in_place, model, AsyncOptions{.streams = streams, .queue = 50});
      for (std::vector<float>& memory : found) {
        const std::vector<MutableArrayView> into = {{memory, kScores}};
        runner->submit(samples.input(0), into, [&](const std::exception_ptr& e) { ended += e ? 100 : 1; });
      }
      runner.reset();
    }
    EXPECT_EQ(ended, 50);
    for (const std::vector<float>& scores : found) EXPECT_EQ(scores, samples.scores[0]);
  }
}

TEST_F(Gpu, KeepsWhatCallbacksThrow) {
  const CompiledModel model(kModel, on_gpu());
  const Samples samples(model, 1);
  AsyncRunner runner(model, {.streams = 2});
  std::vector<std::vector<float>> found = room(8);
  for (std::vector<float>& memory : found) {
    const std::vector<MutableArrayView> into = {{memory, kScores}};
    runner.submit(samples.input(0), into,
                  [](const std::exception_ptr&) { throw std::runtime_error("done"); });
  }
  EXPECT_THAT([&] { runner.wait(); }, ThrowsMessage<std::runtime_error>("done"));
  for (const std::vector<float>& scores : found) EXPECT_EQ(scores, samples.scores[0]);
  runner.submit(samples.input(0)).get();
}

TEST_F(Gpu, RunsInMemoryOfTheGpu) {
  constexpr std::size_t kSets = 11;  // more than the session remembers
  const CompiledModel model(kModel, on_gpu());
  const Samples samples(model, kSets);
  ModelSession session = model.session();
  std::vector<GpuMemory> inputs, outputs;
  for (std::size_t i = 0; i < kSets; ++i) {
    inputs.emplace_back(3 * 32 * 32 * sizeof(float), 0).copy_from(samples.images[i].data(), 3 * 32 * 32 * 4);
    outputs.emplace_back(10 * sizeof(float), 0);
  }
  const auto run = [&](std::size_t i) {
    const DeviceArray input(static_cast<float*>(inputs[i].data()), kImage);
    const DeviceArray output(static_cast<float*>(outputs[i].data()), kScores);
    session.run_on_device({&input, 1}, {&output, 1});
  };
  const std::vector<float> nothing(10);
  for (int round = 0; round < 4; ++round) {
    for (std::size_t i = 0; i < kSets; ++i) run(i);
    if (round == 2) {
      for (int k = 0; k < 5; ++k) run(3);
    }
    for (std::size_t i = 0; i < kSets; ++i) {
      std::vector<float> found(10);
      outputs[i].copy_to(found.data(), 40);
      EXPECT_EQ(found, samples.scores[i]) << "set " << i << ", round " << round;
      outputs[i].copy_from(nothing.data(), 40);
    }
  }
  EXPECT_NO_THROW(pipit::order_streams(0, nullptr, nullptr));
}

TEST_F(Gpu, MemoryHasBounds) {
  GpuMemory memory(16, 0);
  EXPECT_EQ(memory.bytes(), 16U);
  EXPECT_EQ(memory.gpu(), 0);
  std::vector<int> values = {1, 2, 3, 4}, found(4);
  memory.copy_from(values.data(), 16);
  GpuMemory moved = std::move(memory);
  moved.copy_to(found.data(), 16);
  EXPECT_EQ(found, values);
  EXPECT_THAT([&] { moved.copy_from(values.data(), 17); }, ThrowsMessage<Error>(HasSubstr("17 bytes")));
  EXPECT_THAT([&] { moved.copy_to(values.data(), 17); }, ThrowsMessage<Error>(HasSubstr("17 bytes")));
  EXPECT_THAT([] { GpuMemory(16, 99); }, ThrowsMessage<Error>(HasSubstr("no GPU 99")));
  EXPECT_EQ(GpuMemory(0, 0).data(), nullptr);
}

TEST(GpuMemory, SaysWhereThereIsNoGpu) {
  if (problem().empty()) GTEST_SKIP() << "there is one";
  EXPECT_THAT([] { GpuMemory(16, 0); }, Throws<Error>());
  EXPECT_EQ(GpuMemory().data(), nullptr);
}

}  // namespace
