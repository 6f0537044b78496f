// Pad and Gather: copies whose source follows no strides.
#include <fmt/format.h>

#include "layers/common/scalar.h"
#include "layers/cuda/device/faults.cuh"
#include "layers/cuda/device/kernel.cuh"
#include "layers/cuda/families.h"
#include "layers/ops/reshaping.h"
#include "layers/ops/slicing.h"

namespace pipit::internal {

namespace {

using namespace cuda;

Refusal refuse_conversion(const NodeSpec& spec) {
  if (Refusal reason = refuse_unless_indexable(spec)) return reason;
  if (spec.inputs[0]->dtype == spec.outputs[0].dtype) return std::nullopt;
  return std::string(dtype_name(spec.inputs[0]->dtype)) + " is not converted to " +
         std::string(dtype_name(spec.outputs[0].dtype)) + " by this kernel";
}

struct PadDimension {
  Divisor extent;  // of the output
  int to, from;    // strides of output and input
  int source_extent;
  int begin;
};

struct PadGeometry {
  int rank = 0;
  unsigned size = 0;
  PadMode mode = PadMode::constant;
  PadDimension dim[kMaxRank];  // in the memory order of the output
};

// Where an extended dimension reads; -1 outside in constant mode.
__device__ int padded_source(PadMode mode, int position, int extent) {
  if (position >= 0 && position < extent) return position;
  if (mode == PadMode::constant) return -1;
  if (mode == PadMode::edge) return position < 0 ? 0 : extent - 1;
  if (mode == PadMode::wrap) {
    const int r = position % extent;
    return r < 0 ? r + extent : r;
  }
  if (extent == 1) return 0;
  const int period = 2 * (extent - 1);  // forth and back, the ends once
  const int r = abs(position % period);
  return min(r, period - r);
}

template <typename T>
__global__ void pad_kernel(PadGeometry g, T* y, const T* x, T value) {
  unsigned i = thread_index();
  if (i >= g.size) return;
  int to = 0;
  int from = 0;
  bool inside = true;
  for (int d = g.rank - 1; d >= 0; --d) {
    const PadDimension& dim = g.dim[d];
    const unsigned rest = dim.extent.divide(i);
    const int index = static_cast<int>(i - rest * dim.extent.value);
    const int source = padded_source(g.mode, index - dim.begin, dim.source_extent);
    inside = inside && source >= 0;
    to += index * dim.to;
    from += source * dim.from;
    i = rest;
  }
  y[to] = inside ? x[from] : value;
}

void run_pad(const Pad& layer, std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
             const RunContext& context) {
  const PadAttributes& a = layer.attributes();
  const TensorDesc& x = inputs[0].desc;
  const TensorDesc& y = outputs[0].desc;
  if (y.elements() == 0) return;
  PadGeometry g{y.shape.rank(), static_cast<unsigned>(y.elements()), a.mode, {}};
  const Strides to = y.strides();
  const Strides from = x.strides();
  for (int d = 0; d < g.rank; ++d) {
    const auto u = static_cast<std::size_t>(d);
    g.dim[d] = {Divisor(static_cast<unsigned>(y.shape[d])), static_cast<int>(to[u]),
                static_cast<int>(from[u]), static_cast<int>(x.shape[d]), static_cast<int>(a.begin[u])};
  }
  std::stable_sort(g.dim, g.dim + g.rank,
                   [](const PadDimension& l, const PadDimension& r) { return l.to > r.to; });
  const std::array<std::byte, 8> value = element_bytes(x.dtype, a.value);
  with_element_size(x.dtype, [&](auto size) {
    using T = Element<decltype(size)::value>;
    T fill;
    std::memcpy(&fill, value.data(), sizeof fill);
    launch("pad", pad_kernel<T>, y.elements(), context, g, reinterpret_cast<T*>(outputs[0].data),
           reinterpret_cast<const T*>(inputs[0].data), fill);
  });
}

// y[o, g, i] = x[o, indices[g], i], both in one memory order. 0 where the index is out of range.
template <typename T>
__global__ void gather_kernel(unsigned size, Divisor inner, Divisor count, int extent, Indices indices, T* y,
                              const T* x, Fault* fault) {
  const unsigned i = thread_index();
  if (i >= size) return;
  const unsigned row = inner.divide(i);
  const unsigned outer = count.divide(row);
  const int position = indices.position(row - outer * count.value, extent, fault);
  const unsigned source = outer * static_cast<unsigned>(extent) + static_cast<unsigned>(position);
  y[i] = position < 0 ? T{} : x[source * inner.value + (i - row * inner.value)];
}

Refusal refuse_gather(const NodeSpec& spec) {
  if (Refusal reason = refuse_conversion(spec)) return reason;
  const int index_rank = spec.inputs[1]->shape.rank();
  const Shape& shape = spec.inputs[0]->shape;
  const bool channels =
      normalize_axis(layer_as<Gather>(spec.layer).attributes().axis, shape.rank(), "Gather") == 1;
  // One index takes the dimension of the channels away: what is left lies by rows.
  const bool channels_last = is_channels_last(*spec.inputs[0]) &&
                             (index_rank == 1 ? is_channels_last(spec.outputs[0])
                                              : index_rank == 0 && channels && is_row_major(spec.outputs[0]));
  if (!channels_last) {
    if (Refusal reason = refuse_unless_row_major(spec)) return reason;
  }
  return std::nullopt;
}

class GatherKernel final : public Kernel {
 public:
  explicit GatherKernel(const NodeSpec& spec) {
    const Shape& shape = spec.inputs[0]->shape;
    const int axis = normalize_axis(layer_as<Gather>(spec.layer).attributes().axis, shape.rank(), "Gather");
    extent_ = shape[axis];
    // Elements that follow each other for one index, by the order that the output has too.
    const bool by_rows =
        is_row_major(*spec.inputs[0]) && is_row_major(spec.outputs[0]);  // else refuse_gather()
    const TensorDesc x{shape, spec.inputs[0]->dtype, by_rows ? Layout::row_major : Layout::channels_last};
    inner_ = x.strides()[static_cast<std::size_t>(axis)];
    count_ = spec.inputs[1]->elements();
    const Tensor* known = spec.constant(1);
    for (std::int64_t i = 0; known != nullptr && i < count_; ++i)
      (void)gathered_position(known->view(), i, extent_);  // throws now rather than in every run
  }
  std::string fault_text(std::int64_t value) const override {
    return fmt::format("Gather: index {} is outside [{}, {})", value, -extent_, extent_);
  }
  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const std::int64_t size = outputs[0].desc.elements();
    if (size == 0) return;
    with_element_size(outputs[0].desc.dtype, [&](auto bytes) {
      using T = Element<decltype(bytes)::value>;
      launch("gather", gather_kernel<T>, size, context, static_cast<unsigned>(size),
             Divisor(static_cast<unsigned>(inner_)), Divisor(static_cast<unsigned>(count_)),
             static_cast<int>(extent_), Indices(inputs[1]), reinterpret_cast<T*>(outputs[0].data),
             reinterpret_cast<const T*>(inputs[0].data), context.fault);
    });
  }

 private:
  std::int64_t extent_ = 0;
  std::int64_t inner_ = 1;
  std::int64_t count_ = 0;
};

}  // namespace

void register_cuda_pad_gather(Registry& registry) {
  add_kernel<Pad>(registry, "pad", refuse_conversion, run_pad);
  registry.add(Gather::kType, DeviceKind::cuda,
               {"gather", refuse_gather, [](const NodeSpec& spec) {
                  return std::unique_ptr<Kernel>(std::make_unique<GatherKernel>(spec));
                }});
}

}  // namespace pipit::internal
