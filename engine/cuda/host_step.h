// A step of a GPU plan that runs on the CPU (PlanOptions::allow_fallback).
#pragma once

#include <exception>
#include <mutex>
#include <vector>

#include "engine/cuda/runtime.h"
#include "engine/plan/execution_plan.h"

namespace pipit::internal::cuda {

/// Copies the operands out, calls the CPU kernel from a host function of the stream and copies the results in: all of
/// it in the order of the stream, so that it can be captured like the launches around it. Operands stored in 16
/// bits are converted first: the kernel computes in f32.
class HostStep {
 public:
  /// `step` and `pool` must outlive this and everything enqueued.
  HostStep(const Step& step, ThreadPool& pool);
  HostStep(const HostStep&) = delete;
  HostStep& operator=(const HostStep&) = delete;

  /// Device views as the step's placements say; those of constants are not read. Errors of the kernel come from
  /// check().
  void enqueue(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
               cudaStream_t stream);
  /// Throws what the kernel threw in a finished run, once.
  void check();

 private:
  // One operand: as the device stores it, and where that is in 16 bits as f32 too.
  struct Staged {
    PinnedBuffer device;
    HostBuffer widened;
    TensorDesc stored;
  };
  static void CUDART_CB call(void* self);
  void run();

  const Step& step_;
  ThreadPool& pool_;
  std::vector<Staged> staged_inputs_;  // empty buffers for constants and absent operands
  std::vector<Staged> staged_outputs_;
  std::vector<ConstTensorView> inputs_;  // what the kernel gets
  std::vector<TensorView> outputs_;
  HostBuffer scratch_;
  HostBuffer state_;
  std::mutex mutex_;
  std::exception_ptr error_;
};

}  // namespace pipit::internal::cuda
