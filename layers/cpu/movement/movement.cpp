#include <vector>

#include "layers/common/layer_kernel.h"
#include "layers/cpu/families.h"
#include "layers/cpu/movement/strided_copy.h"
#include "layers/cpu/work_sharing.h"
#include "layers/ops/operands.h"
#include "layers/ops/reshaping.h"
#include "layers/ops/slicing.h"

namespace pipit::internal {

namespace {

using Extents = std::array<std::int64_t, kMaxRank>;
using Loop = StridedLoop<2>;  // operands: target, source

// A rectangle that is moved: from an input to an output.
struct Region {
  int input = 0;
  int output = 0;
  Loop loop;
  std::int64_t target_start = 0;  // elements
  std::int64_t source_start = 0;
};

using Regions = std::vector<Region>;

// A box inside a tensor, and where it starts.
struct Box {
  const TensorDesc& desc;
  Extents start{};
};

// Copies the box at `source` to the box of the same `extents` at `target`.
Region box_region(const Box& target, const Box& source, const Extents& extents) {
  Region region;
  const Strides to = target.desc.strides();
  const Strides from = source.desc.strides();
  for (std::size_t d = 0; d < static_cast<std::size_t>(target.desc.shape.rank()); ++d) {
    region.loop.add(extents[d], {to[d], from[d]});
    region.target_start += to[d] * target.start[d];
    region.source_start += from[d] * source.start[d];
  }
  return region;
}

Extents extents_of(const Shape& shape) {
  Extents extents{};
  std::copy(shape.dims().begin(), shape.dims().end(), extents.begin());
  return extents;
}

Regions regions_of(const Concat& layer, const NodeSpec& spec) {
  const TensorDesc& y = spec.outputs[0];
  const auto axis =
      static_cast<std::size_t>(normalize_axis(layer.attributes().axis, y.shape.rank(), "Concat"));
  Regions regions;
  Box target{y};
  for (std::size_t i = 0; i < spec.inputs.size(); ++i) {
    const Extents extents = extents_of(spec.inputs[i]->shape);
    regions.push_back(box_region(target, Box{*spec.inputs[i]}, extents));
    regions.back().input = static_cast<int>(i);
    target.start[axis] += extents[axis];
  }
  return regions;
}

Regions regions_of(const Split& layer, const NodeSpec& spec) {
  const TensorDesc& x = *spec.inputs[0];
  const auto axis =
      static_cast<std::size_t>(normalize_axis(layer.attributes().axis, x.shape.rank(), "Split"));
  Regions regions;
  Box source{x};
  for (std::size_t i = 0; i < spec.outputs.size(); ++i) {
    const Extents extents = extents_of(spec.outputs[i].shape);
    regions.push_back(box_region(Box{spec.outputs[i]}, source, extents));
    regions.back().output = static_cast<int>(i);
    source.start[axis] += extents[axis];
  }
  return regions;
}

Regions regions_of(const Transpose& layer, const NodeSpec& spec) {
  const TensorDesc& y = spec.outputs[0];
  const Strides to = y.strides();
  const Strides from = spec.inputs[0]->strides();
  Region region;
  for (std::size_t d = 0; d < layer.attributes().permutation.size(); ++d) {
    const auto source = static_cast<std::size_t>(layer.attributes().permutation[d]);
    region.loop.add(y.shape.dims()[d], {to[d], from[source]});
  }
  return {region};
}

Regions regions_of(const ToLayout& /*layer*/, const NodeSpec& spec) {
  Region region;
  region.loop = broadcast_loop<2>({&spec.outputs[0], spec.inputs[0]});
  return {region};
}

class MovementKernel final : public Kernel {
 public:
  MovementKernel(const Regions& regions, const NodeSpec& spec) {
    const DType type = spec.outputs[0].dtype;
    const std::size_t bytes = dtype_bytes(type);
    for (const Region& region : regions) {
      if (region.loop.size() == 0) continue;
      moves_.push_back({static_cast<std::size_t>(region.input), static_cast<std::size_t>(region.output),
                        static_cast<std::size_t>(region.target_start) * bytes,
                        static_cast<std::size_t>(region.source_start) * bytes,
                        StridedCopy(region.loop, type)});
    }
  }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    for (const Move& move : moves_) {
      move.copy.run(outputs[move.output].data + move.target_start,
                    inputs[move.input].data + move.source_start, context.pool);
    }
  }

 private:
  struct Move {
    std::size_t input;
    std::size_t output;
    std::size_t target_start;  // bytes
    std::size_t source_start;
    StridedCopy copy;
  };
  std::vector<Move> moves_;
};

// Elements are moved, not looked at: all that counts is that they are stored alike.
Refusal refuse_mixed_storage(const NodeSpec& spec) {
  if (!stores_16_bits(spec.precision)) return refuse_reduced_precision(spec);
  const DType type = spec.outputs[0].dtype;
  for (std::size_t i = 0; i < spec.inputs.size(); ++i) {
    const bool moved = i == 0 || dynamic_cast<const Concat*>(&spec.layer) != nullptr;
    if (moved && spec.inputs[i]->dtype != type) return "input and output are stored differently";
  }
  return std::nullopt;
}

template <typename L>
void add_movement(Registry& registry, Refusal (*refuse)(const NodeSpec&) = refuse_mixed_storage) {
  registry.add(L::kType, DeviceKind::cpu, {"strided_copy", refuse, [](const NodeSpec& spec) {
                                             return std::make_unique<MovementKernel>(
                                                 regions_of(layer_as<L>(spec.layer), spec), spec);
                                           }});
}

Refusal refuse_gather(const NodeSpec& spec) {
  for (const TensorDesc* operand : {spec.inputs[0], spec.inputs[1], &spec.outputs[0]}) {
    if (operand->layout != Layout::row_major && !operand->layouts_coincide()) {
      return "an operand is not row_major";
    }
  }
  return refuse_reduced_precision(spec);
}

// Row-major data as [outer, axis, block]: copies block after block.
void run_gather(const Gather& layer, std::span<const ConstTensorView> inputs,
                std::span<const TensorView> outputs, const RunContext& context) {
  const Shape& shape = inputs[0].desc.shape;
  const int axis = normalize_axis(layer.attributes().axis, shape.rank(), "Gather");
  std::int64_t outer = 1;
  auto block = static_cast<std::int64_t>(dtype_bytes(inputs[0].desc.dtype));
  for (int d = 0; d < axis; ++d) outer *= shape[d];
  for (int d = axis + 1; d < shape.rank(); ++d) block *= shape[d];
  const std::int64_t count = inputs[1].desc.elements();
  if (outputs[0].desc.elements() == 0) return;
  const std::int64_t step = std::max<std::int64_t>(1, kChunkBytes / block);
  parallel_chunks(context.pool, outer * count, step, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t row = i / count * shape[axis] + gathered_position(inputs[1], i % count, shape[axis]);
      std::memcpy(outputs[0].data + i * block, inputs[0].data + row * block, static_cast<std::size_t>(block));
    }
  });
}

}  // namespace

void register_cpu_movement(Registry& registry) {
  add_movement<Concat>(registry);
  add_movement<Split>(registry);
  add_movement<Transpose>(registry);
  add_movement<ToLayout>(registry);
  add_layer_kernel<Gather>(registry, "block_copy", refuse_gather, run_gather);
}

}  // namespace pipit::internal
