// Device times of single layers on a GPU, as in the graph of a network: one launch after the other.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "engine/plan/execution_plan.h"

namespace pipit::internal {

/// Where the operands of a timed run come from.
enum class OperandPlace {
  memory,  ///< every run has input and output of its own, and the second-level cache was overwritten before the first
  cache  ///< all have the same, which stay in the second-level cache as far as they fit
};

/// One layer on its operands, made by a LayerClock.
class ClockedLayer {
 public:
  virtual ~ClockedLayer() = default;
  /// Milliseconds of one run: those of a replay of a captured graph over its number of runs, 3 to 20.
  virtual double run_ms(OperandPlace place) = 0;
  /// The same of the second run of all, launched by itself: roughly how long it takes, launch and all.
  virtual double estimate_ms() const = 0;
  /// Bytes [first, first + size()) of the output, of one more run.
  struct Part {
    std::size_t first = 0;
    std::span<std::byte> to;
  };
  virtual void read(std::span<const Part> parts) = 0;
};

/// Gives layers their operands on a GPU, which those of the same input share, and times them. For one thread.
class LayerClock {
 public:
  virtual ~LayerClock() = default;
  /// A plan with one input, which is `x`, and one output. Throws UnsupportedError where the GPU does not run all steps,
  /// Error when memory is not to be had.
  virtual std::unique_ptr<ClockedLayer> clocked(std::shared_ptr<const ExecutionPlan> plan,
                                                const std::shared_ptr<const Tensor>& x) = 0;
  /// A kernel that computes `y` from x and needs no other input.
  virtual std::unique_ptr<ClockedLayer> clocked(std::shared_ptr<const Kernel> kernel,
                                                const std::shared_ptr<const Tensor>& x,
                                                const TensorDesc& y) = 0;
};

/// Copies of an x take at most a sixteenth of the card's memory and at most a GiB, but there is one; outputs take twice
/// that. Throws Error in a build without CUDA, or where there is no such GPU.
std::unique_ptr<LayerClock> make_cuda_layer_clock(int gpu);

}  // namespace pipit::internal
