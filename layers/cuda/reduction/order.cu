// TopK: a bitonic sort. CumSum: a warp for each sum.
#include <bit>

#include "layers/cuda/device/kernel.cuh"
#include "layers/cuda/families.h"
#include "layers/cuda/reduction/order_kernel.cuh"
#include "layers/ops/indexing.h"

namespace pipit::internal {

namespace {

using namespace cuda;

// All keys, padding included.
std::int64_t padded_keys(const TopK& layer, const Shape& shape) {
  const int axis = normalize_axis(layer.attributes().axis, shape.rank(), "TopK");
  const auto extent = static_cast<std::uint64_t>(std::max<std::int64_t>(shape[axis], 1));
  return shape.elements() / std::max<std::int64_t>(shape[axis], 1) *
         static_cast<std::int64_t>(std::bit_ceil(extent));
}

class TopKKernel final : public Kernel {
 public:
  explicit TopKKernel(const NodeSpec& spec) : layer_(layer_as<TopK>(spec.layer)) {
    const std::int64_t keys = padded_keys(layer_, spec.inputs[0]->shape);
    const Shape& shape = spec.inputs[0]->shape;
    const int axis = normalize_axis(layer_.attributes().axis, shape.rank(), "TopK");
    if (shape[axis] > kSortChunk) keys_ = static_cast<std::size_t>(keys);
  }
  std::size_t scratch_bytes() const override { return keys_ * (sizeof(std::uint64_t) + sizeof(unsigned)); }
  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    if (outputs[0].desc.elements() == 0) return;
    const SortedGroups g = groups_of(inputs[0].desc, outputs);
    SortKeys keys;
    if (keys_ > 0) {
      keys.value = reinterpret_cast<std::uint64_t*>(context.scratch);
      keys.index = reinterpret_cast<unsigned*>(keys.value + keys_);
    }
    const auto bytes = static_cast<unsigned>(dtype_bytes(inputs[0].desc.dtype));
    const In x(inputs[0]);
    auto* indices = outputs[1].as<std::int64_t>();
    const unsigned chunks = blocks_for(std::int64_t{g.groups} * g.padded, kSortChunk);
    const auto stream = static_cast<cudaStream_t>(context.stream);
    sort_chunks<<<chunks, kSortThreads, 0, stream>>>(g, keys, outputs[0].data, indices, x, bytes);
    check_launch("top k: chunks");
    for (unsigned size = 2 * kSortChunk; size <= g.padded; size *= 2) {
      for (unsigned stride = size / 2; stride >= kSortChunk; stride /= 2)
        launch("top k: step", sort_step, std::int64_t{g.groups} * (g.padded / 2), context, g, keys, size,
               stride);
      finish_chunks<<<chunks, kSortThreads, 0, stream>>>(g, keys, size, outputs[0].data, indices, x, bytes);
      check_launch("top k: rest of a size");
    }
  }

 private:
  SortedGroups groups_of(const TensorDesc& x, std::span<const TensorView> outputs) const {
    const TopKAttributes& a = layer_.attributes();
    const int axis = normalize_axis(a.axis, x.shape.rank(), "TopK");
    const auto d = static_cast<std::size_t>(axis);
    const std::array strides{outputs[0].desc.strides(), outputs[1].desc.strides(), x.strides()};
    const StridedLoop<3> groups = loop_beside(axis, x.shape, strides);
    SortedGroups g(groups);
    g.groups = static_cast<unsigned>(groups.size());
    g.extent = static_cast<unsigned>(x.shape[axis]);
    g.padded = std::bit_ceil(g.extent);
    g.k = static_cast<unsigned>(a.k);
    g.largest = a.largest;
    g.value_stride = static_cast<int>(strides[0][d]);
    g.index_stride = static_cast<int>(strides[1][d]);
    g.x_stride = static_cast<int>(strides[2][d]);
    return g;
  }

  TopK layer_;
  std::size_t keys_ = 0;
};

Refusal refuse_top_k(const NodeSpec& spec) {
  if (Refusal reason = refuse_unless_indexable(spec)) return reason;
  if (spec.inputs[0]->dtype != spec.outputs[0].dtype) return "element types are not converted by this kernel";
  if (padded_keys(layer_as<TopK>(spec.layer), spec.inputs[0]->shape) >= std::int64_t{1} << 31)
    return "2^31 elements or more after padding to powers of two";
  return std::nullopt;
}

void run_cum_sum(const CumSum& layer, std::span<const ConstTensorView> inputs,
                 std::span<const TensorView> outputs, const RunContext& context) {
  const CumSumAttributes& a = layer.attributes();
  const TensorDesc& x = inputs[0].desc;
  if (x.elements() == 0) return;
  const int axis = normalize_axis(a.axis, x.shape.rank(), "CumSum");
  const std::array strides{outputs[0].desc.strides(), x.strides()};
  const StridedLoop<2> groups = loop_beside(axis, x.shape, strides);
  RunningSums g(groups);
  g.groups = static_cast<unsigned>(groups.size());
  g.extent = static_cast<int>(x.shape[axis]);
  g.y_stride = static_cast<int>(strides[0][static_cast<std::size_t>(axis)]);
  g.x_stride = static_cast<int>(strides[1][static_cast<std::size_t>(axis)]);
  g.exclusive = a.exclusive;
  g.reverse = a.reverse;
  const std::int64_t threads = groups.size() * 32;
  if (is_float_or_half(x.dtype) || x.dtype == DType::f64) {
    launch("cum sum", running_sums<double>, threads, context, g, Out(outputs[0]), In(inputs[0]));
  } else {
    launch("cum sum", running_sums<std::int64_t>, threads, context, g, Out(outputs[0]), In(inputs[0]));
  }
}

}  // namespace

void register_cuda_order(Registry& registry) {
  registry.add(TopK::kType, DeviceKind::cuda,
               {"bitonic", refuse_top_k, [](const NodeSpec& spec) {
                  return std::unique_ptr<Kernel>(std::make_unique<TopKKernel>(spec));
                }});
  add_kernel<CumSum>(registry, "warps", refuse_unless_indexable, run_cum_sum);
}

}  // namespace pipit::internal
