// What Session hands over to where a plan's device is not the CPU.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/plan/execution_plan.h"
#include "engine/runtime/profile.h"

namespace pipit::internal {

class RunObserver;

/// One finished run of a slot.
struct SlotRun {
  std::span<const ConstTensorView> outputs;
  /// Of slots that were made to be timed, else 0: first kernel to last; on a GPU between events, without copies to and
  /// from the host.
  double kernel_ms = 0;
};

/// One session on a device: its arena, stream, constants and staging buffers.
class DeviceSession {
 public:
  virtual ~DeviceSession() = default;
  /// Session::run: host inputs of the graph's descs in (already checked), host outputs out, valid until the next
  /// run.
  virtual std::span<const ConstTensorView> run(std::span<const ConstTensorView> inputs) = 0;
  /// The same step by step, as Session::set_observer says.
  virtual std::span<const ConstTensorView> run_observed(std::span<const ConstTensorView> inputs,
                                                        RunObserver& observer) = 0;
  /// Session::run_on_device, which has checked descs and overlaps.
  virtual void run_on_device(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
                             void* stream) = 0;
  /// Session's functions of these names, which has checked the arguments and the order of the calls.
  virtual void make_slots(int count, bool timed) = 0;
  virtual TensorView slot_input(int slot, int input) = 0;
  virtual void submit(int slot) = 0;
  virtual SlotRun collect(int slot) = 0;
  /// profile_session. `progress` is called after every run, warm-up included.
  virtual Profile profile(std::span<const ConstTensorView> inputs, int warmup, int runs,
                          const std::function<void(int)>& progress) = 0;
  /// Milliseconds of the device for each of `runs` repetitions of the last run(), queued one after the other and
  /// without copies to and from the host. Not before a run().
  virtual std::vector<double> repeat_ms(int runs) = 0;
};

/// A session on the plan's GPU. Throws Error in a build without CUDA, or when memory is not to be had.
std::unique_ptr<DeviceSession> make_cuda_session(std::shared_ptr<const ExecutionPlan> plan);

}  // namespace pipit::internal
