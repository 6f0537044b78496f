// Candidate "rows" of Split: where the rows of its outputs make up those of its input, one launch for all of them.
#include <vector>

#include "layers/cuda/device/row_parts.h"
#include "layers/cuda/families.h"
#include "layers/cuda/movement/row_mover.cuh"
#include "layers/ops/slicing.h"

namespace pipit::internal {

namespace {

using namespace cuda;

int split_axis(const NodeSpec& spec) {
  return normalize_axis(layer_as<Split>(spec.layer).attributes().axis, spec.inputs[0]->shape.rank(), "Split");
}

Refusal refuse_split(const NodeSpec& spec) {
  if (spec.outputs.size() > kShuffleMax) return "more outputs than a launch has room for";
  std::vector<const TensorDesc*> outputs;
  for (const TensorDesc& y : spec.outputs) outputs.push_back(&y);
  return refuse_unless_rows(*spec.inputs[0], outputs, split_axis(spec));
}

class SplitRows final : public Kernel {
 public:
  explicit SplitRows(const NodeSpec& spec) : axis_(split_axis(spec)), mover_(spec.gpu) {}

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const TensorDesc& x = inputs[0].desc;
    if (x.elements() == 0) return;
    const auto part = [&](auto data, const TensorDesc& desc) {
      const std::int64_t bytes =
          step_along(desc, axis_) * desc.shape[axis_] * static_cast<std::int64_t>(dtype_bytes(desc.dtype));
      return RowPart<decltype(data)>{data, bytes, bytes};
    };
    const RowPart whole = part(static_cast<const void*>(inputs[0].data), x);
    std::vector<RowPart<void*>> parts;
    for (const TensorView& y : outputs) parts.push_back(part(static_cast<void*>(y.data), y.desc));
    mover_.run(
        {.x = std::span(&whole, 1), .y = parts, .rows = static_cast<std::int64_t>(x.bytes()) / whole.width},
        context);
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

}  // namespace pipit::internal
