// Candidate "spread_chain" of Conv and QConv: any convolutions that follow each other, in one launch, where all have few
// output positions.
#include <algorithm>
#include <optional>
#include <variant>

#include "engine/cuda/runtime.h"
#include "layers/common/layer_kernel.h"
#include "layers/cuda/chain/conv_chain.h"
#include "layers/cuda/chain/spread_chain_launch.h"
#include "layers/cuda/conv/conv_gemm_problem.h"
#include "layers/cuda/conv/conv_spread_problem.h"
#include "layers/cuda/families.h"
#include "layers/cuda/quantized/qconv_spread.h"
#include "layers/ops/conv.h"
#include "layers/ops/qconv.h"

namespace pipit {

namespace {

using cuda::ConvShape;
using cuda::DeviceBuffer;
using cuda::is_int8_conv;
using cuda::SpreadChainArgs;
using cuda::SpreadChainConv;
using cuda::SpreadChainPlan;
using cuda::SpreadLink;
using cuda::SpreadValue;

ConvShape shape_of(const NodeSpec& spec) {
  const bool int8 = is_int8_conv(spec);
  ConvShape shape =
      cuda::conv_gemm_shape(spec, cuda::conv_attributes(spec), spec.inputs[0]->shape[1] / (int8 ? 2 : 1));
  shape.int8 = int8;
  return shape;
}

/// real: y may be floating-point in INT8.
Refusal refuse_link(const NodeSpec& spec, bool real) {
  if (spec.layer.type() == QConv::kType && real) {
    if (Refusal reason = cuda::refuse_qconv_gemm(spec)) return reason;
    if (!is_channels_last(*spec.inputs[0])) return "x must be channels_last";
  } else if (Refusal reason = cuda::refuse_unit_conv(spec)) {
    return reason;
  }
  // What the kernel takes for values that are not there yet.
  if (!real && is_int8_conv(spec) && cuda::bounds_of(spec).low < -127) return "y may be -128";
  // Channels in 16 bytes.
  return spec.inputs[0]->shape[1] % (is_int8_conv(spec) ? 16 : 8) != 0 ? Refusal("x has a part of 16 bytes of channels")
                                                                       : cuda::refuse_spread(shape_of(spec));
}

int blocks_of(bool int8) {
  int blocks = 0;
  PIPIT_CUDA(cuda::spread_chain_blocks(int8, blocks));
  return blocks;
}

/// A node and what follows it.
struct Chain {
  std::vector<const NodeSpec*> nodes;
  std::vector<SpreadChainConv> convs;
  std::vector<std::size_t> inputs;  // of what run() gets
  int blocks = 0;
  SpreadChainPlan plan;

  static std::optional<Chain> of(const NodeSpec& first, std::span<const ChainLink> links) {
    Chain chain;
    chain.nodes.push_back(&first);
    for (const ChainLink& link : links) chain.nodes.push_back(link.node);
    for (const NodeSpec* node : chain.nodes) {
      if (node->layer.type() != first.layer.type() || refuse_link(*node, node == chain.nodes.back())) return std::nullopt;
    }
    // What is read comes first among the values, so it is looked for first.
    std::vector<LinkSource> sources;
    const auto source_of = [&](std::size_t n, std::size_t input) {
      return n == 0 ? LinkSource{LinkSource::Kind::input, static_cast<int>(input)} : links[n - 1].sources[input];
    };
    const auto place_of = [&](const LinkSource& source) {
      return static_cast<std::size_t>(source.index) +
             (source.kind == LinkSource::Kind::outside ? first.inputs.size() : std::size_t{0});
    };
    const auto for_inputs = [&](auto use) {
      for (std::size_t n = 0; n < chain.nodes.size(); ++n) {
        for (const std::size_t input : {std::size_t{0}, std::size_t{3}}) {
          if (chain.nodes[n]->has_input(input)) use(n, input, source_of(n, input));
        }
      }
    };
    for_inputs([&](std::size_t, std::size_t, const LinkSource& source) {
      if (source.kind == LinkSource::Kind::node) return;
      const std::size_t place = place_of(source);
      if (std::find(chain.inputs.begin(), chain.inputs.end(), place) == chain.inputs.end())
        chain.inputs.push_back(place);
    });
    for (const NodeSpec* node : chain.nodes) {
      SpreadChainConv conv;
      conv.shape = shape_of(*node);
      conv.output_bytes = static_cast<int>(static_cast<std::int64_t>(node->outputs[0].bytes()) / node->outputs[0].elements());
      chain.convs.push_back(conv);
    }
    for_inputs([&](std::size_t n, std::size_t input, const LinkSource& source) {
      int value = static_cast<int>(chain.inputs.size()) + source.index;
      if (source.kind != LinkSource::Kind::node)
        value = static_cast<int>(std::find(chain.inputs.begin(), chain.inputs.end(), place_of(source)) -
                                 chain.inputs.begin());
      (input == 0 ? chain.convs[n].x : chain.convs[n].residual) = value;
    });
    chain.blocks = blocks_of(is_int8_conv(first));
    if (chain.blocks == 0) return std::nullopt;
    auto planned = cuda::plan_spread_chain(chain.convs, static_cast<int>(chain.inputs.size()), chain.blocks);
    auto* plan = std::get_if<SpreadChainPlan>(&planned);
    if (plan == nullptr) return std::nullopt;
    chain.plan = std::move(*plan);
    return chain;
  }
};

class SpreadChain final : public Kernel {
 public:
  explicit SpreadChain(const NodeSpec& spec) : SpreadChain(Chain::of(spec, spec.fusion.chain).value()) {}

