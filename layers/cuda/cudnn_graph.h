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
  /// How many plans of a convolution are worth timing: building one can take seconds.
  static constexpr int kProposals = 4;
  /// Among the configurations that heuristics mode A, else the fallback mode, proposes for the current GPU, those
  /// which give the same bits on every run, keep f32 as it is, need no more workspace than kMaxWorkspace and can be
  /// built: the one with this number. Plans are kept for the process. Null when there are not so many, with the
  /// reason.
  static std::shared_ptr<const CudnnPlan> find(const CudnnConv& conv, std::string& reason, int proposal = 0);
  virtual ~CudnnPlan() = default;

  virtual std::size_t workspace_bytes() const = 0;
  /// Pointers on the GPU, 16-byte aligned; null where the convolution has no such operand.
  virtual void run(const void* x, const void* w, const void* bias, const void* residual, void* y,
                   void* workspace, cudaStream_t stream) const = 0;
};

}  // namespace pipit::cuda

#endif
