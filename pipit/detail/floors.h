// What a step takes at least on a machine whose ceilings are known (docs/floors.md).
#pragma once

#include <string>

#include "engine/platform/ceilings.h"
#include "pipit/detail/step_work.h"

namespace pipit::internal::detail {

struct StepFloor {
  double ms = 0;  ///< the longest of the times below
  std::string
      bound;  ///< what takes so long: "compute", "launch", or a level of Ceilings::memory; empty: nothing does
  double compute_ms = 0;
  double tile_ms = 0;   ///< the arithmetic at the rate of tiles (ArithmeticCeiling::tile); 0: not measured
  double bytes_ms = 0;  ///< of the slowest level

  /// The share of a measured time that nothing could save.
  double share_of(double measured_ms) const { return measured_ms > 0 ? ms / measured_ms : 0; }
};

/// The floors of a plan's steps, each for all micro-batches of a run:
///   arithmetic  the kernel's own products at the rate of the instructions that multiply them, one part after the other
///   bytes       for each memory what cannot lie in a nearer one, at its bandwidth: of activations what is more than
///               the nearer one holds; of weights, which every run reads in the same order, the share that it could not
///               keep of those of the whole run
///   launch      on a GPU: one kernel after another
/// All of these overlap, so the longest is the floor.
class Floors {
 public:
  Floors(const ExecutionPlan& plan, const Ceilings& ceilings);
  StepFloor of(const Step& step, const StepWork& work) const;

 private:
  const Ceilings& ceilings_;
  bool on_gpu_;
  double weights_;  // bytes of all steps
};

}  // namespace pipit::internal::detail
