#include "pipit/detail/floors.h"

#include <algorithm>

#include "pipit/detail/memory_use.h"

namespace pipit::internal::detail {

namespace {

// Bytes that all steps read of them, each constant once.
double weights_of_run(const ExecutionPlan& plan) {
  const MemoryUse use = memory_use(plan);
  return static_cast<double>(use.packed + use.constants);
}

}  // namespace

Floors::Floors(const ExecutionPlan& plan, const Ceilings& ceilings)
    : ceilings_(ceilings),
      on_gpu_(plan.options().device == DeviceKind::cuda),
      weights_(weights_of_run(plan)) {}

StepFloor Floors::of(const Step& step, const StepWork& work) const {
  StepFloor floor;
  if (step.on_host) return floor;  // copies and a kernel of the CPU, whose ceilings are others
  const auto runs = static_cast<double>(work.runs);
  const auto longest = [&](double ms, const std::string& bound) {
    if (ms <= floor.ms) return;
    floor.ms = ms;
    floor.bound = bound;
  };
  for (const KernelWork& part : work.products) {
    const ArithmeticCeiling* ceiling = ceilings_.find(part.products, part.isa);
    // Of ceilings that were measured before bf16 was: tensor cores multiply halves as fast.
    if (ceiling == nullptr && on_gpu_ && part.products == Products::bf16)
      ceiling = ceilings_.find(Products::fp16, part.isa);
    if (ceiling == nullptr) ceiling = ceilings_.find(Products::fp32);
    if (ceiling == nullptr) continue;
    const double flops = runs * 2 * static_cast<double>(part.macs);
    floor.compute_ms += 1e3 * flops / ceiling->flops.best;
    if (ceiling->tile.best > 0) floor.tile_ms += 1e3 * flops / ceiling->tile.best;
  }
  longest(floor.compute_ms, "compute");
  double nearer = 0;  // bytes that lie nearer
  for (const MemoryCeiling& level : ceilings_.memory) {
    const double kept = weights_ > 0 ? std::min(1.0, nearer / weights_) : 1;
    const double read = std::max(0.0, static_cast<double>(work.read) - nearer) +
                        static_cast<double>(work.weights) * (1 - kept);
    const double written = std::max(0.0, static_cast<double>(work.written) - nearer);
    const double ms = runs * level.floor_ms(read, written);
    floor.bytes_ms = std::max(floor.bytes_ms, ms);
    longest(ms, level.name);
    nearer = static_cast<double>(level.bytes);
  }
  if (on_gpu_ && ceilings_.launches.best > 0) longest(1e3 * runs / ceilings_.launches.best, "launch");
  return floor;
}

}  // namespace pipit::internal::detail
