// Candidate "squeeze_excite" of Pool and QAveragePool: the gates of a squeeze-and-excitation block, which are a
// global average, two 1x1 convolutions and the functions after them, in one launch.
#include <algorithm>
#include <cmath>
#include <optional>
#include <variant>

#include "engine/cuda/runtime.h"
#include "layers/common/layer_kernel.h"
#include "layers/cuda/conv/chain/conv_chain.h"
#include "layers/cuda/conv/gemm_problem.h"
#include "layers/cuda/conv/squeeze_excite/plan.h"
#include "layers/cuda/cost/launch_cost.h"
#include "layers/cuda/device/gpu_info.h"
#include "layers/cuda/families.h"
#include "layers/ops/pool.h"
#include "layers/ops/qelementwise.h"
#include "layers/ops/qunary.h"

namespace pipit::internal {

namespace {

using cuda::SqueezeArgs;
using cuda::SqueezePlan;

bool is_int8(const NodeSpec& average) {
  return average.layer.type() == QAveragePool::kType;
}

constexpr std::int64_t kMaxElements = std::int64_t{1} << 30;

bool averages(const NodeSpec& spec) {
  const PoolAttributes& a = is_int8(spec) ? layer_as<QAveragePool>(spec.layer).attributes().pool
                                          : layer_as<Pool>(spec.layer).attributes();
  return a.global && a.kind == PoolKind::average;
}

/// Why no chain begins with the node.
Refusal refuse_average(const NodeSpec& spec) {
  const TensorDesc& x = *spec.inputs[0];
  if (!averages(spec)) return "only global averages are handled";
  if (!is_channels_last(x)) return "x must be channels_last";
  if (is_int8(spec)) {
    const QAveragePoolAttributes& q = layer_as<QAveragePool>(spec.layer).attributes();
    if (!cuda::is_symmetric_i8(q.x) || !cuda::is_symmetric_i8(q.y))
      return "x or y is not i8 with zero point 0";
  } else if (!stores_16_bits(spec.precision) || x.dtype != stored_type(spec.precision) ||
             spec.outputs[0].dtype != x.dtype) {
    return "only fp16, bf16 and int8 are handled";
  }
  if (x.elements() == 0 || x.elements() > kMaxElements)
    return "empty tensors, or as large as this, are not handled";
  return std::nullopt;
}

// A convolution and what follows it. Its input has one position.
struct Layer {
  const NodeSpec* conv = nullptr;
  const NodeSpec* function = nullptr;  // or null
};

/// Why it cannot be one of the two layers. Where one position makes one output and no padding lies before it, strides
/// and padding mean nothing; integers go on as they are, in each layer's own scale.
Refusal refuse_layer(const NodeSpec& spec, bool int8) {
  if (spec.layer.type() != (int8 ? QConv::kType : Conv::kType)) return "only convolutions are handled";
  const ConvAttributes& a = cuda::conv_attributes(spec);
  const Window& w = a.window;
  if (a.groups != 1 || w.taps() != 1 || w.pad_begin[0] != 0 || w.pad_begin[1] != 0 || spec.has_input(3))
    return "only 1x1 without padding, groups and a residual is handled";
  const Shape& x = spec.inputs[0]->shape;
  if (x.rank() != 4 || x[2] != 1 || x[3] != 1 || spec.outputs[0].shape[2] != 1 ||
      spec.outputs[0].shape[3] != 1)
    return "only one position is handled";
  if (spec.constant(1) == nullptr || (spec.has_input(2) && spec.constant(2) == nullptr))
    return "weights and biases must be constants";
  if (spec.outputs[0].elements() > kMaxElements) return "outputs as large as this are not handled";
  if (!int8)
    return spec.outputs[0].dtype == stored_type(spec.precision) ? Refusal() : "y is not f16, or in bf16 bf16";
  const QConvAttributes& q = layer_as<QConv>(spec.layer).attributes();
  if (!cuda::is_symmetric_i8(q.x) || !cuda::is_symmetric_i8(q.y)) return "x or y is not i8 with zero point 0";
  return std::nullopt;
}

bool is_function_of(const NodeSpec& conv, const NodeSpec& next, bool int8) {
  if (!int8) return cuda::fuses_function(conv, next);
  return next.layer.type() == QUnary::kType && next.outputs[0].dtype == DType::i8;
}

struct Gates {
  Layer layers[2];
  SqueezePlan plan;

