// Times runs in turns.
#pragma once

#include <span>
#include <vector>

namespace pipit::internal::detail {

/// What can be timed in turns with others.
class RepeatedRun {
 public:
  virtual ~RepeatedRun() = default;
  /// Milliseconds of a run: on the CPU of a whole one, on a GPU of its kernels, with operands in memory.
  virtual double run_ms() = 0;
  /// The same with operands in the second-level cache of a GPU.
  virtual double cached_ms() { return 0; }
};

/// The times of each turn.
struct TurnTimes {
  std::vector<double> ms;
  std::vector<double> cached_ms;  ///< if requested
};
/// All of them one after the other, in turns of alternating order: the second finds the caches as the first left
/// them. For `seconds`, but at least 7 turns; of layers that take long 3, where 7 take ten times that time and a
/// second.
std::vector<TurnTimes> times_in_turns(std::span<RepeatedRun* const> runs, double seconds, bool cached);

}  // namespace pipit::internal::detail
