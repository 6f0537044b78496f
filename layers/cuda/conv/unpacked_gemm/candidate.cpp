// Candidate "unpacked_gemm" of WLinear and WConv: products of many rows with weights in 8 or 4 bits. In every run they
// are written as halves into scratch memory, which cuBLASLt multiplies. Rows of x are copied where the window has
// strides or padding, or a row is not a multiple of eight.
//
// cuBLASLt adds the bias and the residual and computes a relu. Other bounds are a launch of their own over y. Functions
// are not fused: they would be such a launch, too, which is what their own node has.
#include <limits>

#include "engine/base/ceil_div.h"
#include "layers/cuda/conv/gemm_problem.h"
#include "layers/cuda/conv/stored_product.h"
#include "layers/cuda/conv/unpacked_gemm/plan.h"
#include "layers/cuda/cost/launch_cost.h"
#include "layers/cuda/device/constants.h"
#include "layers/cuda/device/gpu_info.h"
#include "layers/cuda/families.h"
#include "layers/cuda/libraries/lt_gemm.h"

namespace pipit::internal {

namespace {

using namespace cuda;

bool copies_rows(const StoredProduct& p) {
  return p.window || p.depth % kUnpackUnit != 0;
}

// The library's part without its epilogue.
GemmShape gemm_of(const NodeSpec& spec, const StoredProduct& p) {
  GemmShape gemm;
  gemm.dtype = DType::f16;
  gemm.wide_output = spec.outputs[0].dtype == DType::f32;
  gemm.m = p.rows, gemm.n = p.outputs, gemm.k = unpack_units(p.depth) * kUnpackUnit;
  gemm.transpose_b = true;
  gemm.lda = gemm.ldb = gemm.k;
  gemm.ldd = p.outputs;
  return gemm;
}

// What does not depend on the library.
Refusal refuse_operands(const NodeSpec& spec) {
  if (Refusal reason = refuse_stored_product(spec)) return reason;
  if (spec.has_input(kStoredResidual) && spec.outputs[0].dtype != DType::f16)
    return "a residual of f16 is not added to y of f32";
  const StoredProduct p(spec);
  // A thread goes on by less than 2^30 from a unit of eight elements; offsets into x are 32-bit.
  constexpr std::int64_t kMax = std::numeric_limits<std::int32_t>::max() / 2;
  const std::int64_t units = unpack_units(p.depth);
  if (p.outputs > kMax / units || spec.inputs[0]->elements() > kMax || p.rows > kMax / units)
    return "the operands are too large for 32-bit offsets";
  return std::nullopt;
}

Refusal refuse(const NodeSpec& spec) {
  if (Refusal reason = refuse_operands(spec)) return reason;
  if (const std::string& problem = cublaslt().problem; !problem.empty()) return problem;
  std::string reason;
  if (!LtGemm::create(gemm_of(spec, StoredProduct(spec)), reason)) return reason;
  return std::nullopt;
}

// The product as a library's 1x1 convolution, of which tiles of 128 x 128 and steps of 64 are assumed, with weights in
// halves. `again`: what the launches around it read and write.
std::optional<Estimate> estimate(const NodeSpec& spec) {
  if (refuse_operands(spec)) return std::nullopt;
  constexpr std::int64_t kTile = 128, kStep = 64;
  const StoredProduct p(spec);
  const int processors = processors_of(spec.gpu);
  const std::int64_t blocks = ceil_div(p.rows, kTile) * ceil_div(p.outputs, kTile);
  const bool late = !p.activation.is_identity() && !(p.activation == Clamp::relu());
  const auto bytes = [&](std::size_t input) {
    return spec.has_input(input) ? static_cast<double>(spec.inputs[input]->bytes()) : 0;
  };
  const double depth = static_cast<double>(unpack_units(p.depth) * kUnpackUnit);
  const double weights = 2 * depth * static_cast<double>(p.outputs);
  const double x = 2 * depth * static_cast<double>(p.rows);
  const auto y = static_cast<double>(spec.outputs[0].bytes());
  LaunchTerms terms;
  terms.steps = static_cast<double>(ceil_div(p.depth, kStep));
  terms.rounds = static_cast<double>(ceil_div(blocks, std::int64_t{processors}));
  terms.blocks = static_cast<double>(blocks) / processors;
  terms.megabytes = 1e-6 * (x + weights + y + bytes(kStoredResidual));
  terms.again = 1e-6 * (bytes(1) + bytes(2) + weights + (copies_rows(p) ? 2 * x : 0) + (late ? 2 * y : 0));
  terms.copies = late ? 2 : 1;
  terms.products = 1e-9 * static_cast<double>(p.rows) * static_cast<double>(p.outputs) * depth;
  // As of convolutions through libraries: the best kernels want rows in multiples of 16.
  const bool odd = p.outputs % 16 != 0 || p.depth % 16 != 0;
  return estimate_of(odd ? "unpacked_gemm odd" : "unpacked_gemm", terms);
}

class UnpackedGemm final : public PackedKernel {
 public:
  explicit UnpackedGemm(const NodeSpec& spec) {
    const StoredProduct p(spec);
    args_ = unpack_args(p.format, p.outputs, p.depth, p.rows, copies_rows(p));
    const std::span<const float> scales = spec.constant(2)->values<float>();
    const int exponent = unpack_exponent(p.format, scales);
    args_.weights = keep(padded_rows(p.format, p.outputs, p.depth, spec.constant(1)->view().data));
    args_.scales = keep(unpack_scales(scales, exponent));
    if (p.window) {
      args_.pixels = keep(pixels_of(spec, *p.window));
      args_.positions = Divisor(p.rows / spec.outputs[0].shape[0]);
      args_.image = static_cast<int>(spec.inputs[0]->elements() / spec.inputs[0]->shape[0]);
    }
    plain_ = gemm_of(spec, p);
    plain_.alpha = std::ldexp(1.0F, -exponent);
    make_product(spec, p);
    PIPIT_CUDA(prepare_unpack(args_, overlap_));
  }

