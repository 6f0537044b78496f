#include "layers/cuda/libraries/cudnn_graph.h"

#if PIPIT_HAVE_CUDNN

#include <algorithm>
#include <array>

#include "layers/common/image.h"

namespace pipit::internal::cuda {

namespace {

// The last two spatial extents, or all three; the library knows no convolution over one dimension.
std::vector<std::int64_t> spatial(const std::array<std::int64_t, 3>& values, int rank) {
  return {values.begin() + (rank == 3 ? 0 : 1), values.end()};
}

CudnnConv::Tensor channels_last(std::int64_t batch, std::int64_t channels,
                                const std::vector<std::int64_t>& extents) {
  CudnnConv::Tensor tensor;
  tensor.extents = {batch, channels};
  tensor.extents.insert(tensor.extents.end(), extents.begin(), extents.end());
  tensor.strides.resize(tensor.extents.size());
  std::int64_t step = channels;
  for (std::size_t axis = tensor.extents.size() - 1; axis >= 2; --axis) {
    tensor.strides[axis] = step;
    step *= tensor.extents[axis];
  }
  tensor.strides[1] = 1;
  tensor.strides[0] = step;
  return tensor;
}

}  // namespace

void set_geometry(CudnnConv& conv, const ConvAttributes& attributes, const NodeSpec& spec,
                  std::int64_t channels) {
  const Image x(*spec.inputs[0]);
  const Image y(spec.outputs[0]);
  const int rank = attributes.window.rank;
  const Window w = as_3d(attributes.window);
  conv.x = channels_last(x.batch, channels, spatial(x.extent, rank));
  conv.w = channels_last(y.channels, channels / attributes.groups, spatial(w.kernel, rank));
  conv.y = channels_last(y.batch, y.channels, spatial(y.extent, rank));
  conv.stride = spatial(w.stride, rank);
  conv.dilation = spatial(w.dilation, rank);
  conv.pad_begin = spatial(w.pad_begin, rank);
  conv.pad_end = spatial(w.pad_end, rank);
  for (std::size_t i = 0; i < conv.pad_end.size(); ++i) {
    // With ceil_mode or a remainder the output has its own extent; end padding that yields it.
    const std::int64_t span = (conv.w.extents[i + 2] - 1) * conv.dilation[i] + 1;
    conv.pad_end[i] = std::max<std::int64_t>(
        0, (conv.y.extents[i + 2] - 1) * conv.stride[i] + span - conv.x.extents[i + 2] - conv.pad_begin[i]);
  }
}

}  // namespace pipit::internal::cuda

#endif

#if PIPIT_HAVE_CUDNN

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

#include "engine/cuda/runtime.h"
#include "layers/cuda/libraries/cudnn_graph.h"

