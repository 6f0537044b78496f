// Candidate "row_chain" of Conv and QConv: the convolutions between two changes of resolution in one launch, at batches
// so small that every launch waits for the one in front.
#include <algorithm>
#include <cstring>
#include <optional>
#include <variant>

#include "engine/cuda/runtime.h"
#include "layers/common/layer_kernel.h"
#include "layers/cuda/chain/row_chain_launch.h"
#include "layers/cuda/conv/conv_gemm_problem.h"
#include "layers/cuda/families.h"
#include "layers/cuda/quantized/qconv_common.h"
#include "layers/cuda/quantized/qconv_gemm_operands.h"
#include "layers/ops/conv.h"
#include "layers/ops/qconv.h"

namespace pipit {

namespace {

using cuda::RowChainArgs;
using cuda::RowChainPlan;
using cuda::RowChainShape;
using cuda::RowConv;
using cuda::RowPart;

bool is_int8(const NodeSpec& spec) {
  return spec.layer.type() == QConv::kType;
}

const ConvAttributes& attributes_of(const NodeSpec& spec) {
  return is_int8(spec) ? layer_as<QConv>(spec.layer).attributes().conv
                       : layer_as<Conv>(spec.layer).attributes();
}

bool is_half(const TensorDesc& desc) {
  return desc.dtype == DType::f16;
}

/// Why the convolution cannot be part of any chain.
Refusal refuse_link(const NodeSpec& spec) {
  if (!is_int8(spec) && spec.layer.type() != Conv::kType) return "only convolutions are handled";
  if (is_int8(spec)) {
    if (Refusal reason = cuda::refuse_qconv_gemm(spec)) return reason;
    if (!layer_as<QConv>(spec.layer).attributes().y.quantized()) return "y is not quantized";
  } else {
    if (spec.precision != Precision::fp16 || !is_half(*spec.inputs[0]) || !is_half(spec.outputs[0]) ||
        (spec.has_input(3) && !is_half(*spec.inputs[3])))
      return "only fp16 and int8 are handled";
    if (Refusal reason = cuda::refuse_conv_gemm(spec, attributes_of(spec), spec.inputs[0]->shape[1]))
      return reason;
  }
  if (!is_channels_last(*spec.inputs[0])) return "x must be channels_last";
  const Window& w = attributes_of(spec).window;
  const std::int64_t size = w.kernel[0];
  for (int axis = 0; axis < 2; ++axis) {
    const auto a = static_cast<std::size_t>(axis);
    if ((size != 1 && size != 3) || w.kernel[a] != size || w.stride[a] != 1 || w.dilation[a] != 1 ||
        w.pad_begin[a] != size / 2 || w.pad_end[a] != size / 2)
      return "only 1x1, and 3x3 with padding 1, of stride 1 are handled";
  }
  return std::nullopt;
}

/// The chain of a node and what follows it.
struct Chain {
  std::vector<const NodeSpec*> nodes;
  std::vector<std::size_t> inputs;  ///< of the first node, in the order of RowChainShape::inputs
  RowChainShape shape;

