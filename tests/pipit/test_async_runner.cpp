// Many runs at once, through the public headers alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pipit/pipit.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <optional>
#include <thread>

#include "tests/pipit/models.h"
#include "tests/support/allocation_counter.h"

namespace {

using pipit::ArgumentError;
using pipit::Array;
using pipit::ArrayView;
using pipit::AsyncOptions;
using pipit::AsyncRunner;
using pipit::CompiledModel;
using pipit::Error;
using pipit::LoadOptions;
using pipit::MutableArrayView;
using pipit::Shape;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::ThrowsMessage;

constexpr char kModel[] = "resnet20-cifar10";
const Shape kImage{1, 3, 32, 32};

LoadOptions threads(int count) {
  LoadOptions options;
  options.device.threads = count;
  return options;
}

std::vector<float> image(unsigned seed) {
  std::vector<float> values(3 * 32 * 32);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>((i * 2654435761U + seed * 40503U) % 1000) / 500 - 1;
  return values;
}

std::vector<float> values(const Array& array) {
  const std::span<const float> all = array.values<float>();
  return {all.begin(), all.end()};
}

// What a session says of images 0 to `count` - 1.
std::vector<std::vector<float>> expected_scores(unsigned count) {
  pipit::ModelSession session = CompiledModel(kModel, threads(1)).session();
  std::vector<std::vector<float>> all;
  for (unsigned i = 0; i < count; ++i) {
    const std::span<const float> scores = session.run({{image(i), kImage}})[0].values<float>();
    all.emplace_back(scores.begin(), scores.end());
  }
  return all;
}

TEST(AsyncRunner, GivesWhatASessionGives) {
  constexpr unsigned kRuns = 40;
  const std::vector<std::vector<float>> expected = expected_scores(kRuns);
  const CompiledModel of_one(kModel, threads(1)), of_three(kModel, threads(3));
  for (const AsyncOptions& options : {AsyncOptions{1, 1, 1}, AsyncOptions{2, 2, 1}, AsyncOptions{2, 3, 3},
                                      AsyncOptions{3, 3, 0}, AsyncOptions{1, 3, 100}}) {
    for (const CompiledModel& model : {of_one, of_three}) {
      AsyncRunner runner(model, options);
      EXPECT_EQ(runner.streams(), options.streams);
      std::vector<std::future<std::vector<Array>>> futures;
      for (unsigned i = 0; i < kRuns; ++i) futures.push_back(runner.submit({{image(i), kImage}}));
      for (unsigned i = 0; i < kRuns; ++i) {
        const std::vector<Array> outputs = futures[i].get();
        ASSERT_THAT(outputs, SizeIs(1));
        EXPECT_EQ(outputs[0].shape(), (Shape{1, 10}));
        EXPECT_EQ(values(outputs[0]), expected[i]) << "run " << i;
      }
    }
  }
}

TEST(AsyncRunner, ChoosesStreamsByThreads) {
  EXPECT_EQ(AsyncRunner(kModel, threads(3)).streams(), 3);
  EXPECT_EQ(AsyncRunner(kModel, threads(1), {.threads = 4}).streams(), 4);
  EXPECT_EQ(AsyncRunner(CompiledModel(kModel, threads(2)), {.threads = 5}).streams(), 2);
  EXPECT_EQ(AsyncRunner(CompiledModel(kModel, threads(4)), {.threads = 3}).streams(), 3);
  EXPECT_EQ(AsyncRunner(kModel, threads(4), {.streams = 2}).model().name(), kModel);
  const auto refused = [](const AsyncOptions& options, const char* text) {
    EXPECT_THAT([&] { AsyncRunner(kModel, threads(1), options); },
                ThrowsMessage<ArgumentError>(HasSubstr(text)));
  };
  refused({.streams = 3, .threads = 2}, "3 streams and 2 threads");
  refused({.streams = -1}, "streams is -1");
  refused({.threads = 2000}, "threads is 2000");
  refused({.queue = -1}, "queue is -1");
}

TEST(AsyncRunner, RunsInTheCallersMemoryWithAFutureOrACallback) {
  constexpr unsigned kRuns = 12;
  const std::vector<std::vector<float>> expected = expected_scores(kRuns);
  AsyncRunner runner(kModel, threads(2));
  std::vector<std::vector<float>> images;
  std::vector<std::vector<float>> scores(kRuns, std::vector<float>(10));
  for (unsigned i = 0; i < kRuns; ++i) images.push_back(image(i));
  std::vector<std::future<void>> futures;
  std::atomic<int> called = 0;
  for (std::size_t i = 0; i < kRuns; ++i) {
    const std::vector<ArrayView> inputs = {{images[i], kImage}};
    const std::vector<MutableArrayView> outputs = {{scores[i], Shape{1, 10}}};
    if (i % 2 == 0) {
      futures.push_back(runner.submit(inputs, outputs));
    } else {
      runner.submit(inputs, outputs, [&](const std::exception_ptr& error) { called += error ? 100 : 1; });
    }
  }
  for (std::future<void>& future : futures) future.get();
  runner.wait();
  EXPECT_EQ(called, 6);
  EXPECT_EQ(scores, expected);
}

TEST(AsyncRunner, ThrowsThroughFuturesAndCallbacks) {
  AsyncRunner runner(kModel, threads(2));
  const std::vector<float> pixels = image(1);
  std::future<std::vector<Array>> wrong = runner.submit({{pixels, Shape{1, 3, 1024}}});
  std::future<std::vector<Array>> none = runner.submit(std::span<const ArrayView>());
  std::future<std::vector<Array>> right = runner.submit({{pixels, kImage}});
  EXPECT_THAT([&] { wrong.get(); }, ThrowsMessage<Error>(AllOf(HasSubstr(kModel), HasSubstr("1x3x1024"))));
  EXPECT_THAT([&] { none.get(); }, ThrowsMessage<Error>(HasSubstr("got 0 inputs, the model has 1")));
  EXPECT_THAT(right.get(), SizeIs(1));
  std::vector<float> scores(11);
  const std::vector<ArrayView> inputs = {{pixels, kImage}};
  const std::vector<MutableArrayView> outputs = {{scores, Shape{11}}};
  std::future<void> future = runner.submit(inputs, outputs);
  EXPECT_THAT([&] { future.get(); }, ThrowsMessage<Error>(HasSubstr("got f32 11")));
  std::exception_ptr given;
  runner.submit(inputs, outputs, [&](std::exception_ptr error) { given = std::move(error); });
  runner.wait();
  EXPECT_THAT([&] { std::rethrow_exception(given); }, ThrowsMessage<Error>(HasSubstr("got f32 11")));
  ArrayView nothing;
  nothing.shape = kImage;
  EXPECT_THAT([&] { runner.submit({nothing}); }, ThrowsMessage<Error>(HasSubstr("without data")));
  nothing.dtype = static_cast<pipit::DType>(99);
  EXPECT_THAT([&] { runner.submit({nothing}); },
              ThrowsMessage<pipit::ArgumentError>(HasSubstr("dtype is 99")));
}

TEST(AsyncRunner, KeepsWhatCallbacksThrow) {
  const std::vector<float> pixels = image(1);
  std::vector<float> scores(10);
  AsyncRunner runner(kModel, threads(1));
  const std::vector<ArrayView> inputs = {{pixels, kImage}};
  const std::vector<MutableArrayView> outputs = {{scores, Shape{1, 10}}};
  for (const char* text : {"first", "second"})
    runner.submit(inputs, outputs, [=](const std::exception_ptr&) { throw std::runtime_error(text); });
  EXPECT_THAT([&] { runner.wait(); }, ThrowsMessage<std::runtime_error>("first"));
  runner.wait();
  EXPECT_THAT(runner
                  .submit(inputs)  // it goes on
                  .get(),
              SizeIs(1));
  runner.submit(inputs, outputs, [](const std::exception_ptr&) { throw 1; });  // lost with the runner
}

TEST(AsyncRunner, CallbacksMaySubmitAsLongAsThereIsRoom) {
  AsyncRunner runner(kModel, threads(1), {.queue = 2});
  const std::vector<float> pixels = image(1);
  std::vector<float> scores(10), more(10), too_many(10);
  const std::vector<ArrayView> inputs = {{pixels, kImage}};
  const auto into = [](std::vector<float>& memory) {
    return std::vector<MutableArrayView>{{memory, Shape{1, 10}}};
  };
  std::atomic<int> ended = 0;
  std::string full, waits;
  runner.submit(inputs, into(scores), [&](const std::exception_ptr&) {
    const auto count = [&](const std::exception_ptr&) { ++ended; };
    runner.submit(inputs, into(more), count);
    runner.submit(inputs, into(more), count);  // one stream: the first ends before the second begins
    try {
      runner.submit(inputs, into(too_many), count);
    } catch (const Error& e) {
      full = e.what();
    }
    try {
      runner.wait();
    } catch (const Error& e) {
      waits = e.what();
    }
  });
  runner.wait();
  EXPECT_EQ(ended, 2);
  EXPECT_EQ(more, scores);
  EXPECT_THAT(full, HasSubstr("queue of 2 runs is full"));
  EXPECT_THAT(waits, HasSubstr("cannot wait"));
}

TEST(AsyncRunner, EndsWhatIsQueuedWhenItIsDestroyedOrAssignedTo) {
  const std::vector<float> pixels = image(1);
  const std::vector<ArrayView> inputs = {{pixels, kImage}};
  std::vector<std::future<std::vector<Array>>> futures;
  std::atomic<int> ended = 0;
  std::vector<std::vector<float>> scores(20, std::vector<float>(10));
  {
    std::optional<AsyncRunner> moved;
    {
      const CompiledModel model(kModel, threads(1));
      AsyncRunner runner(model, {.streams = 2, .threads = 2, .queue = 30});
      for (int i = 0; i < 10; ++i) futures.push_back(runner.submit(inputs));
      moved.emplace(std::move(runner));
    }
    for (std::vector<float>& memory : scores) {
      const std::vector<MutableArrayView> outputs = {{memory, Shape{1, 10}}};
      moved->submit(inputs, outputs, [&](const std::exception_ptr&) { ++ended; });
    }
    *moved = AsyncRunner(kModel, threads(1));
    EXPECT_EQ(ended, 20);
    AsyncRunner& same = *moved;
    *moved = std::move(same);
    EXPECT_EQ(moved->streams(), 1);
    futures.push_back(moved->submit(inputs));
  }
  for (std::future<std::vector<Array>>& future : futures) {
    ASSERT_EQ(future.wait_for(std::chrono::seconds(0)), std::future_status::ready);
    EXPECT_EQ(values(future.get()[0]), scores[0]);
  }
}

TEST(AsyncRunner, TakesRunsFromManyThreads) {
  constexpr unsigned kThreads = 4, kRuns = 10;
  const std::vector<std::vector<float>> expected = expected_scores(kThreads);
  AsyncRunner runner(kModel, threads(2), {.queue = 3});
  std::vector<std::jthread> running;
  std::atomic<int> right = 0;
  for (unsigned t = 0; t < kThreads; ++t) {
    running.emplace_back([&, t] {
      for (unsigned r = 0; r < kRuns; ++r)
        right += values(runner.submit({{image(t), kImage}}).get()[0]) == expected[t] ? 1 : 0;
    });
  }
  running.clear();
  EXPECT_EQ(right, kThreads * kRuns);
}

TEST(AsyncRunner, AllocatesNothingInSteadyState) {
  if (!pipit::internal::test::AllocationCounter::available()) GTEST_SKIP() << "malloc belongs to a sanitizer";
  AsyncRunner runner(kModel, threads(2), {.queue = 4});
  const std::vector<float> pixels = image(1);
  const std::vector<ArrayView> inputs = {{pixels, kImage}};
  std::vector<std::vector<float>> memory(16, std::vector<float>(10));
  std::vector<std::vector<MutableArrayView>> outputs;
  for (std::vector<float>& scores : memory) outputs.push_back({{scores, Shape{1, 10}}});
  std::atomic<int> ended = 0;
  const auto round = [&] {
    for (const std::vector<MutableArrayView>& into : outputs)
      runner.submit(inputs, into, [&ended](const std::exception_ptr&) { ++ended; });
    runner.wait();
  };
  round();
  long allocations = 0;
  {
    const pipit::internal::test::AllocationCounter counter;
    round();
    round();
    allocations = counter.count();
  }
  EXPECT_EQ(allocations, 0);
  EXPECT_EQ(ended, 48);
}

TEST(AsyncRunner, SaysInAChildThatItHasNoThreads) {
  AsyncRunner runner(kModel, threads(2));
  const std::vector<float> pixels = image(1);
  runner.submit({{pixels, kImage}}).get();
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(60);
    int code = 1;
    {
      AsyncRunner moved = std::move(runner);
      try {
        moved.submit({{pixels, kImage}});
      } catch (const Error& e) {
        code = std::string(e.what()).find("fork()") != std::string::npos ? 0 : 2;
      }
    }
    AsyncRunner own(kModel, threads(2));
    if (own.submit({{pixels, kImage}}).get().size() != 1) code = 3;
    _exit(code);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_THAT(runner.submit({{pixels, kImage}}).get(), SizeIs(1));
}

}  // namespace
