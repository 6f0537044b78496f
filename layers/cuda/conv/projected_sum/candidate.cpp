// Candidate "projected_sum" of Conv and QConv: two 1x1 convolutions whose results are added, in one launch.
#include <algorithm>
#include <cstring>
#include <optional>
#include <variant>

#include "engine/cuda/runtime.h"
#include "layers/common/layer_kernel.h"
#include "layers/cuda/conv/chain/conv_chain.h"
#include "layers/cuda/conv/gemm_args.h"
#include "layers/cuda/conv/gemm_problem.h"
#include "layers/cuda/conv/projected_sum/plan.h"
#include "layers/cuda/conv/tensor_map.h"
#include "layers/cuda/cost/launch_cost.h"
#include "layers/cuda/device/gpu_info.h"
#include "layers/cuda/families.h"

namespace pipit::internal {

namespace {

using cuda::ConvShape;
using cuda::ProjectedSumArgs;
using cuda::ProjectedSumPlan;
using cuda::SumSource;

Refusal refuse_pointwise(const NodeSpec& spec) {
  if (Refusal reason = cuda::refuse_unit_conv(spec)) return reason;
  const Window& w = cuda::conv_attributes(spec).window;
  for (std::size_t axis = 0; axis < 2; ++axis) {
    if (w.kernel[axis] != 1 || w.pad_begin[axis] != 0 || w.pad_end[axis] != 0 || w.stride[axis] > 8)
      return "only 1x1 without padding, of strides up to 8, is handled";
  }
  return std::nullopt;
}

ConvShape shape_of(const NodeSpec& spec) {
  return cuda::conv_gemm_shape(spec, cuda::conv_attributes(spec), spec.inputs[0]->shape[1]);
}

struct Pair {
  const NodeSpec* nodes[2] = {};  ///< what is added, the other
  std::size_t other_x = 0;        ///< of what run() gets
  ProjectedSumPlan plan;
  bool small_sums = false;

  /// Nothing where the nodes are no such pair or do not fit.
  static std::optional<Pair> of(const NodeSpec& first, std::span<const ChainLink> links) {
    if (links.size() != 1 || first.has_input(3)) return std::nullopt;
    Pair pair;
    pair.nodes[0] = &first, pair.nodes[1] = links[0].node;
    const NodeSpec& last = *pair.nodes[1];
    if (last.precision != first.precision || cuda::is_int8_conv(last) != cuda::is_int8_conv(first) ||
        refuse_pointwise(first) || refuse_pointwise(last))
      return std::nullopt;
    const LinkSource x = links[0].sources[0];
    if (!last.has_input(3) || links[0].sources[3].kind != LinkSource::Kind::node ||
        x.kind == LinkSource::Kind::node || x.kind == LinkSource::Kind::none)
      return std::nullopt;
    pair.other_x = static_cast<std::size_t>(x.index) +
                   (x.kind == LinkSource::Kind::outside ? first.inputs.size() : std::size_t{0});
    cuda::ProjectedSumShape shape;
    shape.element_bytes = cuda::is_int8_conv(first) ? 1 : 2;
    shape.bf16 = first.precision == Precision::bf16;
    shape.positions = shape_of(first).rows();
    for (int c = 0; c < 2; ++c) shape.in_c[c] = static_cast<int>(pair.nodes[c]->inputs[0]->shape[1]);
    shape.out_c = static_cast<int>(first.outputs[0].shape[1]);
    const auto planned = cuda::plan_projected_sum(shape, cuda::hopper_processors(first.gpu));
    const auto* plan = std::get_if<ProjectedSumPlan>(&planned);
    if (plan == nullptr) return std::nullopt;
    pair.plan = *plan;
    if (shape.element_bytes == 2) {
      // Both are one sum.
      if (!cuda::conv_attributes(first).activation.is_identity()) return std::nullopt;
      return pair;
    }
    const auto below = [&](std::int64_t limit) {
      return cuda::has_sums_below(first, false, limit) && cuda::has_sums_below(last, true, limit);
    };
    if (!below(cuda::kLargeSum)) return std::nullopt;
    pair.small_sums = below(cuda::kSmallSum);
    return pair;
  }
};

class ProjectedSum final : public Kernel {
 public:
  explicit ProjectedSum(const NodeSpec& spec) : ProjectedSum(Pair::of(spec, spec.fusion.chain).value()) {}

  bool reads_constant(std::size_t index) const override { return index != 1 && index != 2; }
  std::size_t packed_bytes() const override { return weights_.bytes() + constants_.bytes(); }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    ProjectedSumArgs args = args_;
    args.sources[0].map = map_of(args.sources[0], inputs[0].data);
    args.sources[1].map = map_of(args.sources[1], inputs[other_x_].data);
    args.y = static_cast<std::byte*>(outputs[0].data);
    PIPIT_CUDA(cuda::launch_projected_sum(args, static_cast<cudaStream_t>(context.stream)));
  }

