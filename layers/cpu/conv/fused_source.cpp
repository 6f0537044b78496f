#include "layers/cpu/conv/fused_source.h"

#include <algorithm>
#include <cmath>

namespace pipit::internal {

FusedSource::FusedSource(const NodeSpec& spec)
    : kernel_(spec.fusion.producer_candidate->create(*spec.fusion.producer)),
      rows_(dynamic_cast<const RowSource*>(kernel_.get())) {
  if (rows_ == nullptr)
    fail("kernel {} computes no rows for a depthwise convolution", spec.fusion.producer_candidate->name);
  const NodeSpec& producer = *spec.fusion.producer;
  macs_ = std::llround(static_cast<double>(producer.layer.work(producer.inputs, producer.outputs).macs) *
                       kernel_->kept_share());
  if (spec.has_input(2)) {
    const auto bias = spec.constant(2)->values<float>();
    bias_.assign(bias.begin(), bias.end());
  }
}

std::vector<KernelWork> FusedSource::work() const {
  std::vector<KernelWork> parts = kernel_->work();
  for (KernelWork& part : parts) part.macs = std::min(part.macs, macs_);
  return parts;
}

}  // namespace pipit::internal
