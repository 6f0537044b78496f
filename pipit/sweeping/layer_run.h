// Runs one convolution on operands in the layout and type of its kernels: nothing but the layer is timed.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/runtime/layer_clock.h"
#include "engine/runtime/session.h"
#include "layers/gpu_peers.h"
#include "pipit/detail/floors.h"
#include "pipit/sweep.h"
#include "pipit/sweeping/layer_turns.h"
#include "pipit/sweeping/sparse_layer.h"

namespace pipit::internal::detail {

/// Pseudo-random values, always the same, row-major f32 [N, C, H, W], that depend on each other as those inside of a
/// network do: what a 3x3 convolution of C / 2 channels and a ReLU make of standard normal numbers.
Tensor network_values(const Shape& shape, int threads);

/// The input of layers in the forms in which they read it, each made once.
class LayerInput {
 public:
  /// `x`: row-major f32.
  LayerInput(Tensor x, int threads);
  const Tensor& values() const { return x_; }
  double largest() const { return largest_; }  ///< magnitude
  /// All channels, channels_last, in f32, f16 or bf16, or bytes for `device` with `largest` as the largest value.
  std::shared_ptr<const Tensor> as(Precision precision, DeviceKind device, double largest);
  /// The same of those channels that are listed.
  Tensor part(const std::vector<std::int64_t>& channels, Precision precision, DeviceKind device,
              double largest) const;

 private:
  Tensor x_;
  int threads_;
  double largest_ = 0;
  std::map<std::tuple<Precision, DeviceKind, double>, std::shared_ptr<const Tensor>> made_;
};

/// What layers run on, and what they share there.
struct LayerMachine {
  LayerMachine(DeviceKind device, int threads);
  DeviceKind device;
  int threads;
  std::shared_ptr<ThreadPool> pool;
  std::shared_ptr<Tuner> tuner;
  std::shared_ptr<LayerClock> clock;  ///< on a GPU
};

/// fp32, fp16, bf16 or int8.
struct LayerTarget {
  Precision precision = Precision::fp32;
  std::string kernel;  ///< runs this candidate and no other; empty: the fastest of all
};

/// Ranges of the dense layer's operands, for INT8: the magnitude that becomes 127.
struct LayerRanges {
  double x = 0;
  double y = 0;
};

class LayerRun final : public RepeatedRun {
 public:
  /// The layer with `inputs` of its channels and `outputs`, those that are listed, and `weights` of the dense layer's
  /// shape. Kernels are chosen by timing all that accept. `x`: of layer.x. Throws UnsupportedError if no kernel on
  /// the device, or not the requested one, accepts the layer in that precision.
  LayerRun(const SparseLayer& layer, const NewWeights& weights, const std::vector<std::int64_t>& inputs,
           const std::vector<std::int64_t>& outputs, LayerInput& x, const LayerMachine& machine,
           const LayerTarget& target, const LayerRanges& ranges);

  /// [pixels][O of the dense layer], zeros where an output is not there.
  std::vector<float> results();
  /// For a layer with all outputs: the listed elements of [pixels][O].
  std::vector<float> results_at(std::span<const std::size_t> elements);
  double run_ms() override;
  double cached_ms() override;
  const std::string& kernel() const { return plan_->steps().at(0).kernel_name; }
  /// Bytes of input, weights and output in the precision that runs: what has to be moved at least.
  std::size_t bytes() const { return bytes_; }
  /// What a run needs besides input and weights: output, and scratch memory of the kernel.
  std::size_t arena_bytes() const { return plan_->arena_bytes(); }
  /// What run_ms() takes at least.
  StepFloor floor(const Ceilings& ceilings) const;

 private:
  float value(const ConstTensorView& y, std::size_t i) const;

  std::vector<std::int64_t> outputs_;
  std::int64_t all_outputs_;
  float y_scale_ = 1;
  std::size_t bytes_ = 0;
  std::shared_ptr<const Tensor> x_;
  std::shared_ptr<const ExecutionPlan> plan_;
  std::unique_ptr<Session> session_;       // on the CPU
  std::unique_ptr<ClockedLayer> clocked_;  // on a GPU
};

/// The fastest of some kernels that are no candidates of pipit's.
class PeerRun final : public RepeatedRun {
 public:
  /// `x`: the input as f16. Plans read it as if it lay in the layout that they want. Throws Error for what does not run
  /// on the GPU.
  PeerRun(const std::vector<PeerConv>& peers, const std::shared_ptr<const Tensor>& x,
          const LayerMachine& machine);
  const std::string& name() const { return name_; }
  double run_ms() override { return clocked_->run_ms(OperandPlace::memory); }
  double cached_ms() override { return clocked_->run_ms(OperandPlace::cache); }

 private:
  std::string name_;
  std::unique_ptr<ClockedLayer> clocked_;
};

/// How far results are from those of the dense layer. Both [pixels][outputs].
tools::OutputError output_error(const std::vector<float>& results, const std::vector<float>& dense,
                                std::int64_t outputs);

}  // namespace pipit::internal::detail
