// Calibration: runs a float graph over images and observes every tensor that INT8 kernels read or write.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/runtime/session.h"
#include "quant/histogram.h"
#include "quant/observed_images.h"

namespace pipit::internal {

/// The values of a graph that quantization needs ranges of: what Conv, Gemm, MatMul, Pool, Concat, activation
/// functions, and the adding and multiplying of two tensors read and write at run time, in floating point. A value seen
/// through views (Reshape, Flatten) or in another layout is listed once, as the value that was computed. In the order
/// of the graph.
std::vector<ValueId> calibrated_values(const Graph& graph);

/// Per value of the graph: itself, or the value that it is a view or another layout of.
std::vector<ValueId> computed_values(const Graph& graph);

/// Attached to a session (Session::set_observer), it counts the calibrated values of every run. Values are keyed by
/// their names in the graph, which must be the optimized one: what fusion removed is never written.
class CalibrationObserver final : public RunObserver {
 public:
  /// The session's plan must be one in fp32 on the CPU that keeps every value (throws Error).
  CalibrationObserver(const ExecutionPlan& plan, ThreadPool& pool);

  /// The inputs of the run that comes next, of whose batch only the first `images` count: the rest is filling.
  /// Throws Error when images is not in [1, batch].
  void begin(std::span<const ConstTensorView> inputs, std::int64_t images);
  void after_step(const Step& step, std::span<const ConstTensorView> inputs,
                  std::span<const TensorView> outputs) override;

  /// In the order of the graph, with what was counted so far.
  struct Observed {
    std::string name;
    Histogram histogram;
  };
  const std::vector<Observed>& observed() const { return observed_; }
  /// Of the same tensors, image by image.
  const std::vector<TensorPeaks>& peaks() const { return peaks_; }

 private:
  void count(ValueId id, const ConstTensorView& view);

  const Graph& graph_;
  ThreadPool& pool_;
  std::int64_t batch_ = 1;
  std::int64_t images_ = 1;
  std::vector<Observed> observed_;
  std::vector<TensorPeaks> peaks_;
  std::vector<int> slot_;  // per value: index into observed_, or -1
};

}  // namespace pipit::internal
