// Candidate "samples" of DynamicQuantize: scales that are found and used on the GPU.
#include "layers/cuda/reduction/dynamic_quantize_kernel.cuh"

#include <limits>

#include "layers/cuda/device/kernel.cuh"
#include "layers/cuda/families.h"
#include "layers/ops/dynamic_int8.h"

namespace pipit::internal {

namespace {

using namespace cuda;

Refusal refuse(const NodeSpec& spec) {
  if (layer_as<DynamicQuantize>(spec.layer).attributes().affine) return "zero points are not handled";
  const TensorDesc& x = *spec.inputs[0];
  const TensorDesc& q = spec.outputs[0];
  if (q.dtype != DType::i8) return "only integers of i8 are handled";
  if (x.dtype != DType::f16 && x.dtype != DType::f32) return "only x of f16 and f32 is handled";
  if (x.layout != q.layout && !q.layouts_coincide()) return "input and output have different layouts";
  if (q.elements() == 0) return "the input is empty";
  // Samples are the first dimension of a grid.
  if (spec.outputs[1].elements() > std::numeric_limits<std::int32_t>::max())
    return "there are more than 2147483647 samples";
  return std::nullopt;
}

class Samples final : public Kernel {
 public:
  explicit Samples(const NodeSpec& spec) : samples_(spec.outputs[1].elements()) {
    args_.halves = spec.inputs[0]->dtype == DType::f16;
    args_.size = spec.inputs[0]->elements() / samples_;
    args_.vectors = args_.size % 8 == 0;
    args_.blocks = dynamic_blocks(args_.size);
  }
  std::size_t scratch_bytes() const override {
    return static_cast<std::size_t>(samples_) * static_cast<std::size_t>(args_.blocks) *
           sizeof(std::uint32_t);
  }
  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    DynamicArgs args = args_;
    args.x = inputs[0].data;
    args.largest = reinterpret_cast<std::uint32_t*>(context.scratch);
    args.y = outputs[0].as<std::int8_t>();
    args.scales = outputs[1].as<float>();
    const dim3 grid(static_cast<unsigned>(samples_), static_cast<unsigned>(args.blocks)),
        block(kDynamicThreads);
    launch_waiting("find_largest", find_largest, grid, block, context, args);
    launch_waiting("quantize_samples", quantize_samples, grid, block, context, args);
  }

 private:
  std::int64_t samples_;
  DynamicArgs args_;
};

}  // namespace

void register_cuda_dynamic_quantize(Registry& registry) {
  Candidate candidate{"samples", refuse,
                      [](const NodeSpec& spec) { return std::make_unique<Samples>(spec); }};
  candidate.estimate = streaming(refuse);
  registry.add(DynamicQuantize::kType, DeviceKind::cuda, std::move(candidate));
}

}  // namespace pipit::internal