  std::size_t scratch_bytes() const override {
    return weight_area() + copy_area() + gemm_->workspace_bytes();
  }
  std::size_t packed_bytes() const override { return PackedKernel::packed_bytes() + bias_.bytes(); }
  bool reads_constant(std::size_t index) const override { return index == 0 || index == kStoredResidual; }
  bool orders_prior_writes() const override { return true; }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const auto stream = static_cast<cudaStream_t>(context.stream);
    std::byte* const copied = context.scratch + weight_area();
    UnpackArgs args = args_;
    args.unpacked = context.scratch;
    args.x = inputs[0].data;
    args.copied = copied;
    PIPIT_CUDA(launch_unpack(args, overlap_, stream));
    const std::byte* residual = inputs.size() > kStoredResidual ? inputs[kStoredResidual].data : nullptr;
    const std::byte* x = args.copied_units > 0 ? copied : inputs[0].data;
    gemm_->run(x, context.scratch, residual, outputs[0].data, copied + copy_area(), stream);
    if (!late_ && clamp_.is_identity()) return;
    const Addend bias{late_ ? bias_.data() : nullptr, 0, 1, 1.0F};
    const Addend added{late_ ? residual : nullptr, plain_.ldd, 1, 1.0F};
    apply_epilogue(outputs[0].data, plain_.wide_output ? DType::f32 : DType::f16, plain_.m, plain_.n, bias,
                   added, clamp_, stream);
  }

 private:
  // With as much of the epilogue as the library has an algorithm for. Without one there always is, or the candidate
  // would have refused.
  void make_product(const NodeSpec& spec, const StoredProduct& p) {
    GemmShape shape = plain_;
    if (const Tensor* bias = spec.constant(kStoredBias)) {
      bias_ = upload(bias->values<float>(), spec.outputs[0].dtype);
      shape.bias = bias_.data();
    }
    shape.beta = spec.has_input(kStoredResidual) ? 1.0F : 0.0F;
    shape.relu = p.activation == Clamp::relu();
    if (!shape.relu) clamp_ = p.activation;
    std::string reason;
    const int proposal = proposal_number(spec.variant);
    gemm_ = LtGemm::create(shape, reason, proposal);
    if (gemm_) return;
    late_ = true;
    clamp_ = p.activation;
    gemm_ = LtGemm::create(plain_, reason, proposal);
    if (!gemm_) fail("{}", reason);
  }
  static std::size_t area(std::int64_t units) {
    return (static_cast<std::size_t>(units) * 16 + 255) / 256 * 256;
  }
  std::size_t weight_area() const { return area(args_.weight_units); }
  std::size_t copy_area() const { return area(args_.copied_units); }

  UnpackArgs args_;
  bool overlap_ = false;
  GemmShape plain_;  // without epilogue
  DeviceBuffer bias_;
  Clamp clamp_;        // that a kernel of our own applies after the product
  bool late_ = false;  // and bias and residual, likewise
  std::unique_ptr<LtGemm> gemm_;
};

Candidate candidate() {
  Candidate made{
      "unpacked_gemm", refuse,
      [](const NodeSpec& spec) -> std::unique_ptr<Kernel> { return std::make_unique<UnpackedGemm>(spec); },
      [](const NodeSpec&) { return proposals(LtGemm::kProposals); }};
  made.estimate = estimate;
  return made;
}

}  // namespace

void register_cuda_unpacked_gemm(Registry& registry) {
  registry.add(WLinear::kType, DeviceKind::cuda, candidate());
  registry.add(WConv::kType, DeviceKind::cuda, candidate());
}

}  // namespace pipit::internal
