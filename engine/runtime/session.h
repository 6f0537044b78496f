// Session: a plan plus its arena. One per thread.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/plan/execution_plan.h"
#include "engine/runtime/device_session.h"
#include "engine/runtime/output_uses.h"

namespace pipit::internal {

/// Called around every kernel: where the batch runs in parts (ExecutionPlan::micro_batches), once for each of them,
/// with its views. The single hook for profiling, calibration and layer-by-layer comparison.
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
  /// Allocates the arena. `pool` null: the shared_pool() of the plan's thread count. A pool must not have more
  /// threads than the plan was built for (throws Error).
  explicit Session(std::shared_ptr<const ExecutionPlan> plan, std::shared_ptr<ThreadPool> pool = nullptr);

  /// Runs the graph on `inputs`, one per graph input with exactly its desc (throws Error otherwise, and on the CPU
  /// where an input lies in this session's memory, as its outputs do). The returned views, one per graph output, lie in
  /// the arena (or in an input or a constant that the graph passes through; on a GPU, in page-locked host memory) and
  /// are valid until the next run. Allocates nothing. During the run numbers are rounded to nearest and denormal ones
  /// taken for zero, whichever kernel runs; the caller's floating-point mode has no influence and is restored, also
  /// after an exception.
  std::span<const ConstTensorView> run(std::span<const ConstTensorView> inputs);
  /// The same with outputs in the caller's memory, one view per graph output with exactly its desc. On the CPU the last
  /// kernel writes there directly if the view is aligned to kArenaAlignment and the output need not stay in the arena
  /// (find_output_uses); otherwise, and on a GPU, it is copied at the end. Throws Error, before anything is written,
  /// also if an output overlaps an input, another output or this session's memory. After an error of the run the
  /// contents of the outputs are unspecified.
  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs);

  /// On a GPU: queues a run on `stream`, a cudaStream_t of that GPU (null: the default stream), and returns. Inputs and
  /// outputs lie in memory of the GPU, and kernels access that memory directly. Copies on the GPU are made only for
  /// memory that is not aligned to kArenaAlignment, for an output that must stay in the arena (find_output_uses) and
  /// for one that is an input or a constant. The host does not wait, except that capturing the graph for new addresses
  /// takes as long as launching all kernels. Runs of one session execute one after the other, whatever their streams.
  /// An error in the values of a run is thrown by a later call. Throws Error on the CPU and for memory that is not the
  /// GPU's, and what run() with the caller's memory does. Must not be called while `stream` is captured.
  void run_on_device(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
                     void* stream);
  /// Throws what run() with the caller's memory does for invalid arguments.
  void check(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs) const {
    check_inputs(inputs);
    check_outputs(inputs, outputs);
  }

  /// Overlapped runs. A slot is memory for one run's inputs, page-locked where the device is a GPU: the caller fills it
  /// in place, submits it, and goes on to fill the next one while this one is copied and computed.
  ///
  /// make_slots throws Error when the memory is not to be had, and when a slot is in flight. Views from before are
  /// dangling afterwards. timed: collect() reports SlotRun::kernel_ms; for that a GPU has more to do.
  void make_slots(int count, bool timed = false);
  int slots() const { return static_cast<int>(slot_states_.size()); }
  /// Where to write graph input `input`. Not to be written between submit and collect. Uninitialized at first.
  TensorView slot_input(int slot, int input = 0);
  /// On a GPU: queues copies and kernels and returns; runs follow each other in the order of submission. On the CPU,
  /// where there is nothing to overlap with: only notes the order. Throws Error when the slot is in flight.
  void submit(int slot);
  /// Waits for the slot's run; on the CPU, runs it. The same bits as run(). The views are valid until the slot is
  /// submitted again; on the CPU until the next run() or collect() of any slot. Throws Error when the slot was not
  /// submitted. On a GPU, one thread may collect a slot while another fills or submits other slots.
  SlotRun collect(int slot);
  /// True when submit() starts the run, false when collect() does.
  bool overlaps() const { return device_ != nullptr; }

  /// Null switches observation off. The observer must outlive its use. It sees run(), on a GPU not the runs of slots:
  /// there every step is waited for and its outputs are copied to host memory, where after_step() finds them, but no
  /// inputs. So it is for values, not for times: for these, profile_session.
  void set_observer(RunObserver* observer) { observer_ = observer; }
  const ExecutionPlan& plan() const { return *plan_; }
  ThreadPool& pool() { return *pool_; }
  /// Null on the CPU.
  DeviceSession* device_session() { return device_.get(); }

 private:
  struct BoundStep {
    const Step* step = nullptr;
    std::vector<ConstTensorView> inputs;
    std::vector<TensorView> outputs;
    std::vector<std::pair<std::size_t, int>>
        from_user;  ///< (operand, graph input) to bind for every micro-batch
    std::byte* scratch = nullptr;
    HostBuffer state;
  };
  /// Where an output lies in the run.
  struct OutputPlace {
    std::vector<OutputUse> uses;  ///< empty: it stays in the arena
    std::byte* own = nullptr;     ///< in the arena; null if the arena does not hold it
    std::byte* now = nullptr;     ///< the memory to which the steps are bound
  };
  void check_inputs(std::span<const ConstTensorView> inputs) const;
  void check_outputs(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs) const;
  bool is_own(const std::byte* data, std::size_t bytes) const;
  void place_output(std::size_t i, std::byte* wanted);
  void compute(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs);
  void run_steps(std::span<const ConstTensorView> inputs, std::int64_t first_sample);
  void gather_outputs(std::span<const TensorView> outputs, std::int64_t first_sample);

  std::shared_ptr<const ExecutionPlan> plan_;
  std::shared_ptr<ThreadPool> pool_;
  std::unique_ptr<DeviceSession> device_;
  HostBuffer arena_;
  std::vector<BoundStep> bound_;
  std::vector<ConstTensorView> outputs_;
  std::vector<OutputPlace> places_;  ///< one per output; empty on a GPU
  RunObserver* observer_ = nullptr;

  enum class SlotState : std::uint8_t { idle, submitted };
  void check_slot(int slot) const;
  std::vector<SlotState> slot_states_;
  bool slots_are_timed_ = false;
  std::vector<std::vector<Tensor>> slot_inputs_;          ///< on the CPU only
  std::vector<std::vector<ConstTensorView>> slot_views_;  ///< of slot_inputs_, as run() takes them
};

}  // namespace pipit::internal
