// Fully connected layers with constant weights on the register-tile kernel: a convolution of one tap over the rows. Few
// rows in 16 bits by a kernel of their own.
#include "layers/common/layer_kernel.h"
#include "layers/cpu/families.h"
#include "layers/cpu/linear/narrow_gemv.h"
#include "layers/cpu/tile/tile_convolution.h"
#include "layers/ops/gemm.h"
#include "layers/ops/matmul.h"
#include "layers/ops/operands.h"

namespace pipit::internal {

namespace {

// y [rows, outputs] = clamp(x [rows, inputs] * B + bias).
struct LinearSpec {
  std::int64_t rows = 0;
  std::int64_t inputs = 0;
  std::int64_t outputs = 0;
  bool transpose_b = false;
  Clamp activation;
  DType stored = DType::f32;
  int rank = 2;  // of the result

  NarrowGemv::Problem few_rows() const { return {rows, inputs, outputs, activation, stored}; }
  TileConvolution::Geometry geometry(const Fusion& fusion) const {
    Window window;
    window.rank = 1;
    return {TensorDesc{Shape{1, inputs, rows}, stored, Layout::channels_last},
            Shape{1, outputs, rows},
            window,
            1,
            activation,
            false,
            0,
            false,
            rank - 1,
            fusion};
  }
  WeightView weights(const Tensor& b) const {
    const float* data = b.values<float>().data();
    if (transpose_b) return {data, inputs, 1, 0, inputs, 1};
    return {data, 1, 1, 0, inputs, outputs};
  }
};

LinearSpec linear_of(const NodeSpec& spec, const Gemm& layer) {
  const Shape& y = spec.outputs[0].shape;
  return {y[0],
          spec.inputs[0]->shape[1],
          y[1],
          layer.attributes().transpose_b,
          layer.attributes().activation,
          spec.inputs[0]->dtype};
}

LinearSpec linear_of(const NodeSpec& spec, const MatMul&) {
  const MatMulGeometry g = matmul_geometry(spec.inputs[0]->shape, spec.inputs[1]->shape);
  return {g.m * g.batch_count(), g.k, g.n, false, {}, spec.inputs[0]->dtype, spec.outputs[0].shape.rank()};
}

Refusal refuse_layer(const NodeSpec& spec, const Gemm& layer) {
  const GemmAttributes& attributes = layer.attributes();
  if (attributes.transpose_a) return "A is transposed";
  if (attributes.alpha != 1 || attributes.beta != 1) return "alpha or beta is not 1";
  if (spec.has_input(2)) {
    const Shape& c = spec.inputs[2]->shape;
    const std::int64_t outputs = spec.outputs[0].shape[1];
    if (c.rank() < 1 || c[c.rank() - 1] != outputs || c.elements() != outputs) return "C is not one row";
  }
  return std::nullopt;
}

Refusal refuse_layer(const NodeSpec& spec, const MatMul&) {
  const Shape& b = spec.inputs[1]->shape;
  const MatMulGeometry g = matmul_geometry(spec.inputs[0]->shape, b);
  if (b.elements() != g.k * g.n) return "B is more than one matrix";
  return std::nullopt;
}

template <typename L>
class LinearTile final : public Kernel {
 public:
  explicit LinearTile(const NodeSpec& spec) : LinearTile(spec, linear_of(spec, layer_as<L>(spec.layer))) {}
  std::size_t scratch_bytes() const override { return convolution_.scratch_bytes(); }
  bool reads_constant(std::size_t index) const override { return index != 1; }
  double kept_share() const override { return convolution_.kept_share(); }
  std::vector<KernelWork> work() const override { return {convolution_.work()}; }
  std::size_t packed_bytes() const override { return convolution_.packed_bytes(); }
  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    convolution_.run(inputs[0].data, optional_data<float>(inputs, 2), nullptr, outputs[0].data, context);
  }

 private:
  LinearTile(const NodeSpec& spec, const LinearSpec& linear)
      : convolution_(linear.geometry(spec.fusion), linear.weights(*spec.constant(1)), spec.threads) {}
  TileConvolution convolution_;
};

template <typename L>
class LinearGemv final : public Kernel {
 public:
  explicit LinearGemv(const NodeSpec& spec) : LinearGemv(spec, linear_of(spec, layer_as<L>(spec.layer))) {}
  std::size_t scratch_bytes() const override { return gemv_.scratch_bytes(); }
  bool reads_constant(std::size_t index) const override { return index != 1; }
  std::vector<KernelWork> work() const override { return {gemv_.work()}; }
  std::size_t packed_bytes() const override { return gemv_.packed_bytes(); }
  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    gemv_.run(inputs[0].data, optional_data<float>(inputs, 2), nullptr, outputs[0].data, context);
  }

 private:
  LinearGemv(const NodeSpec& spec, const LinearSpec& linear)
      : gemv_(linear.few_rows(), linear.weights(*spec.constant(1)),
              Epilogue(linear.rank - 1, spec.fusion.followers)) {}
  NarrowGemv gemv_;
};

template <typename L>
Refusal refuse_linear(const NodeSpec& spec) {
  if (Refusal reason = refuse_unless_stored_floats(spec)) return reason;
  if (spec.has_input(2) && spec.inputs[2]->dtype != DType::f32) return "the bias must be f32";
  if (Refusal reason = refuse_unless_row_major(spec)) return reason;
  if (spec.constant(1) == nullptr) return "weights are computed at run time";
  if (Refusal reason = refuse_layer(spec, layer_as<L>(spec.layer))) return reason;
  if (spec.outputs[0].elements() == 0 || spec.inputs[0]->elements() == 0) return "an operand is empty";
  return std::nullopt;
}

template <typename L>
Refusal refuse_gemv(const NodeSpec& spec) {
  if (!stores_16_bits(spec.precision) || !is_stored_float(spec.inputs[0]->dtype))
    return "for fp16 and bf16 only";
  if (Refusal reason = refuse_linear<L>(spec)) return reason;
  return NarrowGemv::refuse(linear_of(spec, layer_as<L>(spec.layer)).few_rows());
}

template <typename L>
void add(Registry& registry) {
  Candidate gemv{"gemv", refuse_gemv<L>,
                 [](const NodeSpec& spec) { return std::make_unique<LinearGemv<L>>(spec); }};
  gemv.fusions.epilogue = fuses_matrix_epilogue;
  registry.add(L::kType, DeviceKind::cpu, std::move(gemv));
  Candidate tile{"tile", refuse_linear<L>,
                 [](const NodeSpec& spec) { return std::make_unique<LinearTile<L>>(spec); }};
  tile.fusions.epilogue = [](const NodeSpec& spec, const NodeSpec& next) {
    return TileConvolution::fuses_epilogue(linear_of(spec, layer_as<L>(spec.layer)).geometry(spec.fusion),
                                           next);
  };
  tile.kept_share = [](const NodeSpec& spec) {
    const LinearSpec linear = linear_of(spec, layer_as<L>(spec.layer));
    return TileConvolution::kept_share(linear.geometry(spec.fusion), linear.weights(*spec.constant(1)));
  };
  registry.add(L::kType, DeviceKind::cpu, std::move(tile));
}

}  // namespace

void register_cpu_linear_tile(Registry& registry) {
  add<Gemm>(registry);
  add<MatMul>(registry);
}

}  // namespace pipit::internal