namespace pipit::internal::cuda {

namespace {

using Notes = std::vector<cudnnBackendNumericalNote_t>;

// What the library says of the engine's arithmetic.
Notes notes_of(const Descriptor& config) {
  Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t raw = engine;
  std::int64_t count = 0;
  PIPIT_CUDNN(
      cudnn().get(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &raw));
  Notes notes(CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
  PIPIT_CUDNN(cudnn().get(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                          CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, notes.data()));
  notes.resize(static_cast<std::size_t>(std::clamp<std::int64_t>(count, 0, CUDNN_NUMERICAL_NOTE_TYPE_COUNT)));
  return notes;
}

// True when an engine may round f32 operands (TF32), may give other bits on the next run, or loses digits to a
// large Winograd tile or to sums in reduced precision.
bool imprecise(const Notes& notes, DType type) {
  return std::ranges::any_of(notes, [&](auto note) {
    return note == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC ||
           note == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS ||
           note == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION ||
           note == CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6 ||
           note == CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13 ||
           (type == DType::f32 && note == CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
  });
}

// See CudnnPlan::least_products(). The only Winograd tile that is not imprecise makes 2 x 2 outputs of 4 x 4 products.
double least_products_of(const Notes& notes) {
  double share = 1;
  for (const auto note : notes) {
    if (note == CUDNN_NUMERICAL_NOTE_WINOGRAD || note == CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4)
      share = std::min(share, 16.0 / 36);
    if (note == CUDNN_NUMERICAL_NOTE_FFT) share = 0;
  }
  return share;
}

class BuiltPlan final : public CudnnPlan {
 public:
  BuiltPlan(CudnnOperations operations, Descriptor config, const Notes& notes, cudnnHandle_t handle)
      : operations_(std::move(operations)),
        least_products_(least_products_of(notes)),
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
  double least_products() const override { return least_products_; }

  void run(const CudnnOperands& operands, cudaStream_t stream) const override {
    std::vector<std::int64_t> ids;
    std::vector<const void*> pointers;
    const auto add = [&](CudnnId id, const void* pointer) {
      if (pointer == nullptr) return;
      ids.push_back(id);
      pointers.push_back(pointer);
    };
    add(kX, operands.x);
    add(kW, operands.w);
    add(kY, operands.y);
    add(kBias, operands.bias);
    add(kMultiplier, operands.multiplier);
    add(kResidual, operands.residual);
    add(kResidualScale, operands.residual_scale);
    Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids);
    pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
             static_cast<std::int64_t>(pointers.size()), pointers.data());
    pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &operands.workspace);
    pack.finalize();
    CudnnHandle& shared = cudnn_handle();
    const std::lock_guard lock(shared.mutex);
    shared.use(stream);
    PIPIT_CUDNN(cudnn().execute(shared.handle, plan_, pack));
  }

 private:
  CudnnOperations operations_;
  double least_products_;
  Descriptor config_;
  Descriptor plan_;
  std::int64_t workspace_ = 0;
};

// The plans of one convolution, built as they are asked for.
class PlanList {
 public:
  // Null when there are fewer, with the reason.
  std::shared_ptr<const CudnnPlan> get(const CudnnConv& conv, std::size_t number, std::string& reason) {
    const std::lock_guard lock(mutex_);
    if (plans_.size() <= number && !exhausted_) {
      const PlanningHandle handle;
      while (plans_.size() <= number && !exhausted_) extend(conv, handle);
    }
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
    const CudnnOperations operations(conv, handle);
    Descriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, operations.graph());
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
          const Notes notes = notes_of(config);
          if (imprecise(notes, conv.dtype)) continue;
          plans_.push_back(
              std::make_shared<BuiltPlan>(CudnnOperations(conv, handle), std::move(config), notes, handle));
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

  std::mutex mutex_;
  std::vector<std::shared_ptr<const CudnnPlan>> plans_;
  bool fallback_ = false;
  std::size_t next_ = 0;  // configuration of the list
  bool exhausted_ = false;
  std::string reason_ =
      fmt::format("cuDNN {} proposes no kernel that is exact and repeatable", cudnn_state().version);
};

}  // namespace

std::string CudnnConv::key() const {
  return fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {}", static_cast<int>(dtype),
                     static_cast<int>(y_dtype), fmt::join(x.extents, ","), fmt::join(x.strides, ","),
                     fmt::join(w.extents, ","), fmt::join(w.strides, ","), fmt::join(y.extents, ","),
                     fmt::join(y.strides, ","), fmt::join(stride, ","), fmt::join(dilation, ","),
                     fmt::join(pad_begin, ","), fmt::join(pad_end, ","), bias, residual, low, high);
}

std::shared_ptr<const CudnnPlan> CudnnPlan::find(const CudnnConv& conv, std::string& reason, int proposal) {
  constexpr std::size_t kMaxEntries = 512;
  static std::mutex mutex;
  static auto& known = *new std::map<std::string, std::shared_ptr<PlanList>>;
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
  // Building can take a second; other threads build other convolutions' meanwhile.
  return plans->get(conv, static_cast<std::size_t>(proposal), reason);
}

}  // namespace pipit::internal::cuda

