#include "pipit/measuring/turns.h"

#include "engine/base/clock.h"
#include "engine/base/measuring_time.h"
#include "engine/base/time_ratio.h"

namespace pipit::internal::detail {

namespace {

constexpr std::size_t kMinPairs = 9;
constexpr std::size_t kMinBenchedPairs = 24;  // compare_turns() takes them in blocks of three
constexpr int kRepeats = 5;                   // on a GPU
constexpr int kMinWarmup = 2;
constexpr double kPairConfidence = 0.95;
// Of estimated_speedup().
constexpr double kFirstPairsMs = 250;
constexpr double kNarrowPairs = 0.02;

// On a GPU the time of the device: copies to and from the host would hide what precisions differ by.
double timed_run(Session& session, std::span<const ConstTensorView> inputs) {
  if (DeviceSession* device = session.device_session()) return quantile(device->repeat_ms(kRepeats), 0.5);
  const Clock::time_point begin = Clock::now();
  session.run(inputs);
  return milliseconds_since(begin);
}

class PairedTurns {
 public:
  PairedTurns(Session& session, Session& base, std::span<const ConstTensorView> inputs)
      : session_(session), base_(base), inputs_(inputs) {}

  void warm_up(double ms) {
    for (Session* session : {&session_, &base_}) {
      const Clock::time_point begin = Clock::now();
      for (int run = 0; run < kMinWarmup || milliseconds_since(begin) < ms; ++run) session->run(inputs_);
    }
  }

  void take() {
    const auto turn = [&](Session& session) {
      const auto run = [&] { return timed_run(session, inputs_); };
      return quantile(turn_times(run, measuring_ms(kTurnMs)), 0.5);
    };
    const bool base_first = own_ms.size() % 2 == 1;
    if (base_first) base_ms.push_back(turn(base_));
    own_ms.push_back(turn(session_));
    if (!base_first) base_ms.push_back(turn(base_));
  }

  std::vector<double> own_ms, base_ms;  // medians of turns

 private:
  Session& session_;
  Session& base_;
  std::span<const ConstTensorView> inputs_;
};

}  // namespace

std::vector<double> turn_times(const std::function<double()>& run, double ms) {
  const Clock::time_point begin = Clock::now();
  std::vector<double> times;
  do {
    times.push_back(run());
  } while (milliseconds_since(begin) < ms);
  if (times.size() > 1) times.erase(times.begin());
  return times;
}

MedianInterval benched_speedup(Session& session, Session& base, std::span<const ConstTensorView> inputs,
                               std::vector<double>& base_ms) {
  PairedTurns turns(session, base, inputs);
  const double box_ms = measuring_ms(1e3 * kBenchSeconds);
  turns.warm_up(kWarmupShare * box_ms);
  const Clock::time_point begin = Clock::now();
  while (turns.own_ms.size() < kMinBenchedPairs || milliseconds_since(begin) < 2 * box_ms) turns.take();
  base_ms.insert(base_ms.end(), turns.base_ms.begin(), turns.base_ms.end());
  const TimeRatio ratio = compare_turns(turns.own_ms, turns.base_ms, kPairConfidence);
  return {ratio.ratio, ratio.low, ratio.high};
}

MedianInterval estimated_speedup(Session& session, Session& base, std::span<const ConstTensorView> inputs,
                                 std::vector<double>& base_ms, double most_ms) {
  PairedTurns turns(session, base, inputs);
  turns.warm_up(0);
  std::vector<double> ratios;
  const Clock::time_point begin = Clock::now();
  for (double next_look = measuring_ms(kFirstPairsMs);;) {
    turns.take();
    ratios.push_back(turns.base_ms.back() / turns.own_ms.back());
    const double ms = milliseconds_since(begin);
    if (ratios.size() < kMinPairs || ms < next_look) continue;
    const MedianInterval speedup = median_interval(ratios, kPairConfidence);
    const bool narrow = speedup.high - speedup.median <= kNarrowPairs * speedup.median &&
                        speedup.median - speedup.low <= kNarrowPairs * speedup.median;
    if (narrow || ms >= measuring_ms(most_ms)) {
      base_ms.insert(base_ms.end(), turns.base_ms.begin(), turns.base_ms.end());
      return speedup;
    }
    next_look = 1.5 * ms;
  }
}

}  // namespace pipit::internal::detail
