// Candidate "skinny_gemm": Gemm with at most eight rows and constant weights, in fp16 and bf16.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "engine/cuda/runtime.h"
#include "layers/common/layer_kernel.h"
#include "layers/cuda/cost/launch_cost.h"
#include "layers/cuda/device/constants.h"
#include "layers/cuda/families.h"
#include "layers/cuda/libraries/lt_gemm.h"
#include "layers/cuda/linear/gemm.h"
#include "layers/ops/gemm.h"
#include "layers/ops/matmul.h"

namespace pipit::internal {

namespace {

using cuda::DeviceBuffer;

Refusal refuse_skinny(const NodeSpec& spec) {
  const GemmAttributes& attributes = layer_as<Gemm>(spec.layer).attributes();
  const DType type = spec.inputs[0]->dtype, out = spec.outputs[0].dtype;
  if (!stores_16_bits(spec.precision) || !is_stored_float(type) || (out != type && out != DType::f32))
    return "only fp16 and bf16 are handled";
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
    const DType type = spec.inputs[0]->dtype;
    std::vector<std::uint16_t> weights(static_cast<std::size_t>(n * k));
    for (std::int64_t row = 0; row < n; ++row) {
      for (std::int64_t i = 0; i < k; ++i) {
        const std::int64_t from = attributes.transpose_b ? row * k + i : i * n + row;
        weights[static_cast<std::size_t>(row * k + i)] =
            cuda::narrow_bits(values[static_cast<std::size_t>(from)], type);
      }
    }
    weights_ = DeviceBuffer(weights.data(), weights.size() * sizeof weights[0]);
    std::vector<float> bias(static_cast<std::size_t>(n));
    if (const Tensor* c = spec.constant(2); c != nullptr && attributes.beta != 0) {
      const std::span<const float> given = c->values<float>();
      for (std::size_t i = 0; i < bias.size(); ++i)
        bias[i] = attributes.beta * given[given.size() == 1 ? 0 : i];
    }
    bias_ = DeviceBuffer(bias.data(), bias.size() * sizeof(float));
    gemm_.m = static_cast<int>(y[0]), gemm_.n = static_cast<int>(n), gemm_.k = static_cast<int>(k);
    gemm_.bf16 = type == DType::bf16;
    gemm_.b = weights_.data();
    gemm_.bias = bias_.as<const float>();
    gemm_.y_half = spec.outputs[0].dtype == type;
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
    gemm.a = inputs[0].data;
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

// Gemm and MatMul: through cuBLASLt, and without it.

namespace {

using cuda::Addend;
using cuda::GemmShape;
using cuda::LtGemm;
using cuda::Operand;

// A node as runs of equally spaced products; what is common to Gemm and MatMul.
struct MatrixProducts {
  DType type = DType::f32;    // of A and B
  DType output = DType::f32;  // of C and D
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  bool transpose_a = false;
  bool transpose_b = false;
  float alpha = 1;
  float beta = 1;
  Clamp clamp;
  std::int64_t batch = 1;  // products of one run
  std::int64_t a_step = 0;
  std::int64_t b_step = 0;
  std::vector<MatMulGeometry::Offsets> runs{
      {}};  // where each run starts; its results follow the previous run's

  bool empty() const { return m == 0 || n == 0 || k == 0 || batch == 0 || runs.empty(); }
};

// What A and B are stored as: the type of the operand that is computed at run time, else the output's.
DType operand_type(const NodeSpec& spec) {
  for (std::size_t i = 0; i < 2; ++i) {
    if (spec.constant(i) == nullptr) return spec.inputs[i]->dtype;
  }
  return spec.outputs[0].dtype;
}

MatrixProducts products_of(const Gemm& layer, const NodeSpec& spec) {
  const GemmAttributes& attributes = layer.attributes();
  MatrixProducts p;
  p.type = operand_type(spec);
  p.output = spec.outputs[0].dtype;
  p.m = spec.outputs[0].shape[0];
  p.n = spec.outputs[0].shape[1];
  p.k = spec.inputs[0]->shape[attributes.transpose_a ? 0 : 1];
  p.transpose_a = attributes.transpose_a;
  p.transpose_b = attributes.transpose_b;
  p.alpha = attributes.alpha;
  p.beta = attributes.beta;
  p.clamp = attributes.activation;
  return p;
}

MatrixProducts products_of(const MatMul&, const NodeSpec& spec) {
  const MatMulGeometry g = matmul_geometry(spec.inputs[0]->shape, spec.inputs[1]->shape);
  MatrixProducts p;
  p.type = operand_type(spec);
  p.output = spec.outputs[0].dtype;
  p.m = g.m;
  p.n = g.n;
  p.k = g.k;
  // Trailing batch dimensions join a run as long as both operands advance evenly over all of them.
  int axis = g.batch_rank - 1;
  for (; axis >= 0; --axis) {
    const auto i = static_cast<std::size_t>(axis);
    if (g.batch[i] == 1) continue;
    if (p.batch == 1) {
      p.a_step = g.a_stride[i];
      p.b_step = g.b_stride[i];
    } else if (g.a_stride[i] != p.a_step * p.batch || g.b_stride[i] != p.b_step * p.batch) {
      break;
    }
    p.batch *= g.batch[i];
  }
  p.runs.clear();
  const std::int64_t count = g.batch_count();
  for (std::int64_t i = 0; i < count; i += p.batch) p.runs.push_back(g.offsets(i));
  // One B for all and A without gaps: the rows of all products form a single matrix.
  if (p.b_step == 0 && p.a_step == p.m * p.k) {
    p.m *= p.batch;
    p.batch = 1;
  }
  return p;
}

GemmShape plain_shape(const MatrixProducts& p) {
  GemmShape shape;
  shape.dtype = p.type;
  shape.wide_output = p.output != p.type;
  shape.m = p.m;
  shape.n = p.n;
  shape.k = p.k;
  shape.transpose_a = p.transpose_a;
  shape.transpose_b = p.transpose_b;
  shape.lda = p.transpose_a ? p.m : p.k;
  shape.ldb = p.transpose_b ? p.k : p.n;
  shape.ldd = p.n;
  shape.batch = p.batch;
  shape.a_step = p.a_step;
  shape.b_step = p.b_step;
  shape.d_step = p.m * p.n;
  shape.alpha = p.alpha;
  // Buffers start at multiples of 256 bytes, products inside them at multiples of their own size.
  const auto element = static_cast<std::int64_t>(dtype_bytes(p.type));
  const auto aligned = [&](std::int64_t elements) { return elements * element % 16 == 0; };
  const bool even = aligned(p.a_step) && aligned(p.b_step) && (p.batch == 1 || aligned(p.m * p.n)) &&
                    (p.runs.size() == 1 || aligned(p.batch * p.m * p.n)) &&
                    std::all_of(p.runs.begin(), p.runs.end(),
                                [&](const auto& at) { return aligned(at.a) && aligned(at.b); });
  shape.alignment = even ? 16 : element;
  return shape;
}

// C of Gemm: what it is and how it broadcasts to [m, n].
struct BroadcastC {
  bool present = false;
  std::int64_t row_step = 0;
  std::int64_t column_step = 0;

  BroadcastC(const NodeSpec& spec, const MatrixProducts& p) : present(spec.has_input(2) && p.beta != 0) {
    if (!present) return;
    const Shape& shape = spec.inputs[2]->shape;
    const int rank = shape.rank();
    if (rank > 0 && shape[rank - 1] != 1) column_step = 1;
    if (rank > 1 && shape[rank - 2] != 1) row_step = shape[rank - 1];
  }
  bool per_column() const { return row_step == 0; }
  bool dense(const MatrixProducts& p) const {
    return (row_step == p.n || p.m == 1) && (column_step == 1 || p.n == 1);
  }
};

class LinearKernel : public Kernel {
 public:
  LinearKernel(const NodeSpec& spec, MatrixProducts products)
      : products_(std::move(products)),
        a_(spec, 0, products_.type),
        b_(spec, 1, products_.type),
        c_(spec, 2, products_.output) {}
  bool reads_constant(std::size_t) const override {
    return false;
  }  // constants were packed, whichever they are
  std::size_t packed_bytes() const override { return a_.bytes() + b_.bytes() + c_.bytes(); }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const MatrixProducts& p = products_;
    const auto element = static_cast<std::int64_t>(dtype_bytes(p.type));
    const auto result = static_cast<std::int64_t>(dtype_bytes(p.output));
    const std::byte* c = inputs.size() > 2 ? c_.data(inputs) : nullptr;
    std::byte* d = outputs[0].data;
    for (const MatMulGeometry::Offsets& at : p.runs) {
      product(a_.data(inputs) + at.a * element, b_.data(inputs) + at.b * element, c, d, context);
      d += p.batch * p.m * p.n * result;
    }
  }

 protected:
  virtual void product(const std::byte* a, const std::byte* b, const std::byte* c, std::byte* d,
                       const RunContext& context) const = 0;
  const MatrixProducts products_;

 private:
  Operand a_;
  Operand b_;
  Operand c_;
};

class LtLinear final : public LinearKernel {
 public:
  LtLinear(const NodeSpec& spec, MatrixProducts products) : LinearKernel(spec, std::move(products)) {
    const MatrixProducts& p = products_;
    const BroadcastC c(spec, p);
    GemmShape shape = plain_shape(p);
    clamp_ = p.clamp;
    if (c.present && c.per_column() && spec.constant(2) != nullptr) {
      const std::span<const float> values = spec.constant(2)->values<float>();
      std::vector<float> bias(static_cast<std::size_t>(p.n));
      for (std::size_t i = 0; i < bias.size(); ++i) bias[i] = values[c.column_step != 0 ? i : 0];
      bias_ = cuda::upload(bias, p.output, p.beta);
      shape.bias = bias_.data();
    } else if (c.present && c.dense(p)) {
      shape.beta = p.beta;
    } else if (c.present) {
      addend_ = {nullptr, c.row_step, c.column_step, p.beta};
      late_addend_ = true;
    }
    if (p.clamp == Clamp::relu() && !late_addend_) {
      shape.relu = true;
      clamp_ = {};
    }
    std::string reason;
    const int proposal = cuda::proposal_number(spec.variant);
    gemm_ = LtGemm::create(shape, reason, proposal);
    if (!gemm_) {
      // Without an epilogue there always is an algorithm, or the candidate would have refused.
      if (shape.beta != 0) {
        addend_ = {nullptr, c.row_step, c.column_step, p.beta};
        late_addend_ = true;
      }
      late_bias_ = shape.bias != nullptr;
      clamp_ = p.clamp;
      gemm_ = LtGemm::create(plain_shape(p), reason, proposal);
      if (!gemm_) fail("{}", reason);
    }
  }
  std::size_t scratch_bytes() const override { return gemm_->workspace_bytes(); }

 protected:
  void product(const std::byte* a, const std::byte* b, const std::byte* c, std::byte* d,
               const RunContext& context) const override {
    const auto stream = static_cast<cudaStream_t>(context.stream);
    gemm_->run(a, b, c, d, context.scratch, stream);
    if (!late_addend_ && !late_bias_ && clamp_.is_identity()) return;
    Addend addend = addend_;
    if (late_addend_) addend.data = c;
    const Addend bias{late_bias_ ? bias_.data() : nullptr, 0, 1, 1.0F};
    apply_epilogue(d, products_.output, products_.batch * products_.m, products_.n, addend, bias, clamp_,
                   stream);
  }

 private:
  cuda::DeviceBuffer bias_;
  bool late_bias_ = false;  // bias, C and clamp that a kernel of our own applies after the product
  bool late_addend_ = false;
  Addend addend_;
  Clamp clamp_;
  std::unique_ptr<LtGemm> gemm_;
};

class SimpleLinear final : public LinearKernel {
 public:
  SimpleLinear(const NodeSpec& spec, MatrixProducts products)
      : LinearKernel(spec, std::move(products)), c_(spec, products_) {
    const MatrixProducts& p = products_;
    gemm_ = {p.m, p.n, p.k, p.batch};
    gemm_.a_row = p.transpose_a ? 1 : p.k;
    gemm_.a_column = p.transpose_a ? p.m : 1;
    gemm_.a_step = p.a_step;
    gemm_.b_row = p.transpose_b ? 1 : p.n;
    gemm_.b_column = p.transpose_b ? p.k : 1;
    gemm_.b_step = p.b_step;
    gemm_.alpha = p.alpha;
    gemm_.clamp = p.clamp;
  }

 protected:
  void product(const std::byte* a, const std::byte* b, const std::byte* c, std::byte* d,
               const RunContext& context) const override {
    const Addend addend{c_.present ? c : nullptr, c_.row_step, c_.column_step, products_.beta};
    simple_gemm(gemm_, products_.type, products_.output, a, b, addend, d,
                static_cast<cudaStream_t>(context.stream));
  }

 private:
  BroadcastC c_;
  cuda::SimpleGemm gemm_;
};

Refusal refuse_operands(const NodeSpec& spec) {
  const DType type = operand_type(spec);
  if (spec.outputs[0].dtype == DType::f32 && is_stored_float(type)) {
    // The scores of a network in fp16 or bf16.
    for (std::size_t i = 0; i < spec.inputs.size(); ++i) {
      if (!spec.has_input(i)) continue;
      if (spec.constant(i) == nullptr && (i > 1 || spec.inputs[i]->dtype != type))
        return "input " + std::to_string(i) + " is " + spec.inputs[i]->str() + ", for an output of f32";
    }
  } else if (Refusal reason = cuda::refuse_mixed_types(spec)) {
    return reason;
  }
  return refuse_unless_row_major(spec);
}

template <typename L>
Refusal refuse_lt(const NodeSpec& spec) {
  if (Refusal reason = refuse_operands(spec)) return reason;
  if (const std::string& problem = cuda::cublaslt().problem; !problem.empty()) return problem;
  const MatrixProducts p = products_of(layer_as<L>(spec.layer), spec);
  if (p.empty()) return "an operand is empty";
  constexpr std::int64_t kMax = std::numeric_limits<std::int32_t>::max();
  if (std::max({p.m, p.n, p.k, p.batch}) > kMax)
    return "a matrix has more than 2^31 - 1 rows, columns or copies";
  std::string reason;
  if (!LtGemm::create(plain_shape(p), reason)) return reason;
  return std::nullopt;
}

template <typename L, typename K>
std::unique_ptr<Kernel> create(const NodeSpec& spec) {
  return std::make_unique<K>(spec, products_of(layer_as<L>(spec.layer), spec));
}

std::vector<std::string> lt_variants(const NodeSpec&) {
  return cuda::proposals(LtGemm::kProposals);
}

}  // namespace

void register_cuda_linear(Registry& registry) {
  Candidate lt{"cublaslt", refuse_lt<Gemm>, create<Gemm, LtLinear>, lt_variants};
  lt.estimate = [](const NodeSpec& spec) -> std::optional<Estimate> {
    if (refuse_operands(spec)) return std::nullopt;
    cuda::LaunchTerms terms;
    terms.megabytes = cuda::operand_megabytes(spec);
    return cuda::estimate_of("cublaslt", terms);
  };
  registry.add(Gemm::kType, DeviceKind::cuda, std::move(lt));
  registry.add(Gemm::kType, DeviceKind::cuda, {"simple_gemm", refuse_operands, create<Gemm, SimpleLinear>});
  registry.add(MatMul::kType, DeviceKind::cuda,
               {"cublaslt", refuse_lt<MatMul>, create<MatMul, LtLinear>, lt_variants});
  registry.add(MatMul::kType, DeviceKind::cuda,
               {"simple_gemm", refuse_operands, create<MatMul, SimpleLinear>});
}

}  // namespace pipit::internal
