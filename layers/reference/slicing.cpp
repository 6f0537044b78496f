#include "layers/ops/slicing.h"

#include "layers/common/layer_kernel.h"
#include "layers/common/scalar.h"
#include "layers/ops/operands.h"
#include "layers/reference/index.h"
#include "layers/reference/reference.h"

namespace pipit::internal {

namespace {

// i -> i moved by `by` along one dimension.
auto shifted(int axis, std::int64_t by) {
  return [d = static_cast<std::size_t>(axis), by](Index i) {
    i[d] += by;
    return i;
  };
}

void run_concat(const Concat& layer, std::span<const ConstTensorView> inputs,
                std::span<const TensorView> outputs, const RunContext& /*context*/) {
  const int axis = normalize_axis(layer.attributes().axis, outputs[0].desc.shape.rank(), "Concat");
  std::int64_t start = 0;
  for (const ConstTensorView& x : inputs) {
    copy_elements(x.desc.shape, x, shifted(axis, 0), outputs[0], shifted(axis, start));
    start += x.desc.shape[axis];
  }
}

void run_split(const Split& layer, std::span<const ConstTensorView> inputs,
               std::span<const TensorView> outputs, const RunContext& /*context*/) {
  const int axis = normalize_axis(layer.attributes().axis, inputs[0].desc.shape.rank(), "Split");
  std::int64_t start = 0;
  for (const TensorView& y : outputs) {
    copy_elements(inputs[0], shifted(axis, start), y);
    start += y.desc.shape[axis];
  }
}

void run_slice(const Slice& layer, std::span<const ConstTensorView> inputs,
               std::span<const TensorView> outputs, const RunContext& /*context*/) {
  const ResolvedSlice slice = resolve_slice(layer.attributes(), inputs[0].desc.shape);
  const auto source = [&](Index i) {
    for (std::size_t d = 0; d < i.size(); ++d) i[d] = slice.start[d] + i[d] * slice.step[d];
    return i;
  };
  copy_elements(inputs[0], source, outputs[0]);
}

void run_pad(const Pad& layer, std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
             const RunContext& /*context*/) {
  const PadAttributes& a = layer.attributes();
  const ConstTensorView& x = inputs[0];
  const TensorView& y = outputs[0];
  const Strides x_strides = x.desc.strides();
  const Strides y_strides = y.desc.strides();
  const int rank = x.desc.shape.rank();
  const std::size_t bytes = dtype_bytes(x.desc.dtype);
  const auto value = element_bytes(x.desc.dtype, a.value);
  for_each_index(y.desc.shape, [&](const Index& i) {
    Index source{};
    bool inside = true;
    for (int d = 0; d < rank; ++d) {
      const auto u = static_cast<std::size_t>(d);
      source[u] = padded_source(a.mode, i[u] - a.begin[u], x.desc.shape[d]);
      inside = inside && source[u] >= 0;
    }
    const std::byte* from =
        inside ? x.data + bytes * static_cast<std::size_t>(offset_of(source, x_strides, rank)) : value.data();
    std::memcpy(y.data + bytes * static_cast<std::size_t>(offset_of(i, y_strides, rank)), from, bytes);
  });
}

}  // namespace

void register_reference_slicing(Registry& registry) {
  add_layer_kernel<Concat>(registry, kReference, refuse_reduced_precision, run_concat);
  add_layer_kernel<Split>(registry, kReference, refuse_reduced_precision, run_split);
  add_layer_kernel<Slice>(registry, kReference, refuse_reduced_precision, run_slice);
  add_layer_kernel<Pad>(registry, kReference, refuse_reduced_precision, run_pad);
}

}  // namespace pipit::internal
