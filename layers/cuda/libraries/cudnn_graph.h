// Convolutions of cuDNN's graph interface: built once, launched many times.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/cuda/library.h"
#include "engine/graph/dtype.h"

#if PIPIT_HAVE_CUDNN

namespace pipit::cuda {

/// y = clamp(conv(x, w) + bias + residual): cross-correlation, 1 to 3 spatial dimensions. Extents and strides in
/// elements, in the order N, C, spatial... (w: O, C/groups, kernel...; bias: 1, O, 1...).
///
/// In INT8 y = clamp((conv(x, w) + bias) * multiplier + residual * residual_scale), rounded to y_dtype: sums and
/// bias are int32, everything after them f32, and nothing is contracted.
struct CudnnConv {
  struct Tensor {
    std::vector<std::int64_t> extents;
    std::vector<std::int64_t> strides;
  };
  DType dtype =
      DType::f32;  ///< f16 or f32 of all tensors (sums are f32, never TF32); i8 of x, w and residual
  DType y_dtype = DType::f32;  ///< INT8 only: i8, f16 or f32
  Tensor x;
  Tensor w;
  Tensor y;
  std::vector<std::int64_t> stride;
  std::vector<std::int64_t> dilation;
  std::vector<std::int64_t> pad_begin;
  std::vector<std::int64_t> pad_end;
  bool bias = false;      ///< in INT8 there always is one
  bool residual = false;  ///< shaped like y
  float low = -INFINITY;  ///< the bounds; outside of INT8 0 or none
  float high = INFINITY;

  bool is_int8() const { return dtype == DType::i8; }
  bool bounded() const { return low > -INFINITY || high < INFINITY; }
  /// Equal for equal convolutions.
  std::string key() const;
};

/// Pointers on the GPU, 16-byte aligned; null where the convolution has no such operand.
struct CudnnOperands {
  const void* x = nullptr;
  const void* w = nullptr;
  const void* bias = nullptr;
  const void* multiplier = nullptr;
  const void* residual = nullptr;
  const void* residual_scale = nullptr;  ///< one float
  void* y = nullptr;
  void* workspace = nullptr;
};

class CudnnPlan {
 public:
  static constexpr std::int64_t kMaxWorkspace = std::int64_t{256} << 20;
  /// How many plans of a convolution are worth timing: building one can take seconds.
  static constexpr int kProposals = 4;
  /// Among the configurations that heuristics mode A, else the fallback mode, proposes for the current GPU, those
  /// which give the same bits on every run, keep f32 as it is, need no more workspace than kMaxWorkspace and can be
  /// built: the one with this number. Plans are kept for the process. Null when there are not so many, with the
  /// reason.
  static std::shared_ptr<const CudnnPlan> find(const CudnnConv& conv, std::string& reason, int proposal = 0);
  virtual ~CudnnPlan() = default;

  virtual std::size_t workspace_bytes() const = 0;
  /// Of the multiply-accumulates of direct sums the share that it does at least: less than 1 of Winograd, 0 of FFT.
  virtual double least_products() const = 0;
  virtual void run(const CudnnOperands& operands, cudaStream_t stream) const = 0;
};

}  // namespace pipit::cuda

#endif