  /// Nothing where the nodes are no such chain or do not fit.
  static std::optional<Gates> of(const NodeSpec& average, std::span<const ChainLink> links) {
    const bool int8 = is_int8(average);
    Gates gates;
    std::size_t next = 0;
    for (Layer& layer : gates.layers) {
      // Each node reads the one before it, and nothing else.
      const auto take = [&]() -> const NodeSpec* {
        if (next == links.size() || links[next].sources[0].kind != LinkSource::Kind::node ||
            links[next].sources[0].index != static_cast<int>(next))
          return nullptr;
        return links[next++].node;
      };
      layer.conv = take();
      if (layer.conv == nullptr || refuse_layer(*layer.conv, int8)) return std::nullopt;
      if (next < links.size() && is_function_of(*layer.conv, *links[next].node, int8)) {
        layer.function = take();
        if (layer.function == nullptr) return std::nullopt;
      }
    }
    if (next != links.size() || refuse_average(average)) return std::nullopt;
    const Shape& x = average.inputs[0]->shape;
    const auto narrow = [](std::int64_t v) { return static_cast<int>(v); };
    cuda::SqueezeShape shape;
    shape.element_bytes = int8 ? 1 : 2;
    shape.bf16 = average.precision == Precision::bf16;
    shape.images = narrow(x[0]), shape.channels = narrow(x[1]);
    shape.positions = narrow(x.elements() / (x[0] * x[1]));
    shape.squeezed = narrow(gates.layers[0].conv->outputs[0].shape[1]);
    shape.gates = narrow(gates.layers[1].conv->outputs[0].shape[1]);
    const auto planned = cuda::plan_squeeze_excite(shape, cuda::hopper_processors(average.gpu));
    const auto* plan = std::get_if<SqueezePlan>(&planned);
    if (plan == nullptr) return std::nullopt;
    gates.plan = *plan;
    return gates;
  }
};

class SqueezeExcite final : public Kernel {
 public:
  explicit SqueezeExcite(const NodeSpec& spec) {
    const Gates gates = Gates::of(spec, spec.fusion.chain).value();
    const cuda::SqueezeShape& shape = gates.plan.shape;
    args_ = cuda::squeeze_args(gates.plan);
    cuda::SqueezeLayer packed[2];
    for (int l = 0; l < 2; ++l) {
      const NodeSpec& conv = *gates.layers[l].conv;
      const cuda::LinkBounds bounds = cuda::bounds_of(conv);
      args_.layers[l] = {bounds.low, bounds.high};
      packed[l] = layer_of(gates.layers[l]);
      args_.functions[l] = function_of(gates.layers[l]);
    }
    if (is_int8(spec)) {
      const QAveragePoolAttributes& a = layer_as<QAveragePool>(spec.layer).attributes();
      const StepBounds bounds = step_bounds(a.y, -INFINITY, INFINITY);
      args_.mean = {bounds.low, bounds.high};
      args_.factor = a.x.scale / (a.y.scale * static_cast<float>(shape.positions));
    } else {
      args_.factor = 1 / static_cast<float>(shape.positions);
    }
    const std::vector<std::byte> weights = cuda::pack_squeeze_excite(gates.plan, packed[0], packed[1]);
    weights_ = cuda::DeviceBuffer(weights.data(), weights.size());
    args_.weights = weights_.as<const std::byte>();
    PIPIT_CUDA(cuda::prepare_squeeze_excite(shape));
  }
  bool orders_prior_writes() const override { return true; }
  std::size_t packed_bytes() const override { return weights_.bytes(); }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    SqueezeArgs args = args_;
    args.x = inputs[0].data;
    args.y = outputs[0].data;
    PIPIT_CUDA(cuda::launch_squeeze_excite(args, static_cast<cudaStream_t>(context.stream)));
  }

 private:
  static cuda::SqueezeLayer layer_of(const Layer& from) {
    cuda::SqueezeLayer layer;
    layer.weights = cuda::ordered_weights(*from.conv);
    layer.biases = cuda::biases_of(*from.conv);
    if (!cuda::is_int8_conv(*from.conv)) return layer;
    layer.multipliers = cuda::multipliers_of(*from.conv);
    layer.table.resize(256);
    for (std::size_t b = 0; b < layer.table.size(); ++b) layer.table[b] = static_cast<std::byte>(b);
    if (from.function != nullptr) {
      const auto table = unary_table(layer_as<QUnary>(from.function->layer).attributes());
      std::transform(table.begin(), table.end(), layer.table.begin(),
                     [](std::uint8_t b) { return static_cast<std::byte>(b); });
    }
    return layer;
  }
  static cuda::HalfFunction function_of(const Layer& from) {
    // A slope of 1 below zero changes nothing.
    if (from.function == nullptr || cuda::is_int8_conv(*from.conv)) return {cuda::HalfGate::sign, true, 1, 0};
    return cuda::half_function_of(*from.function).value();
  }

  cuda::DeviceBuffer weights_;
  SqueezeArgs args_;
};

bool takes_chain(const NodeSpec& first, std::span<const ChainLink> links) {
  if (!links.empty()) return Gates::of(first, links).has_value();
  return cuda::has_hopper_kernels() && !refuse_average(first);
}

// Every image's cluster brings all weights. Steps are what a thread reads, one after another.
std::optional<Estimate> estimate(const NodeSpec& first, std::span<const ChainLink> links) {
  const std::optional<Gates> gates = Gates::of(first, links);
  if (!gates) return std::nullopt;
  const SqueezePlan& plan = gates->plan;
  const double clusters = static_cast<double>(plan.shape.images) * plan.blocks;
  const int processors = cuda::hopper_processors(first.gpu);
  cuda::LaunchTerms terms;
  constexpr int kCopied = 16;  // bytes of weights that a thread copies at once
  terms.steps = static_cast<double>(ceil_div(std::int64_t{plan.shape.positions} * plan.vectors,
                                             std::int64_t{cuda::kSqueezeThreads} * plan.blocks) +
                                    ceil_div(plan.weight_bytes, cuda::kSqueezeThreads * kCopied));
  terms.rounds = std::ceil(clusters / processors);
  terms.blocks = clusters / processors;
  terms.megabytes = cuda::chain_megabytes(first, links);
  terms.again = 1e-6 * clusters * plan.weight_bytes;
  terms.shared = plan.blocks;
  return cuda::estimate_of("squeeze_excite" + cuda::chain_type(plan.shape.element_bytes), terms);
}

}  // namespace

void register_cuda_squeeze_excite(Registry& registry) {
  for (const std::string_view type : {Pool::kType, QAveragePool::kType})
    cuda::register_chain<SqueezeExcite>(registry, type, "squeeze_excite", takes_chain, estimate);
}

}  // namespace pipit::internal
