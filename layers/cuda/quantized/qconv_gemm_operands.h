// The constants of a QConv as the implicit-GEMM kernels read them: what their candidates share.
#pragma once

#include <cstddef>
#include <span>

#include "engine/cuda/runtime.h"
#include "engine/plan/registry.h"
#include "layers/cuda/conv/conv_gemm_launch.h"

namespace pipit::cuda {

/// What no INT8 instance of the kernels handles: x, residual or an INT8 y other than i8 with zero point 0, and what
/// refuse_conv_gemm names.
Refusal refuse_qconv_gemm(const NodeSpec& spec);
/// The same for a kernel that takes lists of blocks (refuse_grouped_conv_gemm).
Refusal refuse_grouped_qconv_gemm(const NodeSpec& spec);

/// The convolution as "implicit_gemm" computes it: channels padded to the 16 that are copied at once.
ConvShape qconv_gemm_shape(const NodeSpec& spec);
/// What "implicit_gemm" takes, of what it would take if no weight were zero: others multiply zeros. 1 where it refuses.
double qconv_kept_cost(const NodeSpec& spec);

/// Weights, bias and multipliers on the GPU, in the order of packed_channel, and the follower's table.
class QConvGemmOperands {
 public:
  /// shape: in_c in pairs of bytes, as packed; depth: what is packed; channels: those of x itself; columns of a tile.
  QConvGemmOperands(const NodeSpec& spec, const ConvShape& shape, const KeptDepth& depth, int channels,
                    int columns);
  /// The same with weights that are packed otherwise.
  QConvGemmOperands(const NodeSpec& spec, const ConvShape& shape, std::span<const std::byte> packed,
                    int columns);
  /// Sets the constants and everything else that the epilogue needs, but for residual and y.
  void set(ConvGemmArgs& args) const;
  const void* weights() const { return weights_.data(); }
  std::size_t bytes() const {
    return weights_.bytes() + bias_.bytes() + multipliers_.bytes() + table_.bytes();
  }

 private:
  DeviceBuffer weights_;
  DeviceBuffer bias_;
  DeviceBuffer multipliers_;
  DeviceBuffer table_;
  ConvGemmArgs epilogue_;
};

}  // namespace pipit::cuda
