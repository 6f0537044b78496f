// Layers whose elements come from places that tables name along every dimension: Pad, Slice, Expand, Tile,
// DepthToSpace, Gather by constants, Resize to the nearest pixel. Of any element type, in any memory order.
#include "layers/common/layer_kernel.h"
#include "layers/common/strided_loop.h"
#include "layers/cpu/families.h"
#include "layers/cpu/movement/table_copy.h"
#include "layers/ops/operands.h"
#include "layers/ops/reshaping.h"
#include "layers/ops/resize.h"
#include "layers/ops/slicing.h"

namespace pipit::internal {

namespace {

using Dim = TableCopy::Dim;
using Dims = std::vector<Dim>;

// A dimension of `extent` whose position i comes from place(i) of the source (negative: from nowhere), `step` apart.
template <typename Place>
Dim dim_of(std::int64_t extent, std::int64_t target_step, std::int64_t step, Place place) {
  Dim dim{target_step, std::vector<std::int64_t>(static_cast<std::size_t>(extent))};
  for (std::int64_t i = 0; i < extent; ++i) {
    const std::int64_t from = place(i);
    dim.sources[static_cast<std::size_t>(i)] = from < 0 ? TableCopy::kFill : from * step;
  }
  return dim;
}

// All dimensions of a layer whose input and output have equally many: place(d, i) as above.
template <typename Place>
Dims dims_of(const NodeSpec& spec, Place place) {
  const TensorDesc& x = *spec.inputs[0];
  const TensorDesc& y = spec.outputs[0];
  const Strides from = x.strides();
  const Strides to = y.strides();
  Dims dims;
  for (std::size_t d = 0; d < static_cast<std::size_t>(y.shape.rank()); ++d) {
    dims.push_back(dim_of(y.shape.dims()[d], to[d], from[d], [&](std::int64_t i) { return place(d, i); }));
  }
  return dims;
}

Dims dims_of(const Pad& layer, const NodeSpec& spec) {
  const PadAttributes& a = layer.attributes();
  return dims_of(spec, [&](std::size_t d, std::int64_t i) {
    return padded_source(a.mode, i - a.begin[d], spec.inputs[0]->shape.dims()[d]);
  });
}

Dims dims_of(const Slice& layer, const NodeSpec& spec) {
  const ResolvedSlice slice = resolve_slice(layer.attributes(), spec.inputs[0]->shape);
  return dims_of(spec, [&](std::size_t d, std::int64_t i) { return slice.start[d] + i * slice.step[d]; });
}

Dims dims_of(const Tile& /*layer*/, const NodeSpec& spec) {
  return dims_of(spec, [&](std::size_t d, std::int64_t i) { return i % spec.inputs[0]->shape.dims()[d]; });
}

Dims dims_of(const Resize& layer, const NodeSpec& spec) {
  const ResizeAttributes& a = layer.attributes();
  const Shape& x = spec.inputs[0]->shape;
  const Shape& y = spec.outputs[0].shape;
  return dims_of(spec, [&](std::size_t d, std::int64_t i) {
    const int axis = static_cast<int>(d);
    return resizes_axis(a, axis, x[axis]) ? nearest_position(a, axis, i, x[axis], y[axis]) : i;
  });
}

Dims dims_of(const Expand& /*layer*/, const NodeSpec& spec) {
  const TensorDesc& y = spec.outputs[0];
  const Strides to = y.strides();
  const Strides from = broadcast_strides(*spec.inputs[0], y.shape);
  Dims dims;
  for (std::size_t d = 0; d < static_cast<std::size_t>(y.shape.rank()); ++d) {
    dims.push_back(dim_of(y.shape.dims()[d], to[d], from[d], [](std::int64_t i) { return i; }));
  }
  return dims;
}

// Dimensions n, c, h, row in block, w, column in block of the wide tensor [N, C, H b, W b]; see the reference for the
// order of the deep channels.
Dims dims_of(const DepthToSpace& layer, const NodeSpec& spec) {
  const DepthToSpaceAttributes& a = layer.attributes();
  const TensorDesc& wide = a.inverse ? *spec.inputs[0] : spec.outputs[0];
  const TensorDesc& deep = a.inverse ? spec.outputs[0] : *spec.inputs[0];
  const Strides ws = wide.strides();
  const Strides ds = deep.strides();
  const std::int64_t channels = wide.shape[1];
  const std::int64_t b = a.block;
  const std::int64_t per_channel = a.column_row_depth ? b * b : 1;
  const std::int64_t per_column = a.column_row_depth ? 1 : channels;
  Dims dims;
  const auto add = [&](std::int64_t extent, std::int64_t wide_step, std::int64_t deep_step) {
    dims.push_back(dim_of(extent, a.inverse ? deep_step : wide_step, a.inverse ? wide_step : deep_step,
                          [](std::int64_t i) { return i; }));
  };
  add(wide.shape[0], ws[0], ds[0]);
  add(channels, ws[1], ds[1] * per_channel);
  add(deep.shape[2], ws[2] * b, ds[2]);
  add(b, ws[2], ds[1] * per_column * b);
  add(deep.shape[3], ws[3] * b, ds[3]);
  add(b, ws[3], ds[1] * per_column);
  return dims;
}

// Output dimensions: those of the data before the axis, those of the indices (flattened to one dimension), those of the
// data after the axis.
Dims dims_of(const Gather& layer, const NodeSpec& spec) {
  const TensorDesc& x = *spec.inputs[0];
  const TensorDesc& y = spec.outputs[0];
  const auto axis =
      static_cast<std::size_t>(normalize_axis(layer.attributes().axis, x.shape.rank(), "Gather"));
  const Tensor& indices = *spec.constant(1);
  const auto index_rank = static_cast<std::size_t>(indices.shape().rank());
  const Strides to = y.strides();
  const Strides from = x.strides();
  const std::int64_t extent = x.shape.dims()[axis];
  Dims dims;
  for (std::size_t d = 0; d < static_cast<std::size_t>(x.shape.rank()); ++d) {
    if (d == axis) {
      dims.push_back(dim_of(indices.desc().elements(), index_rank == 0 ? 0 : to[axis + index_rank - 1],
                            from[d],
                            [&](std::int64_t i) { return gathered_position(indices.view(), i, extent); }));
    } else {
      dims.push_back(dim_of(x.shape.dims()[d], to[d < axis ? d : d + index_rank - 1], from[d],
                            [](std::int64_t i) { return i; }));
    }
  }
  return dims;
}

template <typename L>
class TableKernel final : public Kernel {
 public:
  explicit TableKernel(const NodeSpec& spec)
      : copy_(dims_of(layer_as<L>(spec.layer), spec), spec.outputs[0].dtype, fill_value(spec.layer)) {}
  bool reads_constant(std::size_t index) const override { return index == 0; }
  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    copy_.run(outputs[0].data, inputs[0].data, context.pool);
  }

