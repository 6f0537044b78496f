// Sessions that run in turns, so that what disturbs one disturbs the other as much: what bench compares, and the
// speedups of pruned models.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "engine/base/statistics.h"
#include "engine/runtime/session.h"

namespace pipit::internal::detail {

/// How long bench runs one row before the next one has its turn, in ms.
inline constexpr double kTurnMs = 10;
/// How long bench measures a row, in s, unless its options say another time.
inline constexpr double kBenchSeconds = 2;
/// The share of that time for which a row runs before it is measured, at least.
inline constexpr double kWarmupShare = 0.1;

/// The times of the runs of one turn: `run` returns the time of one and is called at least once, and again until `ms`
/// have passed. Runs after the first one find their weights where that one left them; of several the first does not
/// count.
std::vector<double> turn_times(const std::function<double()>& run, double ms);

/// How many times as fast as `base` a run of `session` is, by the rule of bench with BenchOptions::against and its time
/// box: turns of kTurnMs of both in alternating order, and the median of the turns' ratios with its 95 % interval
/// (compare_turns()). At least 24 turns, however long they take. `base_ms` collects the base's median of each turn.
MedianInterval benched_speedup(Session& session, Session& base, std::span<const ConstTensorView> inputs,
                               std::vector<double>& base_ms);

/// The same in less time, for choosing among many: as many turns as make the interval narrow (2 % to either side), nine
/// at least, otherwise for `most_ms` at most. The interval is that of the sign test (median_interval()), which few
/// turns suffice for. On a GPU both functions take the time of the device, without copies.
MedianInterval estimated_speedup(Session& session, Session& base, std::span<const ConstTensorView> inputs,
                                 std::vector<double>& base_ms, double most_ms = 3000);

}  // namespace pipit::internal::detail