 private:
  explicit ProjectedSum(const Pair& pair) : other_x_(pair.other_x) {
    const ProjectedSumPlan& plan = pair.plan;
    args_.plan = plan;
    args_.small_sums = pair.small_sums;
    args_.added = cuda::unit_bounds(*pair.nodes[0]);
    args_.bounds = cuda::unit_bounds(*pair.nodes[1]);
    args_.added_scale = cuda::bounds_of(*pair.nodes[1]).residual_scale;
    args_.least_tiles = plan.tiles / plan.workers;
    args_.more_tiles = plan.tiles % plan.workers;
    for (int s = 0; s < 2; ++s) args_.sources[s] = source_of(*pair.nodes[s]);
    pack(pair);
    PIPIT_CUDA(cuda::prepare_projected_sum(args_));
    // Throws what is wrong with the geometry, if anything, before the first run.
    for (const SumSource& source : args_.sources) map_of(source, weights_.data());
  }

  static SumSource source_of(const NodeSpec& spec) {
    SumSource source;
    source.shape = shape_of(spec);
    const ConvShape& s = source.shape;
    source.plain = s.stride_h == 1 && s.stride_w == 1;
    source.positions = cuda::Divisor(s.out_h * s.out_w);
    source.out_width = cuda::Divisor(s.out_w);
    return source;
  }

  CUtensorMap map_of(const SumSource& source, const void* x) const {
    const int bytes = source.shape.in_c * args_.plan.element_bytes;
    if (source.plain)
      return cuda::matrix_map(x, bytes, source.shape.rows(), cuda::kBlockChunkBytes, cuda::kUnitRows);
    return cuda::patch_map(x, source.shape, bytes, cuda::kBlockChunkBytes, cuda::kUnitRows);
  }

  void pack(const Pair& pair) {
    const std::vector<std::byte> added = cuda::ordered_weights(*pair.nodes[0]);
    const std::vector<std::byte> other = cuda::ordered_weights(*pair.nodes[1]);
    const std::vector<std::byte> weights = cuda::pack_projected_sum(pair.plan, added.data(), other.data());
    const std::vector<std::byte> constants = constants_of(pair);
    weights_ = cuda::DeviceBuffer(weights.data(), weights.size());
    constants_ = cuda::DeviceBuffer(constants.data(), constants.size());
    args_.weights = weights_.as<const std::byte>();
    args_.constants = constants_.as<const std::byte>();
  }

  // By slice: those of both convolutions, or where both are one sum, the sum of their biases.
  static std::vector<std::byte> constants_of(const Pair& pair) {
    std::vector<std::byte> each[2];
    for (int c = 0; c < 2; ++c) cuda::append_unit_constants(*pair.nodes[c], true, each[c]);
    if (pair.plan.element_bytes == 2) {
      for (std::size_t at = 0; at < each[0].size(); at += sizeof(float)) {
        float sum = 0, more = 0;
        std::memcpy(&sum, each[0].data() + at, sizeof sum);
        std::memcpy(&more, each[1].data() + at, sizeof more);
        sum += more;
        std::memcpy(each[0].data() + at, &sum, sizeof sum);
      }
      return each[0];
    }
    std::vector<std::byte> constants;
    const std::size_t slice = each[0].size() / static_cast<std::size_t>(pair.plan.slices);
    for (std::size_t at = 0; at < each[0].size(); at += slice) {
      for (const std::vector<std::byte>& of : each) {
        const auto from = of.begin() + static_cast<std::ptrdiff_t>(at);
        constants.insert(constants.end(), from, from + static_cast<std::ptrdiff_t>(slice));
      }
    }
    return constants;
  }

  std::size_t other_x_;
  cuda::DeviceBuffer weights_;
  cuda::DeviceBuffer constants_;
  ProjectedSumArgs args_;
};

bool takes_chain(const NodeSpec& first, std::span<const ChainLink> links) {
  if (links.empty()) return !refuse_pointwise(first) && cuda::has_hopper_kernels();
  return Pair::of(first, links).has_value();
}

// Steps are chunks of both inputs for the outputs of a slice.
std::optional<Estimate> estimate(const NodeSpec& first, std::span<const ChainLink> links) {
  const std::optional<Pair> pair = Pair::of(first, links);
  if (!pair) return std::nullopt;
  const ProjectedSumPlan& plan = pair->plan;
  const int processors = cuda::hopper_processors(first.gpu);
  cuda::LaunchTerms terms;
  terms.steps = plan.stages * plan.tile_chunks();
  terms.rounds = static_cast<double>(ceil_div(plan.tiles, plan.workers));
  terms.blocks = static_cast<double>(plan.tiles) * plan.slices / processors;
  terms.megabytes = cuda::chain_megabytes(first, links);
  return cuda::estimate_of("projected_sum" + cuda::chain_type(plan.element_bytes), terms);
}

}  // namespace

void register_cuda_projected_sum(Registry& registry) {
  cuda::register_chain<ProjectedSum>(registry, "projected_sum", takes_chain, estimate, true);
}

}  // namespace pipit::internal