 private:
  static double fill_value(const Layer& layer) {
    const auto* pad = dynamic_cast<const Pad*>(&layer);
    return pad == nullptr ? 0 : pad->attributes().value;
  }
  TableCopy copy_;
};

// Elements are moved, not looked at: all that counts is that they are stored alike.
Refusal refuse_mixed_storage(const NodeSpec& spec) {
  if (!stores_16_bits(spec.precision)) return refuse_reduced_precision(spec);
  if (spec.inputs[0]->dtype != spec.outputs[0].dtype) return "input and output are stored differently";
  return std::nullopt;
}

Refusal refuse_resize(const NodeSpec& spec) {
  if (layer_as<Resize>(spec.layer).attributes().mode != ResizeMode::nearest) return "pixels are mixed";
  return refuse_mixed_storage(spec);
}

Refusal refuse_gather(const NodeSpec& spec) {
  if (Refusal reason = refuse_mixed_storage(spec)) return reason;
  const Tensor* indices = spec.constant(1);
  if (indices == nullptr) return "the indices are computed";
  if (!is_row_major(indices->desc())) return "the indices are not row_major";
  if (indices->shape().rank() > 1 && !is_row_major(spec.outputs[0])) {
    return "the dimensions of the indices are apart in the output";
  }
  const Shape& x = spec.inputs[0]->shape;
  const std::int64_t extent =
      x[normalize_axis(layer_as<Gather>(spec.layer).attributes().axis, x.rank(), "Gather")];
  for (std::int64_t i = 0; i < indices->desc().elements(); ++i) {
    const std::int64_t index = index_at(indices->view(), i);
    if (index < -extent || index >= extent) return "an index is out of range";
  }
  return std::nullopt;
}

template <typename L>
void add_table_kernel(Registry& registry, Refusal (*refuse)(const NodeSpec&) = refuse_mixed_storage) {
  registry.add(L::kType, DeviceKind::cpu, {"table_copy", refuse, [](const NodeSpec& spec) {
                                             return std::make_unique<TableKernel<L>>(spec);
                                           }});
}

}  // namespace

void register_cpu_table_movement(Registry& registry) {
  add_table_kernel<Pad>(registry);
  add_table_kernel<Slice>(registry);
  add_table_kernel<Expand>(registry);
  add_table_kernel<Tile>(registry);
  add_table_kernel<DepthToSpace>(registry);
  add_table_kernel<Gather>(registry, refuse_gather);
  add_table_kernel<Resize>(registry, refuse_resize);
}

}  // namespace pipit::internal