  // Sets of values, then counters.
  std::size_t state_bytes() const override {
    return 2 * static_cast<std::size_t>(args_.values_bytes) + static_cast<std::size_t>(blocks_) * sizeof(std::uint32_t);
  }
  bool reads_constant(std::size_t index) const override { return index != 1 && index != 2; }
  std::size_t packed_bytes() const override { return packed_bytes_ + links_.bytes(); }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    SpreadChainArgs args = args_;
    for (std::size_t i = 0; i < inputs_.size(); ++i)
      args.inputs[i] = static_cast<const std::byte*>(inputs[inputs_[i]].data);
    args.y = static_cast<std::byte*>(outputs[0].data);
    for (int set = 0; set < 2; ++set) args.values[set] = context.state + set * args_.values_bytes;
    args.runs = reinterpret_cast<std::uint32_t*>(context.state + 2 * args_.values_bytes);
    PIPIT_CUDA(cuda::launch_spread_chain(int8_, blocks_, shared_bytes_, args, static_cast<cudaStream_t>(context.stream)));
  }

 private:
  explicit SpreadChain(const Chain& chain)
      : int8_(is_int8_conv(*chain.nodes[0])),
        blocks_(chain.blocks),
        shared_bytes_(chain.plan.shared_bytes),
        inputs_(chain.inputs) {
    const SpreadChainPlan& plan = chain.plan;
    std::vector<SpreadLink> links(chain.nodes.size());
    for (std::size_t n = 0; n < links.size(); ++n) {
      links[n].args = cuda::spread_args(chain.convs[n].shape, plan.plans[n]);
      pack(*chain.nodes[n], chain.convs[n].shape, links[n].args);
      links[n].blocks = static_cast<int>(ceil_div(links[n].args.conv.rows, cuda::kSpreadRows)) *
                        links[n].args.conv.column_tiles * plan.plans[n].slices;
      links[n].x = value_of(chain, chain.convs[n].x);
      links[n].residual = value_of(chain, chain.convs[n].residual);
      links[n].y = value_of(chain, static_cast<int>(inputs_.size() + n));
    }
    links_ = DeviceBuffer(links.data(), links.size() * sizeof(SpreadLink));
    args_.links = links_.as<const SpreadLink>();
    args_.count = static_cast<int>(links.size());
    args_.weights_bytes = plan.weights_bytes, args_.places_bytes = plan.places_bytes;
    args_.values_bytes = plan.values_bytes;
    args_.x = plan.x, args_.zeros = plan.zeros, args_.places = plan.places;
    args_.sums = plan.sums, args_.received = plan.received;
    PIPIT_CUDA(cuda::prepare_spread_chain(int8_));
  }

  SpreadValue value_of(const Chain& chain, int value) const {
    if (value < 0) return {};
    const auto v = static_cast<std::size_t>(value);
    if (v < inputs_.size()) return {SpreadValue::Kind::input, value, 0};
    if (v - inputs_.size() + 1 == chain.nodes.size()) return {SpreadValue::Kind::output, 0, 0};
    return {SpreadValue::Kind::inside, 0, chain.plan.values[v - inputs_.size()]};
  }

  void pack(const NodeSpec& spec, const ConvShape& shape, cuda::SpreadArgs& args) {
    if (int8_) {
      operands_.push_back(cuda::spread_operands(spec, shape, args.plan));
      operands_.back().set(args.conv);
      packed_bytes_ += operands_.back().bytes();
    } else {
      constants_.push_back(cuda::SpreadConstants(spec, shape, args.plan));
      constants_.back().set(args.conv);
      packed_bytes_ += constants_.back().bytes();
    }
  }

  bool int8_;
  int blocks_;
  int shared_bytes_;
  std::vector<std::size_t> inputs_;  // of what run() gets
  std::vector<cuda::QConvGemmOperands> operands_;
  std::vector<cuda::SpreadConstants> constants_;
  std::size_t packed_bytes_ = 0;
  DeviceBuffer links_;
  SpreadChainArgs args_;
};

bool takes_chain(const NodeSpec& first, std::span<const ChainLink> links) {
  if (links.empty()) return !refuse_link(first, false) && blocks_of(is_int8_conv(first)) > 0;
  return Chain::of(first, links).has_value();
}

// Every round of tiles takes as long as a launch, nearly; a launch apart has all blocks that there is work for.
bool chain_pays(const NodeSpec& first, std::span<const ChainLink> links) {
  const Chain chain = Chain::of(first, links).value();
  return chain.plan.rounds <= static_cast<int>(chain.nodes.size()) * 3 / 2 &&
         std::none_of(chain.nodes.begin(), chain.nodes.end(),
                      [](const NodeSpec* node) { return cuda::is_pruned(*node); });
}

}  // namespace

void register_cuda_spread_chain(Registry& registry) {
  cuda::register_chain<SpreadChain>(registry, "spread_chain", takes_chain, chain_pays, true);
}

}  // namespace pipit
