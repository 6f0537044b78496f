// Convolutions of cuDNN's graph interface: built once, launched many times.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/cuda/library.h"
#include "engine/dtype.h"

#if PIPIT_HAVE_CUDNN

namespace pipit::cuda {

/// y = min(max(conv(x, w) + bias + residual, 0), upper): cross-correlation, 1 to 3 spatial dimensions. Extents and
/// strides in elements, in the order N, C, spatial... (w: O, C/groups, kernel...; bias: 1, O, 1...).
struct CudnnConv {
  struct Tensor {
    std::vector<std::int64_t> extents;
    std::vector<std::int64_t> strides;
  };
  DType dtype = DType::f32;  ///< of all tensors; sums are f32, never TF32
  Tensor x;
  Tensor w;
  Tensor y;
  std::vector<std::int64_t> stride;
  std::vector<std::int64_t> dilation;
  std::vector<std::int64_t> pad_begin;
  std::vector<std::int64_t> pad_end;
  bool bias = false;
  bool residual = false;  ///< shaped like y
  bool relu = false;
  float upper = 0;  ///< with relu: the upper bound, 0 for none

  /// Equal for equal convolutions.
  std::string key() const;
};

class CudnnPlan {
 public:
  static constexpr std::int64_t kMaxWorkspace = std::int64_t{256} << 20;
  /// The first of the configurations that heuristics mode A, else the fallback mode, proposes for the current GPU which gives the same bits on
  /// every run, keeps f32 as it is, needs no more workspace than kMaxWorkspace and can be built. Plans are kept for
  /// the process: building one can take seconds. Null when there is none, with the library's reason.
  static std::shared_ptr<const CudnnPlan> find(const CudnnConv& conv, std::string& reason);
  virtual ~CudnnPlan() = default;

  virtual std::size_t workspace_bytes() const = 0;
  /// Pointers on the GPU, 16-byte aligned; null where the convolution has no such operand.
  virtual void run(const void* x, const void* w, const void* bias, const void* residual, void* y,
                   void* workspace, cudaStream_t stream) const = 0;
};

}  // namespace pipit::cuda

#endif