  /// Nothing where one of them cannot be part of it.
  static std::optional<Chain> of(const NodeSpec& first, std::span<const ChainLink> links) {
    Chain chain;
    chain.nodes.push_back(&first);
    for (const ChainLink& link : links) chain.nodes.push_back(link.node);
    const Shape& x = first.inputs[0]->shape;
    for (const NodeSpec* node : chain.nodes) {
      if (is_int8(*node) != is_int8(first) || refuse_link(*node)) return std::nullopt;
      const Shape& other = node->inputs[0]->shape;
      if (other[0] != x[0] || other[2] != x[2] || other[3] != x[3]) return std::nullopt;
    }
    if (x[0] > 1024 || x[2] > 1024)
      return std::nullopt;  // rows are counted in 32 bits, and there are fewer blocks
    for (const std::size_t i : {std::size_t{0}, std::size_t{3}}) {
      if (first.has_input(i)) chain.inputs.push_back(i);
    }
    chain.shape = {static_cast<int>(x[0]),
                   static_cast<int>(x[2]),
                   static_cast<int>(x[3]),
                   is_int8(first) ? 1 : 2,
                   {},
                   {}};
    for (const std::size_t i : chain.inputs)
      chain.shape.inputs.push_back(static_cast<int>(first.inputs[i]->shape[1]));
    for (std::size_t n = 0; n < chain.nodes.size(); ++n) {
      const NodeSpec& node = *chain.nodes[n];
      RowConv conv;
      conv.in_c = static_cast<int>(node.inputs[0]->shape[1]);
      conv.out_c = static_cast<int>(node.outputs[0].shape[1]);
      conv.window = attributes_of(node).window.kernel[0] == 3;
      const auto source = [&](std::size_t input) {
        return n == 0 ? chain.value({LinkSource::Kind::input, static_cast<int>(input)})
                      : chain.value(links[n - 1].sources[input]);
      };
      conv.x = source(0);
      if (node.has_input(3)) conv.residual = source(3);
      chain.shape.convs.push_back(conv);
    }
    return chain;
  }

 private:
  int value(const LinkSource& source) const {
    if (source.kind == LinkSource::Kind::node) return static_cast<int>(inputs.size()) + source.index;
    const auto found = std::find(inputs.begin(), inputs.end(), static_cast<std::size_t>(source.index));
    return static_cast<int>(found - inputs.begin());
  }
};

int processors(int gpu) {
  int count = 0, major = 0;
  PIPIT_CUDA(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, gpu));
  PIPIT_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, gpu));
  return major >= 9 ? count : 0;
}

/// Nothing where the chain does not fit the GPU.
std::optional<RowChainPlan> plan_of(const Chain& chain, int gpu) {
  auto planned = cuda::plan_row_chain(chain.shape, processors(gpu));
  auto* plan = std::get_if<RowChainPlan>(&planned);
  if (plan == nullptr) return std::nullopt;
  int clusters = 0;
  PIPIT_CUDA(
      cuda::row_chain_clusters(chain.shape.element_bytes == 1, plan->ranks, plan->shared_bytes, clusters));
  if (clusters < chain.shape.rows()) return std::nullopt;
  return std::move(*plan);
}

/// Whether one launch is faster than one for each, as measured on an H200 (docs/benchmarks/gpu.md): kernels around a
/// chain find no room beside it, so that short ones lose, and every block has weights to read that other rows' blocks
/// read, too. What leaves most of the GPU idle was not measured.
bool pays(const Chain& chain, const RowChainPlan& plan, int gpu) {
  const bool int8 = chain.shape.element_bytes == 1;
  const auto convolutions = static_cast<int>(chain.shape.convs.size());
  constexpr std::int64_t kMostWeights = 256 << 10;  // of a block, a convolution
  return plan.ranks >= (int8 ? 4 : 2) && convolutions >= (int8 ? 9 : 6) &&
         plan.stream_bytes <= kMostWeights * convolutions &&
         chain.shape.rows() * plan.ranks * 2 >= processors(gpu);
}

// [out_c, in_c, taps] of f32 or i8 to [out_c, taps, in_c] of what the kernel multiplies.
std::vector<std::byte> weights_of(const NodeSpec& spec) {
  const Tensor weights = to_layout(spec.constant(1)->view(), Layout::row_major);
  const Shape& shape = weights.desc().shape;
  const std::int64_t channels = shape[1], taps = shape[2] * shape[3];
  const bool int8 = is_int8(spec);
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
          const Half half = to_half(weights.values<float>()[from]);
          std::memcpy(to, &half, 2);
        }
      }
    }
  }
  return ordered;
}

