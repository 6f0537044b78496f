// Candidate "packed_gemm" of WLinear and WConv: products with weights in 8 or 4 bits, which are decoded in registers.
// It takes any number of rows and never expands weights to 16 bits in memory.
#include <fmt/format.h>

#include <limits>

#include "layers/cuda/conv/gemm_problem.h"
#include "layers/cuda/conv/packed_gemm/plan.h"
#include "layers/cuda/conv/stored_product.h"
#include "layers/cuda/cost/launch_cost.h"
#include "layers/cuda/device/gpu_info.h"
#include "layers/cuda/families.h"

namespace pipit::internal {

namespace {

using namespace cuda;

Refusal refuse(const NodeSpec& spec) {
  if (Refusal reason = refuse_stored_product(spec)) return reason;
  const StoredProduct p(spec);
  // Offsets into x are 32-bit, and so are those into the weights, in units of 16 bytes; blocks of outputs are the
  // second dimension of a grid.
  constexpr std::int64_t kLimit = std::numeric_limits<std::int32_t>::max() / 2, kMaxOutputs = 65535 * 16;
  if (spec.inputs[0]->elements() > kLimit || p.rows > kLimit || p.outputs > kMaxOutputs ||
      p.outputs * p.depth > kLimit * 8)
    return "the operands are too large for 32-bit offsets";
  if (PackedShape(p.format, p.outputs, p.depth).scales() == 0)
    return fmt::format(
        "groups of {} weights of {} bits are not handled; 4 bits: 32, 64 or a multiple of 128; 8 bits: whole "
        "rows",
        p.format.group_size, p.format.bits);
  return std::nullopt;
}

// What the launch takes in a variant. A chunk of k costs each tile of a warp one decoding, as long as four products,
// and its products. The blocks of a multiprocessor share its arithmetic (rounds), and one alone has too few warps to
// hide how long its steps take (steps). With two rows and more, reading x again costs more than that.
Estimate estimate_of_variant(const StoredProduct& p, const PackedVariant& variant, double megabytes,
                             int processors) {
  constexpr double kDecoding = 4;
  const PackedShape shape(p.format, p.outputs, p.depth);
  const auto row_blocks = static_cast<double>(ceil_div(p.rows, std::int64_t{variant.rows()}));
  const auto output_blocks = static_cast<double>(packed_parts(shape.outputs, variant.outputs()));
  const int of_warp = packed_parts(shape.spans(), variant.k_warps) * (kPackedSpan / kPackedChunk);
  LaunchTerms terms;
  terms.steps = std::min(of_warp, packed_parts(shape.depth, kPackedChunk)) * variant.out_tiles *
                (kDecoding + variant.row_tiles);
  terms.rounds = std::ceil(row_blocks * output_blocks / processors);
  terms.megabytes = megabytes;
  const double x = 2e-6 * static_cast<double>(p.rows) * shape.depth;
  const double weights = 1e-6 * shape.bits / 8 * shape.outputs * static_cast<double>(shape.depth);
  terms.again = x * (output_blocks - 1) + weights * (row_blocks - 1);
  return estimate_of(variant.row_tiles > 2 ? "packed_gemm many" : "packed_gemm", terms);
}

// The variants, the fastest first, with their estimates.
std::vector<std::pair<PackedVariant, Estimate>> ordered_variants(const NodeSpec& spec) {
  const StoredProduct p(spec);
  // Weights, scales and bias are what they are stored as, not halves.
  double bytes = static_cast<double>(spec.outputs[0].bytes());
  for (const TensorDesc* input : spec.inputs)
    bytes += input != nullptr ? static_cast<double>(input->bytes()) : 0;
  std::vector<std::pair<PackedVariant, Estimate>> variants;
  for (const PackedVariant& variant : packed_variants(PackedShape(p.format, p.outputs, p.depth), p.rows))
    variants.emplace_back(variant, estimate_of_variant(p, variant, 1e-6 * bytes, processors_of(spec.gpu)));
  std::ranges::stable_sort(variants, {}, [](const auto& variant) { return variant.second.time; });
  return variants;
}

// The one that the spec names, or the fastest. Throws Error when there is none of that name.
std::pair<PackedVariant, Estimate> chosen_variant(const NodeSpec& spec) {
  for (const auto& variant : ordered_variants(spec)) {
    if (spec.variant.empty() || variant.first.name() == spec.variant) return variant;
  }
  fail("there is no variant '{}'", spec.variant);
}

std::vector<std::string> variant_names(const NodeSpec& spec) {
  constexpr std::size_t kTimed = 5;  // the others are estimated to be slower
  std::vector<std::string> names;
  for (const auto& variant : ordered_variants(spec)) {
    if (names.size() < kTimed) names.push_back(variant.first.name());
  }
  return names;
}

class PackedGemm final : public PackedKernel {
 public:
  explicit PackedGemm(const NodeSpec& spec) {
    const StoredProduct p(spec);
    const PackedShape shape(p.format, p.outputs, p.depth);
    args_ = packed_args(shape, chosen_variant(spec).first, static_cast<int>(p.rows));
    args_.wide = spec.outputs[0].dtype == DType::f32;
    args_.low = p.activation.low, args_.high = p.activation.high;
    args_.function = follower_function(spec);
    args_.weights = keep(pack_weights(shape, p.format, spec.constant(1)->view().data));
    args_.scales = keep(pack_scales(shape, spec.constant(2)->values<float>().data()));
    std::vector<float> bias(static_cast<std::size_t>(shape.tiles()) * kPackedOutputs);
    if (const Tensor* given = spec.constant(kStoredBias))
      std::ranges::copy(given->values<float>(), bias.begin());
    args_.bias = keep(bias);
    if (p.window) {
      args_.pixels = keep(pixels_of(spec, *p.window));
      args_.positions = Divisor(spec.outputs[0].elements() / (spec.outputs[0].shape[0] * p.outputs));
      args_.image = static_cast<int>(spec.inputs[0]->elements() / spec.inputs[0]->shape[0]);
    }
    PIPIT_CUDA(prepare_packed_gemm(args_, overlap_));
  }

  bool reads_constant(std::size_t index) const override { return index == 0 || index == kStoredResidual; }
  bool orders_prior_writes() const override { return true; }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    PackedGemmArgs args = args_;
    args.x = inputs[0].data;
    args.residual = inputs.size() > kStoredResidual ? inputs[kStoredResidual].data : nullptr;
    args.y = outputs[0].data;
    PIPIT_CUDA(launch_packed_gemm(args, overlap_, static_cast<cudaStream_t>(context.stream)));
  }

 private:
  PackedGemmArgs args_;
  bool overlap_ = false;
};

template <typename L>
void add(Registry& registry) {
  registry.add(L::kType, DeviceKind::cuda,
               conv_candidate<PackedGemm>(
                   "packed_gemm", refuse, [](const NodeSpec& spec) { return chosen_variant(spec).second; },
                   fuses_function, variant_names));
}

}  // namespace

void register_cuda_packed_gemm(Registry& registry) {
  add<WLinear>(registry);
  add<WConv>(registry);
}

}  // namespace pipit::internal
