// Candidate "rows" of Split: where the rows of its outputs make up those of its input, one launch for all of them.
#include "layers/cuda/device/row_parts.h"
#include "layers/cuda/families.h"
#include "layers/cuda/movement/row_mover.cuh"
#include "layers/ops/slicing.h"

namespace pipit {

namespace {

using namespace cuda;

int split_axis(const NodeSpec& spec) {
  return normalize_axis(layer_as<Split>(spec.layer).attributes().axis, spec.inputs[0]->shape.rank(), "Split");
}

Refusal refuse_split(const NodeSpec& spec) {
  if (spec.outputs.size() > kShuffleMost) return "more outputs than a launch has room for";
  std::vector<const TensorDesc*> outputs;
  for (const TensorDesc& y : spec.outputs) outputs.push_back(&y);
  return refuse_unless_rows(*spec.inputs[0], outputs, split_axis(spec));
}

// One group, whose channels stay in their order, in units as wide as all outputs allow.
class SplitRows final : public Kernel {
 public:
  explicit SplitRows(const NodeSpec& spec) : axis_(split_axis(spec)), mover_(spec.gpu) {}

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const TensorDesc& x = inputs[0].desc;
    if (x.elements() == 0) return;
    const auto bytes = [&](const TensorDesc& desc) {
      return step_along(desc, axis_) * desc.shape[axis_] * static_cast<std::int64_t>(dtype_bytes(desc.dtype));
    };
    std::uintptr_t all = reinterpret_cast<std::uintptr_t>(inputs[0].data);
    for (const TensorView& y : outputs)
      all |= reinterpret_cast<std::uintptr_t>(y.data) | static_cast<std::uintptr_t>(bytes(y.desc));
    const auto move = [&]<typename T>() {
      const auto width = [&](std::size_t, const TensorDesc& desc) {
        const std::int64_t elements = bytes(desc) / static_cast<std::int64_t>(sizeof(T));
        return RowPart{elements, elements};
      };
      ShuffleArgs args;
      args.of_group = static_cast<unsigned>(side_by_side(inputs.first(1), args.x, width));
      side_by_side(outputs, args.y, width);
      args.rows = static_cast<int>(static_cast<std::int64_t>(x.bytes()) / bytes(x));
      mover_.launch<T, 1>(args, static_cast<int>(args.of_group), context);
    };
    if (all % 16 == 0) return move.operator()<uint4>();
    if (all % 8 == 0) return move.operator()<std::uint64_t>();
    if (all % 4 == 0) return move.operator()<unsigned>();
    if (all % 2 == 0) return move.operator()<unsigned short>();
    move.operator()<unsigned char>();
  }

 private:
  int axis_;
  RowMover mover_;
};

}  // namespace

void register_cuda_split_rows(Registry& registry) {
  registry.add(Split::kType, DeviceKind::cuda,
               {"rows", refuse_split, [](const NodeSpec& spec) {
                  return std::unique_ptr<Kernel>(std::make_unique<SplitRows>(spec));
                }});
}

}  // namespace pipit
