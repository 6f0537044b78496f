// What profiling costs a run: bench_profiler [MODEL] [TURNS]. A session runs with the profiler and without in turns, so
// that where its memory lies and what the machine does disturb both alike; the order changes from turn to turn.
#include <fmt/format.h>

#include <cstdlib>
#include <random>
#include <vector>

#include "compile/compile.h"
#include "engine/base/clock.h"
#include "engine/base/statistics.h"
#include "engine/base/time_ratio.h"
#include "engine/runtime/profiler.h"
#include "models/model.h"

int main(int count, char** arguments) try {
  const char* name = count > 1 ? arguments[1] : "resnet50";
  const int turns = count > 2 ? std::atoi(arguments[2]) : 500;
  pipit::internal::Model model = pipit::internal::load_model(name, {});
  pipit::internal::Session session(pipit::internal::compile(std::move(model.graph)).plans.at(0));
  const pipit::internal::Graph& graph = session.plan().graph();
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<pipit::internal::Tensor> inputs;
  std::vector<pipit::internal::ConstTensorView> views;
  for (const pipit::internal::ValueId id : graph.inputs()) inputs.emplace_back(graph.value(id).desc);
  for (pipit::internal::Tensor& input : inputs) {
    for (float& x : input.values<float>()) x = normal(random);
    views.push_back(input.view());
  }
  pipit::internal::Profiler profiler(session.plan(), turns);
  for (int r = 0; r < 20; ++r) session.run(views);
  const auto timed = [&](pipit::internal::RunObserver* observer) {
    session.set_observer(observer);
    const auto begin = pipit::internal::Clock::now();
    session.run(views);
    return pipit::internal::milliseconds_since(begin);
  };
  std::vector<double> without, with;
  for (int t = 0; t < turns; ++t) {
    if (t % 2 == 0) without.push_back(timed(nullptr));
    with.push_back(timed(&profiler));
    if (t % 2 == 1) without.push_back(timed(nullptr));
  }
  const pipit::internal::TimeRatio ratio = pipit::internal::compare_turns(without, with);
  fmt::print("{}: {:.4f} ms, with the profiler {:.4f} ms, median ratio of {} turns {:.5f} [{:.5f}, {:.5f}]\n",
             name, pipit::internal::quantile(without, 0.5), pipit::internal::quantile(with, 0.5), turns,
             ratio.ratio, ratio.low, ratio.high);
  return 0;
} catch (const std::exception& e) {
  fmt::print(stderr, "bench_profiler: {}\n", e.what());
  return 1;
}
