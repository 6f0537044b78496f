// Candidate "row_chain" of Conv and QConv: the convolutions between two changes of resolution in one launch, at batches
// so small that every launch waits for the previous one.
#include <algorithm>
#include <optional>
#include <variant>

#include "engine/cuda/runtime.h"
#include "layers/cuda/conv/chain/conv_chain.h"
#include "layers/cuda/conv/row_chain/plan.h"
#include "layers/cuda/cost/launch_cost.h"
#include "layers/cuda/device/gpu_info.h"
#include "layers/cuda/families.h"
#include "layers/ops/conv.h"
#include "layers/ops/qconv.h"

namespace pipit::internal {

namespace {

using cuda::ConvChain;
using cuda::hopper_processors;
using cuda::is_int8_conv;
using cuda::RowChainArgs;
using cuda::RowChainPlan;
using cuda::RowPart;

/// Nothing where the chain does not fit the GPU.
std::optional<RowChainPlan> plan_of(const ConvChain& chain, int gpu) {
  // Rows are counted in 32 bits, and there are fewer blocks.
  if (chain.shape.images > 1024 || chain.shape.height > 1024) return std::nullopt;
  auto planned = cuda::plan_row_chain(chain.shape, hopper_processors(gpu));
  auto* plan = std::get_if<RowChainPlan>(&planned);
  if (plan == nullptr) return std::nullopt;
  int clusters = 0;
  PIPIT_CUDA(cuda::row_chain_clusters(chain.shape.element(), plan->ranks, plan->shared_bytes, clusters));
  if (clusters < chain.shape.rows()) return std::nullopt;
  return std::move(*plan);
}

// What a part's outputs of a block need beside their sums: biases, in INT8 then multipliers.
void append_constants(const NodeSpec& spec, const RowPart& part, int rank, std::vector<std::byte>& to) {
  const std::ptrdiff_t first = cuda::first_row_output(part, rank, is_int8_conv(spec) ? 1 : 2);
  const auto append = [&](const std::vector<std::byte>& values) {
    const auto from = values.begin() + first * 4;
    to.insert(to.end(), from, from + (std::ptrdiff_t{128} << part.quads_log2));
  };
  append(cuda::biases_of(spec));
  if (is_int8_conv(spec)) append(cuda::multipliers_of(spec));
}

class RowChain final : public Kernel {
 public:
  explicit RowChain(const NodeSpec& spec) : RowChain(*ConvChain::of(spec, spec.fusion.chain), spec.gpu) {}

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
    PIPIT_CUDA(
        cuda::launch_row_chain(element_, shared_bytes_, args, static_cast<cudaStream_t>(context.stream)));
  }

 private:
  RowChain(const ConvChain& chain, int gpu) : element_(chain.shape.element()), inputs_(chain.inputs) {
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
    for (std::size_t p = 0; p < parts.size(); ++p) {
      const cuda::LinkBounds bounds = cuda::bounds_of(node_of(chain, plan, p));
      parts[p].low = bounds.low, parts[p].high = bounds.high;
      parts[p].residual_scale = bounds.residual_scale;
    }
    parts_ = cuda::DeviceBuffer(parts.data(), parts.size() * sizeof(RowPart));
    args_.parts = parts_.as<const RowPart>();
    pack(chain, plan);
    PIPIT_CUDA(cuda::prepare_row_chain(element_));
  }

  static const NodeSpec& node_of(const ConvChain& chain, const RowChainPlan& plan, std::size_t part) {
    return *chain.nodes[static_cast<std::size_t>(plan.conv_of_part[part])];
  }

  void pack(const ConvChain& chain, const RowChainPlan& plan) {
    std::vector<std::byte> streams(static_cast<std::size_t>(plan.stream_bytes * plan.ranks));
    std::vector<std::byte> constants;
    std::vector<std::vector<std::byte>> weights;
    for (const NodeSpec* node : chain.nodes) weights.push_back(cuda::ordered_weights(*node));
    for (int rank = 0; rank < plan.ranks; ++rank) {
      std::byte* to = streams.data() + plan.stream_bytes * rank;
      for (std::size_t p = 0; p < plan.parts.size(); ++p) {
        const NodeSpec& node = node_of(chain, plan, p);
        to += cuda::pack_row_part(plan.parts[p], rank,
                                  static_cast<int>(cuda::conv_attributes(node).window.taps()),
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

  cuda::ChainElement element_;
  std::vector<std::size_t> inputs_;  ///< of the first node
  int shared_bytes_ = 0;
  std::size_t exchange_bytes_ = 0;
  cuda::DeviceBuffer weights_;
  cuda::DeviceBuffer constants_;
  cuda::DeviceBuffer parts_;
  RowChainArgs args_;
};

bool takes_chain(const NodeSpec& first, std::span<const ChainLink> links) {
  if (links.empty()) return !cuda::refuse_link(first) && hopper_processors(first.gpu) > 0;
  const std::optional<ConvChain> chain = ConvChain::of(first, links);
  return chain && plan_of(*chain, first.gpu);
}

// A block goes through all convolutions and reads its share of their weights, whatever others read; after each the
// blocks of neighbouring rows wait for each other.
std::optional<Estimate> estimate(const NodeSpec& first, std::span<const ChainLink> links) {
  const std::optional<ConvChain> chain = ConvChain::of(first, links);
  const std::optional<RowChainPlan> plan = chain ? plan_of(*chain, first.gpu) : std::nullopt;
  if (!plan) return std::nullopt;
  const cuda::ConvChainShape& shape = chain->shape;
  cuda::LaunchTerms terms;
  terms.steps = static_cast<double>(shape.convs.size());
  terms.blocks = static_cast<double>(shape.rows()) * plan->ranks / hopper_processors(first.gpu);
  terms.megabytes = cuda::chain_megabytes(first, links);
  terms.again = 1e-6 * static_cast<double>(plan->stream_bytes);
  return cuda::estimate_of("row_chain" + cuda::chain_type(shape.element_bytes), terms);
}

}  // namespace

void register_cuda_row_chain(Registry& registry) {
  cuda::register_chain<RowChain>(registry, "row_chain", takes_chain, estimate);
}

}  // namespace pipit::internal
