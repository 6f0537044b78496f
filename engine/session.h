// Session: a plan plus its arena. One per thread.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/device_session.h"
#include "engine/plan.h"

namespace pipit {

/// Called around every kernel. The single hook for profiling, calibration and layer-by-layer comparison.
class RunObserver {
 public:
  virtual ~RunObserver() = default;
  virtual void before_run() {}
  virtual void before_step(const Step& /*step*/) {}
  /// Views are valid during the call only; inputs may already be overwritten by an in-place kernel.
  virtual void after_step(const Step& /*step*/, std::span<const ConstTensorView> /*inputs*/,
                          std::span<const TensorView> /*outputs*/) {}
  virtual void after_run() {}
};

class Session {
 public:
  /// Allocates the arena. The pool is shared with the caller, or made for this session with the plan's thread
  /// count. A shared pool must not have more workers than the plan was built for (throws Error).
  explicit Session(std::shared_ptr<const Plan> plan, std::shared_ptr<ThreadPool> pool = nullptr);

  /// Runs the graph on `inputs`, one per graph input with exactly its desc (throws Error otherwise). The
  /// returned views, one per graph output, lie in the arena (or in an input or a constant that the graph
  /// passes through; on a GPU, in page-locked host
  /// memory) and are valid until the next run. Allocates nothing.
  std::span<const ConstTensorView> run(std::span<const ConstTensorView> inputs);

  /// Null switches observation off. The observer must outlive its use. Throws Error on a GPU, where steps run
  /// after the host has gone on: use profile_session.
  void set_observer(RunObserver* observer);
  const Plan& plan() const { return *plan_; }
  ThreadPool& pool() { return *pool_; }
  /// Null on the CPU.
  DeviceSession* device_session() { return device_.get(); }

 private:
  struct BoundStep {
    const Step* step = nullptr;
    std::vector<ConstTensorView> inputs;
    std::vector<TensorView> outputs;
    std::vector<std::pair<std::size_t, int>> from_user;  ///< (operand, graph input) to bind on every run
    std::byte* scratch = nullptr;
  };
  std::shared_ptr<const Plan> plan_;
  std::shared_ptr<ThreadPool> pool_;
  std::unique_ptr<DeviceSession> device_;
  HostBuffer arena_;
  std::vector<BoundStep> bound_;
  std::vector<ConstTensorView> outputs_;
  RunObserver* observer_ = nullptr;
};

}  // namespace pipit
