// Candidate "skinny_gemm": Gemm with at most eight rows and constant weights, in fp16.
#include <fmt/format.h>

#include <limits>
#include <vector>

#include "engine/cuda/runtime.h"
#include "layers/common/layer_kernel.h"
#include "layers/cuda/cost/launch_cost.h"
#include "layers/cuda/families.h"
#include "layers/cuda/linear/skinny_gemm.h"
#include "layers/ops/gemm.h"

namespace pipit {

namespace {

using cuda::DeviceBuffer;

Refusal refuse_skinny(const NodeSpec& spec) {
  const GemmAttributes& attributes = layer_as<Gemm>(spec.layer).attributes();
  const DType out = spec.outputs[0].dtype;
  if (spec.precision != Precision::fp16 || spec.inputs[0]->dtype != DType::f16 ||
      (out != DType::f16 && out != DType::f32))
    return "only fp16 is handled";
  if (spec.constant(1) == nullptr) return "B is computed at run time";
  if (spec.has_input(2) && spec.constant(2) == nullptr) return "C is computed at run time";
  if (attributes.transpose_a) return "A is transposed";
  const Shape& y = spec.outputs[0].shape;
  const std::int64_t k = spec.inputs[0]->shape[1];
  if (y[0] > cuda::kSkinnyRows)
    return fmt::format("{} rows; at most {} are handled", y[0], cuda::kSkinnyRows);
  if (y.elements() == 0 || k == 0) return "an operand is empty";
  if (k % 8 != 0) return fmt::format("rows of {}; only multiples of 8 are handled", k);
  if (spec.has_input(2)) {
    const Shape& c = spec.inputs[2]->shape;
    if (c.rank() == 2 && c[0] != 1) return "C differs from row to row";
  }
  constexpr std::int64_t kLimit = std::numeric_limits<std::int32_t>::max() / 16;
  if (k > kLimit || y[1] > kLimit) return "the operands are too large for 32-bit offsets";
  return refuse_unless_row_major(spec);
}

class Skinny final : public Kernel {
 public:
  explicit Skinny(const NodeSpec& spec) {
    const GemmAttributes& attributes = layer_as<Gemm>(spec.layer).attributes();
    const Shape& y = spec.outputs[0].shape;
    const std::int64_t n = y[1];
    const std::int64_t k = spec.inputs[0]->shape[1];
    const std::span<const float> values = spec.constant(1)->values<float>();
    std::vector<Half> weights(static_cast<std::size_t>(n * k));
    for (std::int64_t row = 0; row < n; ++row) {
      for (std::int64_t i = 0; i < k; ++i) {
        const std::int64_t from = attributes.transpose_b ? row * k + i : i * n + row;
        weights[static_cast<std::size_t>(row * k + i)] = to_half(values[static_cast<std::size_t>(from)]);
      }
    }
    weights_ = DeviceBuffer(weights.data(), weights.size() * sizeof(Half));
    std::vector<float> bias(static_cast<std::size_t>(n));
    if (const Tensor* c = spec.constant(2); c != nullptr && attributes.beta != 0) {
      const std::span<const float> given = c->values<float>();
      for (std::size_t i = 0; i < bias.size(); ++i)
        bias[i] = attributes.beta * given[given.size() == 1 ? 0 : i];
    }
    bias_ = DeviceBuffer(bias.data(), bias.size() * sizeof(float));
    gemm_.m = static_cast<int>(y[0]), gemm_.n = static_cast<int>(n), gemm_.k = static_cast<int>(k);
    gemm_.b = weights_.as<const Half>();
    gemm_.bias = bias_.as<const float>();
    gemm_.y_half = spec.outputs[0].dtype == DType::f16;
    gemm_.alpha = attributes.alpha;
    gemm_.low = attributes.activation.low;
    gemm_.high = attributes.activation.high;
    PIPIT_CUDA(cuda::skinny_gemm_overlaps(gemm_.overlap));
  }
  bool reads_constant(std::size_t index) const override { return index == 0; }
  std::size_t packed_bytes() const override { return weights_.bytes() + bias_.bytes(); }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    cuda::SkinnyGemm gemm = gemm_;
    gemm.a = inputs[0].as<Half>();
    gemm.y = outputs[0].data;
    PIPIT_CUDA(cuda::launch_skinny_gemm(gemm, static_cast<cudaStream_t>(context.stream)));
  }

 private:
  cuda::SkinnyGemm gemm_;
  DeviceBuffer weights_;
  DeviceBuffer bias_;
};

// It reads the weights once, but multiplies row by row.
std::optional<Estimate> estimate(const NodeSpec& spec) {
  if (refuse_skinny(spec)) return std::nullopt;
  cuda::LaunchTerms terms;
  terms.megabytes = cuda::operand_megabytes(spec);
  terms.products = 1e-9 * static_cast<double>(spec.layer.work(spec.inputs, spec.outputs).macs);
  return cuda::estimate_of("skinny_gemm", terms);
}

}  // namespace

void register_cuda_linear_skinny(Registry& registry) {
  Candidate candidate{"skinny_gemm", refuse_skinny,
                      [](const NodeSpec& spec) { return std::make_unique<Skinny>(spec); }};
  candidate.estimate = estimate;
  registry.add(Gemm::kType, DeviceKind::cuda, std::move(candidate));
}

}  // namespace pipit
