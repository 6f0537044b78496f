#include "layers/ops/reshaping.h"

#include "layers/common/layer_kernel.h"
#include "layers/ops/operands.h"
#include "layers/reference/index.h"
#include "layers/reference/reference.h"

namespace pipit::internal {

namespace {

void run_reshape(const Reshape& layer, std::span<const ConstTensorView> inputs,
                 std::span<const TensorView> outputs, const RunContext& /*context*/) {
  const ConstTensorView& x = inputs[0];
  const TensorView& y = outputs[0];
  if (layer.is_view(x.desc, y.desc)) {
    std::memcpy(y.data, x.data, x.desc.bytes());
    return;
  }
  copy_elements(
      Shape{x.desc.elements()}, x, [&](const Index& i) { return unravel(i[0], x.desc.shape); }, y,
      [&](const Index& i) { return unravel(i[0], y.desc.shape); });
}

void run_transpose(const Transpose& layer, std::span<const ConstTensorView> inputs,
                   std::span<const TensorView> outputs, const RunContext& /*context*/) {
  const auto& permutation = layer.attributes().permutation;
  const auto source = [&](const Index& i) {
    Index from{};
    for (std::size_t d = 0; d < permutation.size(); ++d)
      from[static_cast<std::size_t>(permutation[d])] = i[d];
    return from;
  };
  copy_elements(inputs[0], source, outputs[0]);
}

// The index into the deep tensor [N, C, H, W] that goes to `i` of the wide one [N, C / b^2, H b, W b]. ONNX
// mode DCR numbers the deep channels (row in block, column in block, channel), CRD (channel, row, column).
Index deep_index(const Index& i, const DepthToSpaceAttributes& a, std::int64_t wide_channels) {
  const std::int64_t within = i[2] % a.block * a.block + i[3] % a.block;
  const std::int64_t channel =
      a.column_row_depth ? i[1] * a.block * a.block + within : within * wide_channels + i[1];
  return {i[0], channel, i[2] / a.block, i[3] / a.block};
}

void run_depth_to_space(const DepthToSpace& layer, std::span<const ConstTensorView> inputs,
                        std::span<const TensorView> outputs, const RunContext& /*context*/) {
  const DepthToSpaceAttributes& a = layer.attributes();
  const Shape& wide = a.inverse ? inputs[0].desc.shape : outputs[0].desc.shape;
  const auto same = [](const Index& i) { return i; };
  const auto deep = [&](const Index& i) { return deep_index(i, a, wide[1]); };
  if (a.inverse) {
    copy_elements(wide, inputs[0], same, outputs[0], deep);
  } else {
    copy_elements(wide, inputs[0], deep, outputs[0], same);
  }
}

// Repeats every dimension of x, aligned at the last, as often as it fits into y: Expand and Tile.
void repeat(const ConstTensorView& x, const TensorView& y) {
  const Shape& shape = x.desc.shape;
  const auto missing = static_cast<std::size_t>(y.desc.shape.rank() - shape.rank());
  const auto source = [&](const Index& i) {
    Index from{};
    for (int d = 0; d < shape.rank(); ++d) {
      from[static_cast<std::size_t>(d)] = i[static_cast<std::size_t>(d) + missing] % shape[d];
    }
    return from;
  };
  copy_elements(x, source, y);
}

void run_expand(const Expand& /*layer*/, std::span<const ConstTensorView> inputs,
                std::span<const TensorView> outputs, const RunContext& /*context*/) {
  repeat(inputs[0], outputs[0]);
}

void run_tile(const Tile& /*layer*/, std::span<const ConstTensorView> inputs,
              std::span<const TensorView> outputs, const RunContext& /*context*/) {
  repeat(inputs[0], outputs[0]);
}

void run_gather(const Gather& layer, std::span<const ConstTensorView> inputs,
                std::span<const TensorView> outputs, const RunContext& /*context*/) {
  const ConstTensorView& data = inputs[0];
  const ConstTensorView& indices = inputs[1];
  const int axis = normalize_axis(layer.attributes().axis, data.desc.shape.rank(), "Gather");
  const Strides index_strides = indices.desc.strides();
  const int index_rank = indices.desc.shape.rank();
  // Output dimensions: those of data before the axis, those of the indices, those of data after the axis.
  const auto source = [&](const Index& i) {
    const auto first = i.begin() + axis;
    Index position{};
    std::copy_n(first, index_rank, position.begin());
    Index from{};
    std::copy(i.begin(), first, from.begin());
    from[static_cast<std::size_t>(axis)] =
        gathered_position(indices, offset_of(position, index_strides, index_rank), data.desc.shape[axis]);
    std::copy_n(first + index_rank, data.desc.shape.rank() - axis - 1, from.begin() + axis + 1);
    return from;
  };
  copy_elements(data, source, outputs[0]);
}

void run_to_layout(const ToLayout& /*layer*/, std::span<const ConstTensorView> inputs,
                   std::span<const TensorView> outputs, const RunContext& /*context*/) {
  copy_elements(
      inputs[0], [](const Index& i) { return i; }, outputs[0]);
}

}  // namespace

void register_reference_reshaping(Registry& registry) {
  add_layer_kernel<Reshape>(registry, kReference, refuse_reduced_precision, run_reshape);
  add_layer_kernel<Transpose>(registry, kReference, refuse_reduced_precision, run_transpose);
  add_layer_kernel<DepthToSpace>(registry, kReference, refuse_reduced_precision, run_depth_to_space);
  add_layer_kernel<Expand>(registry, kReference, refuse_reduced_precision, run_expand);
  add_layer_kernel<Tile>(registry, kReference, refuse_reduced_precision, run_tile);
  add_layer_kernel<Gather>(registry, kReference, refuse_reduced_precision, run_gather);
  add_layer_kernel<ToLayout>(registry, kReference, refuse_reduced_precision, run_to_layout);
}

}  // namespace pipit::internal
