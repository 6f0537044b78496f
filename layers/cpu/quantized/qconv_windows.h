// What the INT8 kernels for convolutions of one register of channels have in common: `depthwise`, `depthwise_quads` and
// `small_groups`.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/plan/registry.h"
#include "layers/cpu/vector/row_kernels.h"
#include "layers/ops/qconv.h"

namespace pipit::internal {

/// Why a QConv is not one over u8 that lie channels_last, with constant weights and bias, or nothing.
Refusal refuse_qconv_windows(const NodeSpec& spec);

/// Why it is not a depthwise one, of one output per channel and with a window that `depthwise` takes, or nothing.
Refusal refuse_qconv_depthwise(const NodeSpec& spec);

/// What becomes of the sums of such a convolution.
class ByteResults {
 public:
  explicit ByteResults(const NodeSpec& spec);

  ByteResults(const ByteResults&) = delete;
  ByteResults& operator=(const ByteResults&) = delete;

  const QConvAttributes& attributes() const { return attributes_; }
  /// The multipliers of the outputs; the bias is 0 where there is none.
  const std::vector<float>& multipliers() const { return multipliers_; }
  const std::vector<std::int32_t>& bias() const { return bias_; }
  /// Lets a tile finish and store its sums `offset` elements into y. Bias and multipliers remain to be given.
  void aim(DepthwiseTile<std::uint8_t>& tile, std::span<const ConstTensorView> inputs,
           std::span<const TensorView> outputs, std::int64_t offset) const;

 private:
  QConvAttributes attributes_;
  std::vector<float> multipliers_;
  std::vector<std::int32_t> bias_;
  StepBounds bounds_;
  ByteFinish finish_;
};

/// Registers K.
template <typename K>
void add_qconv_windows(Registry& registry, const char* name, Refusal (*refuse)(const NodeSpec&)) {
  registry.add(QConv::kType, DeviceKind::cpu,
               {name, refuse, [](const NodeSpec& spec) { return std::make_unique<K>(spec); }});
}

}  // namespace pipit::internal
