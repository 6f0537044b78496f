#include "layers/cuda/cudnn_graph.h"

#if PIPIT_HAVE_CUDNN

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

#include "engine/cuda/runtime.h"

namespace pipit::cuda {

namespace {

enum Id : std::int64_t { kX = 1, kW, kY, kBias, kResidual, kVirtual };

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

cudnnDataType_t data_type(DType type) {
  return type == DType::f16 ? CUDNN_DATA_HALF : CUDNN_DATA_FLOAT;
}

Descriptor make_tensor(const CudnnConv::Tensor& tensor, cudnnDataType_t type, std::int64_t id,
                       bool is_virtual) {
  Descriptor d(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  d.set(CUDNN_ATTR_TENSOR_DATA_TYPE, type);
  d.set(CUDNN_ATTR_TENSOR_DIMENSIONS, tensor.extents);
  d.set(CUDNN_ATTR_TENSOR_STRIDES, tensor.strides);
  d.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id);
  d.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, std::int64_t{16});
  d.set_bool(CUDNN_ATTR_TENSOR_IS_VIRTUAL, is_virtual);
  d.finalize();
  return d;
}

// The operations, with every descriptor that they point to.
struct Operations {
  std::vector<Descriptor> parts;
  std::vector<Descriptor> operations;
  Descriptor graph;

  const Descriptor& keep(Descriptor part) { return parts.emplace_back(std::move(part)); }

  void pointwise(cudnnPointwiseMode_t mode, const Descriptor& in, const Descriptor* other,
                 const Descriptor& out, float upper) {
    Descriptor how(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    how.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    how.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT);
    if (upper > 0) how.set_double(CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, upper);
    how.finalize();
    Descriptor operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, keep(std::move(how)));
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, in);
    if (other != nullptr) operation.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *other);
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, out);
    operation.finalize();
    operations.push_back(std::move(operation));
  }
};

Descriptor convolution_of(const CudnnConv& conv) {
  Descriptor d(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  d.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, static_cast<std::int64_t>(conv.stride.size()));
  d.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT);
  d.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
  d.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, conv.pad_begin);
  d.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, conv.pad_end);
  d.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, conv.dilation);
  d.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, conv.stride);
  d.finalize();
  return d;
}

// conv -> [+ residual] -> [+ bias] -> [relu]: the order that cuDNN's ready-made fused kernels know.
Operations operations_of(const CudnnConv& conv, cudnnHandle_t handle) {
  Operations ops;
  ops.parts.reserve(32);  // references to parts stay valid
  const cudnnDataType_t type = data_type(conv.dtype);
  const Descriptor& x = ops.keep(make_tensor(conv.x, type, kX, false));
  const Descriptor& w = ops.keep(make_tensor(conv.w, type, kW, false));
  const Descriptor& y = ops.keep(make_tensor(conv.y, type, kY, false));
  int left = (conv.residual ? 1 : 0) + (conv.bias ? 1 : 0) + (conv.relu ? 1 : 0);
  std::int64_t next = kVirtual;
  // What the next operation writes: y when it is the last, else a value that never reaches memory.
  const auto result = [&](bool last) -> const Descriptor& {
    return last ? y : ops.keep(make_tensor(conv.y, CUDNN_DATA_FLOAT, next++, true));
  };

  const Descriptor* value = &result(left == 0);
  Descriptor operation(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, ops.keep(convolution_of(conv)));
  operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, x);
  operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, w);
  operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, *value);
  operation.set_float(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, 1);
  operation.set_float(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, 0);
  operation.finalize();
  ops.operations.push_back(std::move(operation));

  const auto append = [&](cudnnPointwiseMode_t mode, const Descriptor* other, float upper) {
    const Descriptor& out = result(--left == 0);
    ops.pointwise(mode, *value, other, out, upper);
    value = &out;
  };
  if (conv.residual) append(CUDNN_POINTWISE_ADD, &ops.keep(make_tensor(conv.y, type, kResidual, false)), 0);
  if (conv.bias) {
    CudnnConv::Tensor bias{conv.y.extents, conv.y.strides};
    std::fill(bias.extents.begin(), bias.extents.end(), 1);
    std::fill(bias.strides.begin(), bias.strides.end(), conv.y.extents[1]);
    bias.extents[1] = conv.y.extents[1];
    bias.strides[1] = 1;
    append(CUDNN_POINTWISE_ADD, &ops.keep(make_tensor(bias, type, kBias, false)), 0);
  }
  if (conv.relu) append(CUDNN_POINTWISE_RELU_FWD, nullptr, conv.upper);

  ops.graph = Descriptor(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  std::vector<cudnnBackendDescriptor_t> list(ops.operations.begin(), ops.operations.end());
  ops.graph.set_handle(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle);
  ops.graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                static_cast<std::int64_t>(list.size()), list.data());
  ops.graph.finalize();
  return ops;
}

