// Runs one convolution on operands in the layout and type of its kernels: nothing but the layer is timed.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "apps/measuring/layer_times.h"
#include "apps/measuring/sparse_layer.h"
#include "engine/runtime/session.h"

namespace pipit::apps {

/// Pseudo-random values, always the same, row-major f32 [N, C, H, W], that depend on each other as those inside of a
/// network do: what a 3x3 convolution of C / 2 channels and a ReLU make of standard normal numbers.
Tensor network_values(const Shape& shape, int threads);

/// fp32, fp16 or int8.
struct LayerTarget {
  DeviceKind device = DeviceKind::cpu;
  Precision precision = Precision::fp32;
  int threads = 0;
  std::string kernel;  ///< runs this candidate and no other; empty: the fastest of all
};

/// Of the dense layer's operands, for INT8: the magnitude that becomes 127.
struct LayerRanges {
  double x = 0;
  double y = 0;
};

class LayerRun {
 public:
  /// The layer with `inputs` of its channels and `outputs`, those that are listed, and `weights` of the dense layer's
  /// shape. Kernels are chosen by timing all that accept. `x`: row-major f32 of layer.x. Throws UnsupportedError where
  /// no kernel on the device, or not the one that is asked for, takes the layer in that precision.
  LayerRun(const SparseLayer& layer, const NewWeights& weights, const std::vector<std::int64_t>& inputs,
           const std::vector<std::int64_t>& outputs, const Tensor& x, const LayerTarget& target,
           const LayerRanges& ranges);

  /// [pixels][O of the dense layer], zeros where an output is not there.
  std::vector<float> results();
  /// Of a layer with all outputs: those elements of [pixels][O] that are listed.
  std::vector<float> results_at(std::span<const std::size_t> elements);
  /// Of one run: on the CPU of a whole one, on a GPU of its kernels.
  double run_ms();
  const std::string& kernel() const { return plan_->steps().at(0).kernel_name; }
  /// Of input, weights and output in the precision that runs: what has to be moved at least.
  std::size_t bytes() const { return bytes_; }
  /// What a run needs besides input and weights: output, and scratch memory of the kernel.
  std::size_t arena_bytes() const { return plan_->arena_bytes(); }

 private:
  float value(const ConstTensorView& y, std::size_t i) const;

  std::vector<std::int64_t> outputs_;
  std::int64_t all_outputs_;
  float y_scale_ = 1;
  std::size_t bytes_ = 0;
  Tensor x_;
  std::shared_ptr<const ExecutionPlan> plan_;
  std::unique_ptr<Session> session_;
};

/// How far results are from those of the dense layer in fp32.
struct LayerError {
  double mae = 0;
  double max = 0;
  double relative_l2 = 0;
  double top10 =
      0;  ///< of the ten largest outputs of a pixel, the share that is the same, in the mean over pixels
};
/// Both [pixels][outputs].
LayerError layer_error(const std::vector<float>& results, const std::vector<float>& dense,
                       std::int64_t outputs);

/// For `seconds`, but at least 7 turns; of layers that take long 3, where 7 take ten times that time and a second.
LayerTimes time_in_turns(LayerRun& run, LayerRun& base, double seconds);

}  // namespace pipit::apps
