#include "pipit/sweeping/layer_turns.h"

#include <algorithm>

#include "engine/base/clock.h"

namespace pipit::internal::detail {

namespace {

constexpr int kMinLayerTurns = 7;
constexpr int kMinSlowTurns = 3;
constexpr double kSlow = 10;  // multiple of the requested time
constexpr int kMaxLayerTurns = 2000;

}  // namespace

std::vector<TurnTimes> times_in_turns(std::span<RepeatedRun* const> runs, double seconds, bool cached) {
  const auto run_once = [&](RepeatedRun& run, TurnTimes& times) {
    times.ms.push_back(run.run_ms());
    if (cached) times.cached_ms.push_back(run.cached_ms());
  };
  std::vector<TurnTimes> times(runs.size());
  for (RepeatedRun* run : runs) {
    TurnTimes warm_up;
    run_once(*run, warm_up);
  }
  const Clock::time_point start = Clock::now();
  const auto goes_on = [&](int turns) {
    const double passed = milliseconds_since(start) / 1e3;
    if (turns >= kMaxLayerTurns) return false;
    return passed < seconds || turns < kMinSlowTurns ||
           (turns < kMinLayerTurns && passed < std::max(kSlow * seconds, 1.0));
  };
  for (int turn = 0; goes_on(turn); ++turn) {
    for (std::size_t r = 0; r < runs.size(); ++r) {
      const std::size_t at = turn % 2 == 0 ? r : runs.size() - 1 - r;
      run_once(*runs[at], times[at]);
    }
  }
  return times;
}

}  // namespace pipit::internal::detail