#endif

#if PIPIT_HAVE_CUDNN

#include <algorithm>
#include <cmath>
#include <limits>

namespace pipit::internal::cuda {

namespace {

constexpr std::size_t kMaxParts = 32;

cudnnDataType_t data_type(DType type) {
  switch (type) {
    case DType::f16:
      return CUDNN_DATA_HALF;
    case DType::bf16:
      return CUDNN_DATA_BFLOAT16;
    case DType::i8:
      return CUDNN_DATA_INT8;
    default:
      return CUDNN_DATA_FLOAT;
  }
}

Descriptor make_tensor(const CudnnConv::Tensor& tensor, cudnnDataType_t type, std::int64_t id,
                       bool is_virtual = false) {
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

// One value per output channel, or one for all.
CudnnConv::Tensor channel_values(const CudnnConv& conv, bool one = false) {
  const std::int64_t channels = one ? 1 : conv.y.extents[1];
  CudnnConv::Tensor tensor{conv.y.extents, conv.y.strides};
  std::fill(tensor.extents.begin(), tensor.extents.end(), 1);
  std::fill(tensor.strides.begin(), tensor.strides.end(), channels);
  tensor.extents[1] = channels;
  tensor.strides[1] = 1;
  return tensor;
}

Descriptor convolution_of(const CudnnConv& conv) {
  Descriptor d(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  d.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, static_cast<std::int64_t>(conv.stride.size()));
  d.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, conv.is_int8() ? CUDNN_DATA_INT32 : CUDNN_DATA_FLOAT);
  d.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
  d.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, conv.pad_begin);
  d.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, conv.pad_end);
  d.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, conv.dilation);
  d.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, conv.stride);
  d.finalize();
  return d;
}

}  // namespace

CudnnOperations::CudnnOperations(const CudnnConv& conv, cudnnHandle_t handle) {
  parts_.reserve(kMaxParts);  // references to parts stay valid
  conv.is_int8() ? add_int8(conv) : add_floating_point(conv);
  graph_ = Descriptor(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  std::vector<cudnnBackendDescriptor_t> list(operations_.begin(), operations_.end());
  graph_.set_handle(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle);
  graph_.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
             static_cast<std::int64_t>(list.size()), list.data());
  graph_.finalize();
}

const Descriptor& CudnnOperations::between(const CudnnConv::Tensor& like, cudnnDataType_t type) {
  return keep(make_tensor(like, type, next_++, true));
}

void CudnnOperations::convolution(const CudnnConv& conv, const Descriptor& x, const Descriptor& w,
                                  const Descriptor& y) {
  Descriptor operation(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, keep(convolution_of(conv)));
  operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, x);
  operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, w);
  operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, y);
  operation.set_float(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, 1);
  operation.set_float(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, 0);
  operation.finalize();
  operations_.push_back(std::move(operation));
}

// bounds: where the operation is a Relu.
void CudnnOperations::pointwise(cudnnPointwiseMode_t mode, cudnnDataType_t math, const Descriptor& in,
                                const Descriptor* other, const Descriptor& out, const CudnnConv* bounds) {
  Descriptor how(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  how.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
  how.set(CUDNN_ATTR_POINTWISE_MATH_PREC, math);
  if (bounds != nullptr && bounds->low != 0)
    how.set_double(CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP, bounds->low);
  if (bounds != nullptr && std::isfinite(bounds->high))
    how.set_double(CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, bounds->high);
  how.finalize();
  Descriptor operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, keep(std::move(how)));
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, in);
  if (other != nullptr) operation.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *other);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, out);
  operation.finalize();
  operations_.push_back(std::move(operation));
}

