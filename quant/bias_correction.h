// Bias correction (Nagel et al. 2019, "Data-free quantization through weight equalization and bias correction", section
// 4.2): rounded weights shift the mean of what a layer computes; the bias takes the shift back.
#pragma once

#include <vector>

#include "engine/runtime/session.h"
#include "quant/quantization_plan.h"

namespace pipit::internal {

/// Attached to a session whose plan keeps every value, sums up the channels of what the layers with weights read: their
/// means over images and positions. Nagel et al. take them from batch normalization; calibration images serve models
/// without as well. Zeros of the padding, which pull the mean at borders, are left out of account, as there.
class ChannelMeans final : public RunObserver {
 public:
  explicit ChannelMeans(const Graph& graph);
  /// As of CalibrationObserver.
  void begin(std::span<const ConstTensorView> inputs, std::int64_t images);
  void after_step(const Step& step, std::span<const ConstTensorView> inputs,
                  std::span<const TensorView> outputs) override;

  /// Per channel (dimension 1) of a value of that name; empty for one that no layer with weights reads.
  std::vector<double> means(const std::string& name) const;

 private:
  struct Sums {
    std::string name;
    std::vector<double> channels;
    double count = 0;  // values per channel
  };
  void add(ValueId id, const ConstTensorView& view);
  const Graph& graph_;
  std::int64_t batch_ = 1;
  std::int64_t images_ = 1;
  std::vector<Sums> sums_;
  std::vector<int> slot_;  // per value: index into sums_, or -1
};

/// What each output of every convolution and Gemm of the fused graph that the plan quantizes has to gain so that its
/// mean over the observed images is that of fp32: -sum over inputs of (quantized weight - weight) * mean of the input.
std::vector<QuantizationPlan::Corrected> bias_correction(const Graph& fused, const QuantizationPlan& plan,
                                                         const ChannelMeans& means);

}  // namespace pipit::internal
