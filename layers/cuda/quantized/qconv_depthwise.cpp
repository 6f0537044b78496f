// Candidate "depthwise_quads" of QConv: the depthwise convolutions of networks, and the function of their results.
#include <vector>

#include "engine/cuda/runtime.h"
#include "layers/common/layer_kernel.h"
#include "layers/cuda/conv/conv_depthwise_problem.h"
#include "layers/cuda/conv/conv_gemm_launch.h"
#include "layers/cuda/cost/launch_cost.h"
#include "layers/cuda/families.h"
#include "layers/cuda/quantized/qconv_common.h"
#include "layers/cuda/quantized/qconv_depthwise_launch.h"
#include "layers/cuda/quantized/qconv_depthwise_pack.h"
#include "layers/cuda/quantized/qconv_follower.h"
#include "layers/ops/qconv.h"

namespace pipit {

namespace {

using cuda::DeviceBuffer;
using cuda::QDepthwiseArgs;

const QConvAttributes& attributes_of(const NodeSpec& spec) {
  return layer_as<QConv>(spec.layer).attributes();
}

Refusal refuse_depthwise_quads(const NodeSpec& spec) {
  if (Refusal reason = cuda::refuse_sliding_depthwise(spec, attributes_of(spec).conv)) return reason;
  if (spec.inputs[0]->dtype == DType::f32) return "x is f32";
  return std::nullopt;
}

/// QDepthwiseArgs::table.
std::optional<cuda::ByteTable> table_of(const NodeSpec& spec) {
  const std::optional<cuda::ByteTable> follower = cuda::follower_table(spec);
  const Quantization& y = attributes_of(spec).y;
  if (!follower && (!y.quantized() || y.zero_point == 0)) return std::nullopt;
  cuda::ByteTable table{};
  for (std::size_t step = 0; step < table.size(); ++step) {
    const auto byte = static_cast<std::uint8_t>(step + static_cast<unsigned>(y.zero_point));
    table[step] = follower ? (*follower)[byte] : byte;
  }
  return table;
}

template <typename T>
DeviceBuffer upload(const std::vector<T>& values) {
  return {values.data(), values.size() * sizeof(T)};
}

class QDepthwise final : public Kernel {
 public:
  explicit QDepthwise(const NodeSpec& spec) {
    const QConvAttributes& a = attributes_of(spec);
    static_cast<cuda::DepthwiseGeometry&>(args_) = cuda::depthwise_geometry(spec, a.conv.window);
    const cuda::IntegerOperand operand(a.x);
    args_.flip = operand.flip;
    args_.padding = static_cast<std::uint8_t>(a.x.zero_point) * 0x01010101U;
    set_constants(spec, operand.zero_point);
    const StepBounds bounds = cuda::output_bounds(a.y, a.conv.activation);
    args_.low = bounds.low;
    args_.high = bounds.high;
    if (attributes_of(spec).y.quantized()) args_.whole_bounds = cuda::PairBounds::of(bounds);
    args_.stored = a.y.quantized() ? cuda::StoredType::i8 : cuda::stored_type(spec.outputs[0].dtype);
    table_ = cuda::upload_table(table_of(spec));
    args_.table = table_.as<const std::uint8_t>();
    PIPIT_CUDA(cuda::prepare_qconv_depthwise(args_, overlap_));
  }
  bool reads_constant(std::size_t index) const override { return index != 1 && index != 2; }
  std::size_t packed_bytes() const override {
    return weights_.bytes() + bias_.bytes() + multipliers_.bytes() + table_.bytes();
  }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    QDepthwiseArgs args = args_;
    args.x = inputs[0].data;
    args.y = outputs[0].data;
    PIPIT_CUDA(cuda::launch_qconv_depthwise_quads(args, overlap_, static_cast<cudaStream_t>(context.stream)));
  }

 private:
  void set_constants(const NodeSpec& spec, int zero_point) {
    const auto channels = static_cast<std::size_t>(args_.channels);
    const Tensor plain = to_layout(spec.constant(1)->view(), Layout::row_major);
    const auto weights = plain.values<std::int8_t>();
    std::vector<std::int32_t> bias = cuda::qconv_biases(spec);
    // Padding holds the zero point, so every tap counts: what x's bytes are more than its integers goes off the bias.
    const std::size_t taps = weights.size() / channels;
    for (std::size_t c = 0; c < channels; ++c) {
      int sum = 0;
      for (const std::int8_t w : weights.subspan(c * taps, taps)) sum += w;
      bias[c] = static_cast<std::int32_t>(static_cast<std::uint32_t>(bias[c]) -
                                          static_cast<std::uint32_t>(zero_point * sum));
    }
    args_.small = cuda::most_of_int8(spec, weights, bias).is_small();
    weights_ = upload(cuda::pack_depthwise(weights, channels, args_.window));
    bias_ = upload(bias);
    multipliers_ = upload(requantization_multipliers(attributes_of(spec), args_.channels));
    args_.weights = weights_.as<const std::int32_t>();
    args_.bias = bias_.as<const std::int32_t>();
    args_.multipliers = multipliers_.as<const float>();
  }

  QDepthwiseArgs args_;
  bool overlap_ = false;
  DeviceBuffer weights_;
  DeviceBuffer bias_;
  DeviceBuffer multipliers_;
  DeviceBuffer table_;
};

}  // namespace

void register_cuda_qconv_depthwise_quads(Registry& registry) {
  Candidate candidate{"depthwise_quads", refuse_depthwise_quads,
                      [](const NodeSpec& spec) { return std::make_unique<QDepthwise>(spec); }};
  candidate.estimate = [](const NodeSpec& spec) -> std::optional<Estimate> {
    if (refuse_depthwise_quads(spec)) return std::nullopt;
    return cuda::estimate_of("depthwise_quads i8", cuda::plain_terms(spec, attributes_of(spec).conv.window));
  };
  candidate.fuses_epilogue = cuda::fuses_table;
  registry.add(QConv::kType, DeviceKind::cuda, std::move(candidate));
}

}  // namespace pipit