// conv -> [+ residual] -> [+ bias] -> [relu]: the order that cuDNN's ready-made fused kernels know.
void CudnnOperations::add_floating_point(const CudnnConv& conv) {
  const cudnnDataType_t type = data_type(conv.dtype);
  const Descriptor& y = keep(make_tensor(conv.y, type, kY));
  int left = (conv.residual ? 1 : 0) + (conv.bias ? 1 : 0) + (conv.bounded() ? 1 : 0);
  const auto result = [&]() -> const Descriptor& {
    return left-- == 0 ? y : between(conv.y, CUDNN_DATA_FLOAT);
  };
  const Descriptor* value = &result();
  convolution(conv, keep(make_tensor(conv.x, type, kX)), keep(make_tensor(conv.w, type, kW)), *value);
  const auto append = [&](cudnnPointwiseMode_t mode, const Descriptor* other, const CudnnConv* bounds) {
    const Descriptor& out = result();
    pointwise(mode, CUDNN_DATA_FLOAT, *value, other, out, bounds);
    value = &out;
  };
  if (conv.residual) append(CUDNN_POINTWISE_ADD, &keep(make_tensor(conv.y, type, kResidual)), nullptr);
  if (conv.bias) append(CUDNN_POINTWISE_ADD, &keep(make_tensor(channel_values(conv), type, kBias)), nullptr);
  if (conv.bounded()) append(CUDNN_POINTWISE_RELU_FWD, nullptr, &conv);
}

// (conv + bias) * multiplier [+ residual * residual_scale], clamped: the order of layers/ops/quantization.h.
void CudnnOperations::add_int8(const CudnnConv& conv) {
  const Descriptor& sums = between(conv.y, CUDNN_DATA_INT32);
  convolution(conv, keep(make_tensor(conv.x, CUDNN_DATA_INT8, kX)),
              keep(make_tensor(conv.w, CUDNN_DATA_INT8, kW)), sums);
  const CudnnConv::Tensor channels = channel_values(conv);
  const Descriptor& biased = between(conv.y, CUDNN_DATA_INT32);
  pointwise(CUDNN_POINTWISE_ADD, CUDNN_DATA_INT32, sums,
            &keep(make_tensor(channels, CUDNN_DATA_INT32, kBias)), biased);
  const Descriptor* value = &between(conv.y, CUDNN_DATA_FLOAT);
  pointwise(CUDNN_POINTWISE_MUL, CUDNN_DATA_FLOAT, biased,
            &keep(make_tensor(channels, CUDNN_DATA_FLOAT, kMultiplier)), *value);
  if (conv.residual) {
    // Two products and a sum would be contracted, and then round differently: bounds that nothing reaches keep them
    // apart.
    CudnnConv apart;
    apart.low = -std::numeric_limits<float>::max();
    const auto bounded = [&](const Descriptor& product) -> const Descriptor& {
      const Descriptor& out = between(conv.y, CUDNN_DATA_FLOAT);
      pointwise(CUDNN_POINTWISE_RELU_FWD, CUDNN_DATA_FLOAT, product, nullptr, out, &apart);
      return out;
    };
    const Descriptor& scaled = between(conv.y, CUDNN_DATA_FLOAT);
    pointwise(CUDNN_POINTWISE_MUL, CUDNN_DATA_FLOAT, keep(make_tensor(conv.y, CUDNN_DATA_INT8, kResidual)),
              &keep(make_tensor(channel_values(conv, true), CUDNN_DATA_FLOAT, kResidualScale)), scaled);
    const Descriptor& sum = between(conv.y, CUDNN_DATA_FLOAT);
    pointwise(CUDNN_POINTWISE_ADD, CUDNN_DATA_FLOAT, bounded(*value), &bounded(scaled), sum);
    value = &sum;
  }
  pointwise(CUDNN_POINTWISE_RELU_FWD, CUDNN_DATA_FLOAT, *value, nullptr,
            keep(make_tensor(conv.y, data_type(conv.y_dtype), kY)), &conv);
}

}  // namespace pipit::internal::cuda

#endif
