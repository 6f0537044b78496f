// Descriptors of cuDNN's graph interface as objects.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/cuda/library.h"
#include "engine/graph/dtype.h"
#include "engine/plan/registry.h"
#include "layers/ops/conv.h"

#if PIPIT_HAVE_CUDNN

namespace pipit::internal::cuda {

/// One descriptor: attributes are set, then it is finalized; every failure throws Error.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(cudnnBackendDescriptorType_t type) {
    PIPIT_CUDNN(cudnn().descriptor_create(type, &handle_));
  }
  ~Descriptor() {
    if (handle_ != nullptr) (void)cudnn().descriptor_destroy(handle_);
  }
  Descriptor(Descriptor&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  operator cudnnBackendDescriptor_t() const { return handle_; }

  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count,
           const void* data) {
    PIPIT_CUDNN(cudnn().set(handle_, name, type, count, data));
  }
  void set(cudnnBackendAttributeName_t name, std::int64_t value) { set(name, CUDNN_TYPE_INT64, 1, &value); }
  void set(cudnnBackendAttributeName_t name, const std::vector<std::int64_t>& values) {
    set(name, CUDNN_TYPE_INT64, static_cast<std::int64_t>(values.size()), values.data());
  }
  void set(cudnnBackendAttributeName_t name, cudnnDataType_t value) {
    set(name, CUDNN_TYPE_DATA_TYPE, 1, &value);
  }
  void set(cudnnBackendAttributeName_t name, const Descriptor& value) {
    set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value.handle_);
  }
  void set_bool(cudnnBackendAttributeName_t name, bool value) { set(name, CUDNN_TYPE_BOOLEAN, 1, &value); }
  void set_float(cudnnBackendAttributeName_t name, float value) { set(name, CUDNN_TYPE_FLOAT, 1, &value); }
  void set_double(cudnnBackendAttributeName_t name, double value) { set(name, CUDNN_TYPE_DOUBLE, 1, &value); }
  void set_handle(cudnnBackendAttributeName_t name, cudnnHandle_t value) {
    set(name, CUDNN_TYPE_HANDLE, 1, &value);
  }
  void finalize() { PIPIT_CUDNN(cudnn().finalize(handle_)); }

 private:
  cudnnBackendDescriptor_t handle_ = nullptr;
};

// Convolutions of cuDNN's graph interface: built once, launched many times.

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
      DType::f32;  ///< f16, bf16 or f32 of all tensors (sums are f32, never TF32); i8 of x, w and residual
  DType y_dtype = DType::f32;  ///< INT8 only: i8, f16, bf16 or f32
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
  /// built: the one with this number. Plans are kept for the process. Null when there are fewer, with the
  /// reason.
  static std::shared_ptr<const CudnnPlan> find(const CudnnConv& conv, std::string& reason, int proposal = 0);
  virtual ~CudnnPlan() = default;

  virtual std::size_t workspace_bytes() const = 0;
  /// The minimum share of the multiply-accumulates of direct sums that it does: less than 1 for Winograd, 0 for FFT.
  virtual double least_products() const = 0;
  virtual void run(const CudnnOperands& operands, cudaStream_t stream) const = 0;
};

// A node's geometry as cuDNN takes it.

/// Sets extents, strides and window of the spec's convolution, all tensors channels_last; one spatial dimension becomes
/// two. channels: of x as it is handed over, at least its own.
void set_geometry(CudnnConv& conv, const ConvAttributes& attributes, const NodeSpec& spec,
                  std::int64_t channels);

// A convolution with its epilogue as a graph of cuDNN operations.

/// What the tensors of a graph are called when it runs.
enum CudnnId : std::int64_t { kX = 1, kW, kY, kBias, kMultiplier, kResidual, kResidualScale, kFirstVirtual };

/// The operations, with every descriptor that they point to.
class CudnnOperations {
 public:
  CudnnOperations(const CudnnConv& conv, cudnnHandle_t handle);
  const Descriptor& graph() const { return graph_; }

 private:
  const Descriptor& keep(Descriptor part) { return parts_.emplace_back(std::move(part)); }
  /// A value that never reaches memory.
  const Descriptor& between(const CudnnConv::Tensor& like, cudnnDataType_t type);
  void convolution(const CudnnConv& conv, const Descriptor& x, const Descriptor& w, const Descriptor& y);
  void pointwise(cudnnPointwiseMode_t mode, cudnnDataType_t math, const Descriptor& in,
                 const Descriptor* other, const Descriptor& out, const CudnnConv* bounds = nullptr);
  void add_floating_point(const CudnnConv& conv);
  void add_int8(const CudnnConv& conv);

  std::vector<Descriptor> parts_;
  std::vector<Descriptor> operations_;
  std::int64_t next_ = kFirstVirtual;
  Descriptor graph_;
};

}  // namespace pipit::internal::cuda

#endif
