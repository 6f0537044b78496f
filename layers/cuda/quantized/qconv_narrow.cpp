// Candidate "narrow_gemm" of QConv: 1x1 convolutions of few channels, as in front of and behind the depthwise ones of
// mobile networks (qconv_narrow.cu).
#include <fmt/format.h>

#include <limits>

#include "engine/cuda/runtime.h"
#include "layers/common/layer_kernel.h"
#include "layers/cuda/families.h"
#include "layers/cuda/quantized/qconv_common.h"
#include "layers/cuda/quantized/qconv_follower.h"
#include "layers/cuda/quantized/qconv_narrow_launch.h"
#include "layers/ops/qconv.h"

namespace pipit {

namespace {

using cuda::DeviceBuffer;
using cuda::NarrowArgs;
using cuda::NarrowShape;

const QConvAttributes& attributes_of(const NodeSpec& spec) {
  return layer_as<QConv>(spec.layer).attributes();
}

NarrowShape shape_of(const NodeSpec& spec) {
  return {static_cast<int>(spec.inputs[0]->shape[1]), static_cast<int>(spec.outputs[0].shape[1])};
}

std::vector<std::int32_t> biases_of(const NodeSpec& spec) {
  std::vector<std::int32_t> bias(static_cast<std::size_t>(spec.outputs[0].shape[1]));
  if (const Tensor* given = spec.constant(2)) {
    const auto values = given->values<std::int32_t>();
    bias.assign(values.begin(), values.end());
  }
  return bias;
}

Refusal refuse(const NodeSpec& spec) {
  const QConvAttributes& a = attributes_of(spec);
  const TensorDesc& x = *spec.inputs[0];
  const TensorDesc& y = spec.outputs[0];
  const Window& w = a.conv.window;
  if (w.rank != 2 || a.conv.groups != 1 || w.taps() != 1 || w.stride[0] != 1 || w.stride[1] != 1)
    return "only 1x1 in two spatial dimensions, stride and groups 1, is handled";
  if (w.pad_begin[0] + w.pad_begin[1] + w.pad_end[0] + w.pad_end[1] != 0) return "there is padding";
  if (!cuda::is_symmetric_i8(a.x) || x.dtype != DType::i8) return "x is not i8 with zero point 0";
  if (!cuda::is_symmetric_i8(a.y) || y.dtype != DType::i8) return "y is not i8 with zero point 0";
  if (spec.has_input(3) && !cuda::is_symmetric_i8(a.residual))
    return "the residual is not i8 with zero point 0";
  if (spec.constant(1) == nullptr) return "weights are computed at run time";
  if (spec.has_input(2) && spec.constant(2) == nullptr) return "the bias is computed at run time";
  if (!is_channels_last(x) || !is_channels_last(y) ||
      (spec.has_input(3) && !is_channels_last(*spec.inputs[3])))
    return "x, y and the residual must be channels_last";
  if (x.elements() == 0 || y.elements() == 0) return "empty tensors are not handled";
  if (x.shape[1] > cuda::kNarrowMostChannels)
    return fmt::format("{} channels; at most {} are handled", x.shape[1], cuda::kNarrowMostChannels);
  if (x.shape[1] % 8 != 0 || y.shape[1] % 8 != 0) return "channels must be multiples of 8";
  constexpr std::int64_t kLimit = std::numeric_limits<std::int32_t>::max() / 2;
  if (x.elements() / x.shape[1] > kLimit || y.shape[1] > cuda::kNarrowMostShared ||
      shape_of(spec).shared_bytes() > cuda::kNarrowMostShared)
    return fmt::format("more than {} bytes of weights, or {} positions, are not handled",
                       cuda::kNarrowMostShared, kLimit);
  const Tensor weights = to_layout(spec.constant(1)->view(), Layout::row_major);
  if (!cuda::most_of_int8(spec, weights.values<std::int8_t>(), biases_of(spec)).is_small())
    return "only sums below 2^22 and results below 2^15 steps are handled";
  return std::nullopt;
}

class QNarrowGemm final : public Kernel {
 public:
  explicit QNarrowGemm(const NodeSpec& spec) {
    const QConvAttributes& a = attributes_of(spec);
    const TensorDesc& x = *spec.inputs[0];
    args_.shape = shape_of(spec);
    args_.positions = static_cast<int>(x.elements() / x.shape[1]);
    args_.packed_bytes = args_.shape.shared_bytes();
    const StepBounds bounds = cuda::output_bounds(a.y, a.conv.activation);
    args_.bounds = cuda::PairBounds::of(bounds);
    args_.relu = bounds.low == 0;
    args_.residual_scale = cuda::residual_factor(a);
    std::vector<std::int32_t> bias = biases_of(spec);
    for (std::int32_t& b : bias) b += cuda::kMagicBits;
    const Tensor weights = to_layout(spec.constant(1)->view(), Layout::row_major);
    const std::vector<std::byte> packed = cuda::pack_narrow(
        args_.shape, weights.values<std::int8_t>(), bias, requantization_multipliers(a, args_.shape.outputs));
    packed_ = DeviceBuffer(packed.data(), packed.size());
    args_.packed = packed_.as<const std::byte>();
    table_ = cuda::upload_table(cuda::follower_table(spec));
    args_.table = table_.as<const std::uint8_t>();
    PIPIT_CUDA(cuda::prepare_narrow_gemm(args_, spec.has_input(3), blocks_, overlap_));
  }
  bool reads_constant(std::size_t index) const override { return index != 1 && index != 2; }
  std::size_t packed_bytes() const override { return packed_.bytes() + table_.bytes(); }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    NarrowArgs args = args_;
    args.x = inputs[0].as<std::int8_t>();
    args.residual = optional_data<std::int8_t>(inputs, 3);
    args.y = outputs[0].as<std::int8_t>();
    PIPIT_CUDA(cuda::launch_narrow_gemm(args, blocks_, overlap_, static_cast<cudaStream_t>(context.stream)));
  }

 private:
  NarrowArgs args_;
  int blocks_ = 1;
  bool overlap_ = false;
  DeviceBuffer packed_;
  DeviceBuffer table_;
};

}  // namespace

void register_cuda_qconv_narrow(Registry& registry) {
  Candidate candidate{"narrow_gemm", refuse,
                      [](const NodeSpec& spec) { return std::make_unique<QNarrowGemm>(spec); }};
  // Others go first by rule as long as nobody has timed it on a GPU.
  candidate.yields = [](const NodeSpec&) { return true; };
  candidate.fuses_epilogue = [](const NodeSpec& spec, const NodeSpec& next) {
    return !spec.has_input(3) && cuda::fuses_table(spec, next);
  };
  registry.add(QConv::kType, DeviceKind::cuda, std::move(candidate));
}

}  // namespace pipit