// True when an engine may round f32 operands (TF32), may give other bits on the next run, or loses digits to a
// large Winograd tile or to sums in reduced precision.
bool imprecise(const Descriptor& config, DType type) {
  Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t raw = engine;
  std::int64_t count = 0;
  PIPIT_CUDNN(
      cudnn().get(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &raw));
  cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
  PIPIT_CUDNN(cudnn().get(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                          CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, notes));
  return std::any_of(notes, notes + std::min<std::int64_t>(count, CUDNN_NUMERICAL_NOTE_TYPE_COUNT),
                     [&](auto note) {
                       return note == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC ||
                              note == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS ||
                              note == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION ||
                              note == CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6 ||
                              note == CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13 ||
                              (type == DType::f32 && note == CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
                     });
}

class BuiltPlan final : public CudnnPlan {
 public:
  BuiltPlan(const CudnnConv& conv, Operations operations, Descriptor config, cudnnHandle_t handle)
      : bias_(conv.bias),
        residual_(conv.residual),
        operations_(std::move(operations)),
        config_(std::move(config)),
        plan_(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
    plan_.set_handle(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, handle);
    plan_.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config_);
    plan_.finalize();
    std::int64_t count = 0;
    PIPIT_CUDNN(cudnn().get(plan_, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count,
                            &workspace_));
    if (workspace_ > kMaxWorkspace) fail("it needs {} bytes of workspace", workspace_);
  }
  std::size_t workspace_bytes() const override { return static_cast<std::size_t>(workspace_); }

  void run(const void* x, const void* w, const void* bias, const void* residual, void* y, void* workspace,
           cudaStream_t stream) const override {
    std::vector<std::int64_t> ids{kX, kW, kY};
    std::vector<const void*> pointers{x, w, y};
    if (bias_) {
      ids.push_back(kBias);
      pointers.push_back(bias);
    }
    if (residual_) {
      ids.push_back(kResidual);
      pointers.push_back(residual);
    }
    Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids);
    pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
             static_cast<std::int64_t>(pointers.size()), pointers.data());
    pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    pack.finalize();
    CudnnHandle& shared = cudnn_handle();
    const std::lock_guard lock(shared.mutex);
    PIPIT_CUDNN(cudnn().set_stream(shared.handle, stream));
    PIPIT_CUDNN(cudnn().execute(shared.handle, plan_, pack));
  }

 private:
  bool bias_;
  bool residual_;
  Operations operations_;
  Descriptor config_;
  Descriptor plan_;
  std::int64_t workspace_ = 0;
};

// The plans of one convolution, built as they are asked for.
class PlanList {
 public:
  // Null when there are not so many, with the reason.
  std::shared_ptr<const CudnnPlan> get(const CudnnConv& conv, std::size_t number, std::string& reason) {
    CudnnHandle& shared = cudnn_handle();
    const std::lock_guard lock(shared.mutex);
    while (plans_.size() <= number && !exhausted_) extend(conv, shared.handle);
    if (plans_.size() > number) return plans_[number];
    reason = plans_.empty() ? reason_
                            : fmt::format("cuDNN {} proposes {} plans that are exact and repeatable",
                                          cudnn_state().version, plans_.size());
    return nullptr;
  }