// What a part's outputs of a block need beside their sums: biases, in INT8 then multipliers.
void append_constants(const NodeSpec& spec, const RowPart& part, int rank, std::vector<std::byte>& to) {
  const int first = cuda::first_row_output(part, rank, is_int8(spec) ? 1 : 2);
  const auto append = [&](const auto* values) {
    const auto* bytes = reinterpret_cast<const std::byte*>(values + first);
    to.insert(to.end(), bytes, bytes + (std::ptrdiff_t{128} << part.quads_log2));
  };
  const auto outputs = static_cast<std::size_t>(spec.outputs[0].shape[1]);
  const Tensor* bias = spec.constant(2);
  if (is_int8(spec)) {
    const std::vector<std::int32_t> zeros(bias == nullptr ? outputs : 0);
    append(bias == nullptr ? zeros.data() : bias->values<std::int32_t>().data());
    const std::vector<float> multipliers =
        requantization_multipliers(layer_as<QConv>(spec.layer).attributes(), spec.outputs[0].shape[1]);
    append(multipliers.data());
  } else {
    const std::vector<float> zeros(bias == nullptr ? outputs : 0);
    append(bias == nullptr ? zeros.data() : bias->values<float>().data());
  }
}

class RowChain final : public Kernel {
 public:
  explicit RowChain(const NodeSpec& spec) : RowChain(*Chain::of(spec, spec.fusion.chain), spec.gpu) {}

  std::size_t scratch_bytes() const override { return exchange_bytes_; }
  std::size_t state_bytes() const override { return cuda::row_chain_counters(args_) * sizeof(std::uint32_t); }
  bool reads_constant(std::size_t index) const override { return index != 1 && index != 2; }
  std::size_t packed_bytes() const override { return weights_.bytes() + constants_.bytes(); }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    RowChainArgs args = args_;
    for (std::size_t i = 0; i < inputs_.size(); ++i)
      args.x[i] = static_cast<const std::byte*>(inputs[inputs_[i]].data);
    args.y = static_cast<std::byte*>(outputs[0].data);
    args.rows = context.scratch;
    args.counters = reinterpret_cast<std::uint32_t*>(context.state);
    PIPIT_CUDA(cuda::launch_row_chain(int8_, shared_bytes_, args, static_cast<cudaStream_t>(context.stream)));
  }

 private:
  RowChain(const Chain& chain, int gpu) : int8_(chain.shape.element_bytes == 1), inputs_(chain.inputs) {
    const RowChainPlan plan = plan_of(chain, gpu).value();
    shared_bytes_ = plan.shared_bytes;
    exchange_bytes_ = plan.exchange_bytes;
    args_.images = chain.shape.images, args_.height = chain.shape.height, args_.width = chain.shape.width;
    args_.ranks = plan.ranks;
    args_.ring = plan.ring, args_.ring_units = plan.ring_units, args_.sums = plan.sums,
    args_.constants = plan.constants;
    args_.values_bytes = plan.values_bytes, args_.constants_bytes = plan.constants_bytes;
    args_.stream_bytes = plan.stream_bytes;
    args_.input_count = static_cast<int>(plan.inputs.size());
    args_.part_count = static_cast<int>(plan.parts.size());
    args_.exchange_count = static_cast<int>(plan.exchanges.size());
    std::copy(plan.inputs.begin(), plan.inputs.end(), args_.inputs);
    std::copy(plan.exchanges.begin(), plan.exchanges.end(), args_.exchanges);
    std::vector<RowPart> parts = plan.parts;
    for (std::size_t p = 0; p < parts.size(); ++p) set_bounds(node_of(chain, plan, p), parts[p]);
    parts_ = cuda::DeviceBuffer(parts.data(), parts.size() * sizeof(RowPart));
    args_.parts = parts_.as<const RowPart>();
    pack(chain, plan);
    PIPIT_CUDA(cuda::prepare_row_chain(int8_));
  }

  static const NodeSpec& node_of(const Chain& chain, const RowChainPlan& plan, std::size_t part) {
    return *chain.nodes[static_cast<std::size_t>(plan.conv_of_part[part])];
  }

  static void set_bounds(const NodeSpec& spec, RowPart& part) {
    const Clamp& clamp = attributes_of(spec).activation;
    part.low = clamp.low, part.high = clamp.high;
    if (!is_int8(spec)) return;
    const QConvAttributes& a = layer_as<QConv>(spec.layer).attributes();
    const StepBounds bounds = cuda::output_bounds(a.y, clamp);
    part.low = bounds.low, part.high = bounds.high;
    part.residual_scale = cuda::residual_factor(a);
  }

  void pack(const Chain& chain, const RowChainPlan& plan) {
    std::vector<std::byte> streams(static_cast<std::size_t>(plan.stream_bytes * plan.ranks));
    std::vector<std::byte> constants;
    std::vector<std::vector<std::byte>> weights;
    for (const NodeSpec* node : chain.nodes) weights.push_back(weights_of(*node));
    for (int rank = 0; rank < plan.ranks; ++rank) {
      std::byte* to = streams.data() + plan.stream_bytes * rank;
      for (std::size_t p = 0; p < plan.parts.size(); ++p) {
        const NodeSpec& node = node_of(chain, plan, p);
        to += cuda::pack_row_part(plan.parts[p], rank, static_cast<int>(attributes_of(node).window.taps()),
                                  static_cast<int>(node.inputs[0]->shape[1]), chain.shape.element_bytes,
                                  weights[static_cast<std::size_t>(plan.conv_of_part[p])].data(), to);
        append_constants(node, plan.parts[p], rank, constants);
        const auto* places = reinterpret_cast<const std::byte*>(plan.places[p].data());
        constants.insert(constants.end(), places, places + plan.places[p].size() * sizeof plan.places[p][0]);
      }
    }
    weights_ = cuda::DeviceBuffer(streams.data(), streams.size());
    constants_ = cuda::DeviceBuffer(constants.data(), constants.size());
    args_.weights = weights_.data();
    args_.of_outputs = constants_.data();
  }

  bool int8_;
  std::vector<std::size_t> inputs_;  ///< of the first node
  int shared_bytes_ = 0;
  std::size_t exchange_bytes_ = 0;
  cuda::DeviceBuffer weights_;
  cuda::DeviceBuffer constants_;
  cuda::DeviceBuffer parts_;
  RowChainArgs args_;
};

