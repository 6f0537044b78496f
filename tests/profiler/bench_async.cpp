// Throughput of AsyncRunner beside that of `pipit bench --streams`: threads of the caller's with sessions of their own,
// which run the same model on the same input, in turns.
//
//   bench_async MODEL [STREAMS [THREADS [TURNS]]]
//   bench_async MODEL STREAMS THREADS TURNS BATCH PRECISION [QUEUE]      on GPU 0
#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <string_view>
#include <thread>
#include <vector>

#include "engine/platform/thread_pool.h"
#include "engine/runtime/session.h"
#include "pipit/detail/load.h"
#include "pipit/pipit.h"

namespace {

using Clock = std::chrono::steady_clock;
using namespace pipit;
using namespace pipit::internal;

double turn_ms = 500;  // longer than runs by much

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// Runs a second of threads that each run their session, as bench does.
double of_sessions(std::vector<std::unique_ptr<Session>>& sessions, std::span<const ConstTensorView> inputs) {
  std::vector<double> rates(sessions.size());
  std::vector<std::jthread> threads;
  for (std::size_t s = 0; s < sessions.size(); ++s) {
    threads.emplace_back([&, s] {
      const auto begin = Clock::now();
      int runs = 0;
      do {
        sessions[s]->run(inputs);
        ++runs;
      } while (ms_since(begin) < turn_ms);
      rates[s] = 1000 * runs / ms_since(begin);
    });
  }
  threads.clear();
  double sum = 0;
  for (const double rate : rates) sum += rate;
  return sum;
}

// Ends of runs, of which those after the last submission do not count: then streams have nothing left to do.
class Ends {
 public:
  void add() { times_[count_++] = Clock::now(); }
  double rate(Clock::time_point until) {
    times_.resize(count_);
    std::ranges::sort(times_);
    const auto end = std::ranges::upper_bound(times_, until);
    const std::chrono::duration<double> time = end[-1] - times_[0];
    return static_cast<double>(end - times_.begin() - 1) / time.count();
  }

 private:
  std::vector<Clock::time_point> times_ = std::vector<Clock::time_point>(1 << 20);
  std::atomic<std::size_t> count_ = 0;
};

double of_runner(AsyncRunner& runner, std::span<const ArrayView> inputs, std::vector<Array>& memory) {
  std::vector<MutableArrayView> outputs;
  const std::size_t each = runner.model().outputs().size();
  for (Array& array : memory) outputs.push_back(array.view());
  Ends ends;
  const auto begin = Clock::now();
  for (std::size_t at = 0; ms_since(begin) < turn_ms; at = (at + each) % outputs.size())
    runner.submit(inputs, std::span(outputs).subspan(at, each),
                  [&ends](const std::exception_ptr&) { ends.add(); });
  const auto until = Clock::now();
  runner.wait();
  return ends.rate(until);
}

double of_futures(AsyncRunner& runner, std::span<const ArrayView> inputs) {
  std::deque<std::future<std::vector<Array>>> futures;
  Ends ends;
  const auto begin = Clock::now();
  while (ms_since(begin) < turn_ms) {
    futures.push_back(runner.submit(inputs));
    if (futures.size() < 4 * static_cast<std::size_t>(runner.streams())) continue;
    futures.front().get();
    futures.pop_front();
    ends.add();
  }
  const auto until = Clock::now();
  runner.wait();
  return ends.rate(until);
}

}  // namespace

int main(int argc, char** argv) {
  const auto number = [&](int i, int otherwise) { return argc > i ? std::atoi(argv[i]) : otherwise; };
  const int streams = number(2, default_threads()), threads = number(3, default_threads());
  LoadOptions load;
  const bool on_gpu = argc > 6;
  if (on_gpu) {
    load.device.kind = DeviceKind::cuda;
    load.shapes.batch = number(5, 1);
    load.precision = std::string_view(argv[6]) == "fp16" ? Precision::fp16 : Precision::fp32;
  } else {
    load.device.threads = (threads + streams - 1) / streams;
  }
  const CompiledModel model(argc > 1 ? argv[1] : "resnet20-cifar10", load);
  std::vector<std::unique_ptr<Session>> sessions;
  for (int s = 0; s < streams; ++s) {
    const int own = on_gpu ? 1 : threads / streams + (s < threads % streams ? 1 : 0);
    sessions.push_back(std::make_unique<Session>(model.state().plans[0], std::make_shared<ThreadPool>(own)));
  }
  AsyncRunner runner(model, {.streams = streams, .threads = on_gpu ? 0 : threads, .queue = number(7, 0)});
  std::vector<Array> inputs, memory;
  std::vector<ArrayView> arrays;
  std::vector<ConstTensorView> views;
  for (const TensorInfo& info : model.inputs()) {
    MutableArrayView array = inputs.emplace_back(info.dtype, info.shape).view();
    auto* const values = static_cast<float*>(array.data);
    for (std::int64_t i = 0; i < info.shape.elements(); ++i)
      values[i] = static_cast<float>(i * 2654435761 % 1000) / 500 - 1;
    arrays.push_back(inputs.back());
    views.push_back({TensorDesc{info.shape, info.dtype}, static_cast<const std::byte*>(array.data)});
  }
  for (int i = 0; i < std::max(16 * streams, 2 * number(7, 0)); ++i) {
    for (const TensorInfo& info : model.outputs()) memory.emplace_back(info.dtype, info.shape);
  }
  std::vector<double> own, queued, futures, ratios, future_ratios;
  for (int turn = 0; turn < number(4, 15) + 1; ++turn) {
    const bool first = turn % 2 == 0;
    const double a = first ? of_sessions(sessions, views) : 0;
    const double q = of_runner(runner, arrays, memory);
    const double f = of_futures(runner, arrays);
    const double b = first ? a : of_sessions(sessions, views);
    if (turn == 0) {  // warm-up
      turn_ms = std::max(turn_ms, 20 * 1000 / b);
      continue;
    }
    own.push_back(b);
    queued.push_back(q);
    futures.push_back(f);
    ratios.push_back(q / b);
    future_ratios.push_back(f / b);
  }
  fmt::print("{}, {} streams, {} threads\n", model.name(), streams, threads);
  fmt::print("threads with sessions        {:9.1f} runs/s\n", median(own));
  fmt::print("AsyncRunner, own memory      {:9.1f} runs/s, {:.1f} %\n", median(queued), 100 * median(ratios));
  fmt::print("AsyncRunner, futures         {:9.1f} runs/s, {:.1f} %\n", median(futures),
             100 * median(future_ratios));
  return 0;
}