 private:
  static constexpr std::int64_t kMaxConfigs = 16;

  static std::vector<Descriptor> configurations(const CudnnConv& conv, cudnnBackendHeurMode_t mode,
                                                cudnnHandle_t handle) {
    const Operations operations = operations_of(conv, handle);
    Descriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, operations.graph);
    heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    heuristics.finalize();
    std::vector<Descriptor> configs;
    std::vector<cudnnBackendDescriptor_t> raw;
    for (std::int64_t i = 0; i < kMaxConfigs; ++i)
      raw.push_back(configs.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
    std::int64_t count = 0;
    PIPIT_CUDNN(cudnn().get(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                            kMaxConfigs, &count, raw.data()));
    configs.resize(static_cast<std::size_t>(std::clamp<std::int64_t>(count, 0, kMaxConfigs)));
    return configs;
  }

  // Builds the next usable configuration of the list; where mode A has none at all, of the fallback's.
  void extend(const CudnnConv& conv, cudnnHandle_t handle) {
    try {
      std::vector<Descriptor> configs =
          configurations(conv, fallback_ ? CUDNN_HEUR_MODE_FALLBACK : CUDNN_HEUR_MODE_A, handle);
      while (next_ < configs.size()) {
        Descriptor& config = configs[next_++];
        try {
          if (imprecise(config, conv.dtype)) continue;
          plans_.push_back(
              std::make_shared<BuiltPlan>(conv, operations_of(conv, handle), std::move(config), handle));
          return;
        } catch (const Error& error) {
          reason_ = error.what();
        }
      }
    } catch (const Error& error) {
      reason_ = error.what();
    }
    if (fallback_ || !plans_.empty()) {
      exhausted_ = true;
    } else {
      fallback_ = true;
      next_ = 0;
    }
  }

  std::vector<std::shared_ptr<const CudnnPlan>> plans_;
  bool fallback_ = false;
  std::size_t next_ = 0;  // configuration of the list
  bool exhausted_ = false;
  std::string reason_ =
      fmt::format("cuDNN {} proposes no kernel that is exact and repeatable", cudnn_state().version);
};

}  // namespace

std::string CudnnConv::key() const {
  return fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {} {} {}", static_cast<int>(dtype),
                     fmt::join(x.extents, ","), fmt::join(x.strides, ","), fmt::join(w.extents, ","),
                     fmt::join(w.strides, ","), fmt::join(y.extents, ","), fmt::join(y.strides, ","),
                     fmt::join(stride, ","), fmt::join(dilation, ","), fmt::join(pad_begin, ","),
                     fmt::join(pad_end, ","), bias, residual, relu, upper);
}

std::shared_ptr<const CudnnPlan> CudnnPlan::find(const CudnnConv& conv, std::string& reason, int proposal) {
  constexpr std::size_t kMaxEntries = 512;
  static std::mutex mutex;
  static std::map<std::string, std::shared_ptr<PlanList>> known;
  int gpu = 0;
  PIPIT_CUDA(cudaGetDevice(&gpu));
  const std::string key = fmt::format("{}: {}", gpu, conv.key());
  std::shared_ptr<PlanList> plans;
  {
    const std::lock_guard lock(mutex);
    if (known.size() >= kMaxEntries && known.find(key) == known.end()) known.clear();
    std::shared_ptr<PlanList>& entry = known[key];
    if (!entry) entry = std::make_shared<PlanList>();
    plans = entry;
  }
  // Building takes a second; the other GPUs' threads build theirs meanwhile.
  return plans->get(conv, static_cast<std::size_t>(proposal), reason);
}

}  // namespace pipit::cuda

#endif