/// Whether "implicit_gemm" would leave out much of what the chain multiplies.
bool is_pruned(const NodeSpec& spec) {
  constexpr double kFewBlocks = 0.6;
  const cuda::ConvShape shape =
      is_int8(spec) ? cuda::qconv_gemm_shape(spec)
                    : cuda::conv_gemm_shape(spec, attributes_of(spec), spec.inputs[0]->shape[1]);
  return cuda::kept_share(spec, shape) < kFewBlocks;
}

bool takes_chain(const NodeSpec& first, std::span<const ChainLink> links) {
  if (links.empty()) return !refuse_link(first) && processors(first.gpu) > 0;
  const std::optional<Chain> chain = Chain::of(first, links);
  return chain && plan_of(*chain, first.gpu);
}

bool chain_pays(const NodeSpec& first, std::span<const ChainLink> links) {
  const Chain chain = Chain::of(first, links).value();
  return pays(chain, plan_of(chain, first.gpu).value(), first.gpu) &&
         std::none_of(chain.nodes.begin(), chain.nodes.end(),
                      [](const NodeSpec* node) { return is_pruned(*node); });
}

}  // namespace

void register_cuda_row_chain(Registry& registry) {
  for (const std::string_view type : {Conv::kType, QConv::kType}) {
    Candidate candidate{"row_chain",
                        [](const NodeSpec&) { return Refusal("runs several convolutions together only"); },
                        [](const NodeSpec& spec) { return std::make_unique<RowChain>(spec); }};
    candidate.fuses_chain = takes_chain;
    candidate.chain_pays = chain_pays;
    registry.add(type, DeviceKind::cuda, std::move(candidate));
  }
}

}  // namespace pipit
