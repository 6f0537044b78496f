#include "layers/cuda/conv/chain/conv_chain.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/cuda/runtime.h"
#include "layers/common/layer_kernel.h"
#include "layers/cuda/conv/gemm_args.h"
#include "layers/cuda/conv/gemm_problem.h"
#include "layers/cuda/cost/launch_cost.h"
#include "layers/cuda/device/constants.h"
#include "layers/ops/conv.h"
#include "layers/ops/qconv.h"

namespace pipit::internal::cuda {

namespace {

template <typename T>
std::vector<std::byte> bytes_of(std::span<const T> values) {
  const auto bytes = std::as_bytes(values);
  return {bytes.begin(), bytes.end()};
}

}  // namespace

bool is_int8_conv(const NodeSpec& spec) {
  return spec.layer.type() == QConv::kType;
}

const ConvAttributes& conv_attributes(const NodeSpec& spec) {
  return is_int8_conv(spec) ? layer_as<QConv>(spec.layer).attributes().conv
                            : layer_as<Conv>(spec.layer).attributes();
}

Refusal refuse_unit_conv(const NodeSpec& spec) {
  if (!is_int8_conv(spec) && spec.layer.type() != Conv::kType) return "only convolutions are handled";
  if (is_int8_conv(spec)) {
    if (Refusal reason = refuse_qconv_gemm(spec)) return reason;
    if (!layer_as<QConv>(spec.layer).attributes().y.quantized()) return "y is not quantized";
  } else {
    if (refuse_other_types(spec)) return "only fp16, bf16 and int8 are handled";
    if (Refusal reason = refuse_conv_gemm(spec, conv_attributes(spec), spec.inputs[0]->shape[1]))
      return reason;
  }
  if (!is_channels_last(*spec.inputs[0])) return "x must be channels_last";
  return std::nullopt;
}

Refusal refuse_link(const NodeSpec& spec) {
  if (Refusal reason = refuse_unit_conv(spec)) return reason;
  const Window& w = conv_attributes(spec).window;
  const std::int64_t size = w.kernel[0];
  for (int axis = 0; axis < 2; ++axis) {
    const auto a = static_cast<std::size_t>(axis);
    if ((size != 1 && size != 3) || w.kernel[a] != size || w.stride[a] != 1 || w.dilation[a] != 1 ||
        w.pad_begin[a] != size / 2 || w.pad_end[a] != size / 2)
      return "only 1x1, and 3x3 with padding 1, of stride 1 are handled";
  }
  return std::nullopt;
}

std::optional<ConvChain> ConvChain::of(const NodeSpec& first, std::span<const ChainLink> links) {
  ConvChain chain;
  chain.nodes.push_back(&first);
  for (const ChainLink& link : links) chain.nodes.push_back(link.node);
  const Shape& x = first.inputs[0]->shape;
  for (const NodeSpec* node : chain.nodes) {
    if (node->precision != first.precision || is_int8_conv(*node) != is_int8_conv(first) ||
        refuse_link(*node))
      return std::nullopt;
    const Shape& other = node->inputs[0]->shape;
    if (other[0] != x[0] || other[2] != x[2] || other[3] != x[3]) return std::nullopt;
  }
  for (const std::size_t i : {std::size_t{0}, std::size_t{3}}) {
    if (first.has_input(i)) chain.inputs.push_back(i);
  }
  const auto value = [&](const LinkSource& source) {
    if (source.kind == LinkSource::Kind::node) return static_cast<int>(chain.inputs.size()) + source.index;
    const auto found =
        std::find(chain.inputs.begin(), chain.inputs.end(), static_cast<std::size_t>(source.index));
    return static_cast<int>(found - chain.inputs.begin());
  };
  ConvChainShape& shape = chain.shape;
  // refuse_link counts positions and channels in 32 bits.
  shape.images = static_cast<int>(x[0]), shape.height = static_cast<int>(x[2]);
  shape.width = static_cast<int>(x[3]);
  shape.element_bytes = is_int8_conv(first) ? 1 : 2;
  shape.bf16 = first.precision == Precision::bf16;
  for (const std::size_t i : chain.inputs)
    shape.inputs.push_back(static_cast<int>(first.inputs[i]->shape[1]));
  for (std::size_t n = 0; n < chain.nodes.size(); ++n) {
    const NodeSpec& node = *chain.nodes[n];
    ChainConv conv;
    conv.in_c = static_cast<int>(node.inputs[0]->shape[1]);
    conv.out_c = static_cast<int>(node.outputs[0].shape[1]);
    conv.window = conv_attributes(node).window.kernel[0] == 3;
    const auto source = [&](std::size_t input) {
      return value(n == 0 ? LinkSource{LinkSource::Kind::input, static_cast<int>(input)}
                          : links[n - 1].sources[input]);
    };
    conv.x = source(0);
    if (node.has_input(3)) conv.residual = source(3);
    shape.convs.push_back(conv);
  }
  return chain;
}

std::vector<std::byte> ordered_weights(const NodeSpec& spec) {
  const Tensor weights = to_layout(spec.constant(1)->view(), Layout::row_major);
  const Shape& shape = weights.desc().shape;
  const std::int64_t channels = shape[1], taps = shape[2] * shape[3];
  const bool int8 = is_int8_conv(spec);
  const std::int64_t bytes = int8 ? 1 : 2;
  std::vector<std::byte> ordered(static_cast<std::size_t>(weights.desc().elements() * bytes));
  for (std::int64_t o = 0; o < shape[0]; ++o) {
    for (std::int64_t c = 0; c < channels; ++c) {
      for (std::int64_t t = 0; t < taps; ++t) {
        const auto from = static_cast<std::size_t>((o * channels + c) * taps + t);
        std::byte* to = ordered.data() + ((o * taps + t) * channels + c) * bytes;
        if (int8) {
          std::memcpy(to, &weights.values<std::int8_t>()[from], 1);
        } else {
          const std::uint16_t narrow =
              narrow_bits(weights.values<float>()[from], internal::stored_type(spec.precision));
          std::memcpy(to, &narrow, 2);
        }
      }
    }
  }
  return ordered;
}

std::vector<std::byte> biases_of(const NodeSpec& spec) {
  const Tensor* bias = spec.constant(2);
  if (bias == nullptr) return std::vector<std::byte>(static_cast<std::size_t>(spec.outputs[0].shape[1]) * 4);
  return is_int8_conv(spec) ? bytes_of<std::int32_t>(bias->values<std::int32_t>())
                            : bytes_of<float>(bias->values<float>());
}

std::vector<std::byte> multipliers_of(const NodeSpec& spec) {
  return bytes_of<float>(
      requantization_multipliers(layer_as<QConv>(spec.layer).attributes(), spec.outputs[0].shape[1]));
}

LinkBounds bounds_of(const NodeSpec& spec) {
  const Clamp& clamp = conv_attributes(spec).activation;
  if (!is_int8_conv(spec)) return {clamp.low, clamp.high, 0};
  const QConvAttributes& a = layer_as<QConv>(spec.layer).attributes();
  const StepBounds bounds = output_bounds(a.y, clamp);
  return {bounds.low, bounds.high, residual_factor(a)};
}

PairBounds unit_bounds(const NodeSpec& spec) {
  const LinkBounds bounds = bounds_of(spec);
  if (is_int8_conv(spec)) return PairBounds::of(StepBounds{bounds.low, bounds.high});
  const DType type = internal::stored_type(spec.precision);
  return {PairBounds::pair_of(narrow_bits(bounds.low, type)),
          PairBounds::pair_of(narrow_bits(bounds.high, type))};
}

bool has_sums_below(const NodeSpec& spec, bool relu, std::int64_t limit) {
  const Tensor weights = to_layout(spec.constant(1)->view(), Layout::row_major);
  const MostOfInt8 most = most_of_int8(spec, weights.values<std::int8_t>(), qconv_biases(spec));
  return most.sum < limit && most.steps < kMaxSteps && (!relu || bounds_of(spec).low == 0);
}

void append_unit_constants(const NodeSpec& spec, bool stored, std::vector<std::byte>& constants) {
  const bool int8 = is_int8_conv(spec);
  const std::vector<std::byte> biases = biases_of(spec);
  const std::vector<std::byte> multipliers = int8 ? multipliers_of(spec) : std::vector<std::byte>();
  constexpr std::size_t kBytes = kUnitChannels * 4;
  for (std::size_t first = 0; first < biases.size(); first += kBytes) {
    for (const std::vector<std::byte>* values : {&biases, &multipliers}) {
      if (values->empty()) continue;
      constants.resize(constants.size() + kBytes);
      pack_unit_constants(values->data() + first, stored, int8 ? 1 : 2,
                          constants.data() + constants.size() - kBytes);
    }
  }
}

void append_units(const NodeSpec& spec, bool stored, std::vector<std::byte>& weights,
                  std::vector<std::byte>& constants, int inner) {
  append_units(ordered_weights(spec).data(),
               {.in_c = static_cast<int>(spec.inputs[0]->shape[1]),
                .out_c = static_cast<int>(spec.outputs[0].shape[1]),
                .taps = static_cast<int>(conv_attributes(spec).window.taps()),
                .element_bytes = is_int8_conv(spec) ? 1 : 2},
               stored, inner, weights);
  append_unit_constants(spec, stored, constants);
}

double chain_megabytes(const NodeSpec& first, std::span<const ChainLink> links) {
  double bytes = static_cast<double>((links.empty() ? first : *links.back().node).outputs[0].bytes());
  for (std::size_t i = 0; i < first.inputs.size(); ++i) bytes += input_bytes(first, i);
  for (const ChainLink& link : links) {
    for (std::size_t i = 0; i < link.sources.size(); ++i) {
      const LinkSource::Kind kind = link.sources[i].kind;
      if (kind == LinkSource::Kind::none || kind == LinkSource::Kind::outside)
        bytes += input_bytes(*link.node, i);
    }
  }
  return 1e-6 * bytes;
}

std::string chain_type(int element_bytes) {
  return element_bytes == 1 ? " i8" : " f16";
}

}  // namespace pipit::internal::cuda
