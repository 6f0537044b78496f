// Convolution on the register-tile kernel; of one tap and few pixels in 16 bits by a kernel of its own.
#include "layers/cpu/conv/conv_tile.h"
#include "layers/cpu/conv/winograd_cost.h"

#include "layers/common/layer_kernel.h"
#include "layers/cpu/conv/row_source.h"
#include "layers/cpu/families.h"
#include "layers/cpu/linear/narrow_gemv.h"
#include "layers/cpu/tile/tile_convolution.h"
#include "layers/ops/conv.h"
#include "layers/ops/operands.h"

namespace pipit::internal {

namespace {

// Fewer channels leave most lanes of a vector empty: of images im2col_gemm takes them.
constexpr std::int64_t kMinGroup = 8;

TileConvolution::Geometry geometry_of(const NodeSpec& spec) {
  const ConvAttributes& attributes = layer_as<Conv>(spec.layer).attributes();
  return TileConvolution::framed({*spec.inputs[0], spec.outputs[0].shape, attributes.window,
                                  attributes.groups, attributes.activation, spec.has_input(3), 0, false, 1,
                                  spec.fusion});
}

// The weights in row-major order: a copy only where they lie otherwise, in `moved`, which lives as long as the
// expression of the call.
const float* row_major_weights(const Tensor& weights, Tensor&& moved = {}) {
  if (is_row_major(weights.desc())) return weights.values<float>().data();
  moved = to_layout(weights.view(), Layout::row_major);
  return moved.values<float>().data();
}

class ConvTile final : public Kernel, public RowSource {
 public:
  explicit ConvTile(const NodeSpec& spec)
      : convolution_(geometry_of(spec), row_major_weights(*spec.constant(1)), spec.threads) {}

  std::size_t scratch_bytes() const override { return convolution_.scratch_bytes(); }
  bool reads_constant(std::size_t index) const override { return index != 1; }
  double kept_share() const override { return convolution_.kept_share(); }
  std::vector<KernelWork> work() const override { return {convolution_.work()}; }
  std::size_t packed_bytes() const override { return convolution_.packed_bytes(); }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const bool adds = inputs.size() > 3 && inputs[3].present();
    convolution_.run(inputs[0].data, optional_data<float>(inputs, 2), adds ? inputs[3].data : nullptr,
                     outputs[0].data, context);
  }

  std::int64_t piece_channels() const override { return convolution_.piece_channels(); }
  std::size_t piece_scratch_bytes() const override { return convolution_.piece_scratch_bytes(); }
  void compute_piece(std::span<const ConstTensorView> inputs, std::int64_t image, std::int64_t begin,
                     std::int64_t end, std::int64_t block, std::byte* y, std::int64_t columns,
                     std::byte* scratch) const override {
    convolution_.compute_piece(inputs[0].data, optional_data<float>(inputs, 2), image, {begin, end}, block, y,
                               columns, scratch);
  }

 private:
  TileConvolution convolution_;
};

Refusal refuse_tile(const NodeSpec& spec) {
  if (Refusal reason = refuse_unless_stored_floats(spec)) return reason;
  if (spec.has_input(2) && spec.inputs[2]->dtype != DType::f32) return "the bias must be f32";
  const TensorDesc& x = *spec.inputs[0];
  const TensorDesc& y = spec.outputs[0];
  const ConvAttributes& attributes = layer_as<Conv>(spec.layer).attributes();
  if (spec.constant(1) == nullptr) return "weights are computed at run time";
  if (!is_channels_last(y)) return "the output must be channels_last";
  if (spec.has_input(3) && !is_channels_last(*spec.inputs[3])) return "the residual must be channels_last";
  if (attributes.groups > 1 && attributes.window.rank == 2 &&
      (x.shape[1] / attributes.groups < kMinGroup || y.shape[1] / attributes.groups < kMinGroup)) {
    return "fewer than 8 channels in a group";
  }
  if (y.elements() == 0) return "the output is empty";
  if (TileConvolution::copies_long_rows(geometry_of(spec))) return "a padded input row is too long";
  if (TileConvolution::input_of(geometry_of(spec)).segments().empty())
    return "a filter reaches over more than 2 GiB of input";
  return std::nullopt;
}

NarrowGemv::Problem few_pixels(const NodeSpec& spec) {
  const Shape& y = spec.outputs[0].shape;
  return {y.elements() / y[1], spec.inputs[0]->shape[1], y[1],
          layer_as<Conv>(spec.layer).attributes().activation, spec.inputs[0]->dtype};
}

class ConvGemv final : public Kernel {
 public:
  explicit ConvGemv(const NodeSpec& spec) : ConvGemv(spec, few_pixels(spec)) {}
  std::size_t scratch_bytes() const override { return gemv_.scratch_bytes(); }
  bool reads_constant(std::size_t index) const override { return index != 1; }
  std::vector<KernelWork> work() const override { return {gemv_.work()}; }
  std::size_t packed_bytes() const override { return gemv_.packed_bytes(); }
  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const bool adds = inputs.size() > 3 && inputs[3].present();
    gemv_.run(inputs[0].data, optional_data<float>(inputs, 2), adds ? inputs[3].data : nullptr,
              outputs[0].data, context);
  }

 private:
  ConvGemv(const NodeSpec& spec, const NarrowGemv::Problem& problem)
      : gemv_(problem, {row_major_weights(*spec.constant(1)), problem.depth, 1, 0, problem.depth, 1},
              Epilogue(1, spec.fusion.followers)) {}
  NarrowGemv gemv_;
};

Refusal refuse_gemv(const NodeSpec& spec) {
  if (!stores_16_bits(spec.precision) || !is_stored_float(spec.inputs[0]->dtype))
    return "for fp16 and bf16 only";
  if (Refusal reason = refuse_tile(spec)) return reason;
  const ConvAttributes& attributes = layer_as<Conv>(spec.layer).attributes();
  Window plain;
  plain.rank = attributes.window.rank;
  plain.dilation = attributes.window.dilation;  // of one tap: without meaning
  plain.ceil_mode = attributes.window.ceil_mode;
  if (!(attributes.window == plain) || attributes.groups != 1 || !is_channels_last(*spec.inputs[0]))
    return "not a product of rows that follow each other";
  const NarrowGemv::Problem problem = few_pixels(spec);
  return NarrowGemv::refuse(problem);
}

}  // namespace

KeptSteps kept_by_conv_tile(const NodeSpec& spec) {
  return TileConvolution::kept_steps(geometry_of(spec), row_major_weights(*spec.constant(1)));
}

void register_cpu_conv_gemv(Registry& registry) {
  Candidate gemv{"gemv", refuse_gemv, [](const NodeSpec& spec) { return std::make_unique<ConvGemv>(spec); }};
  gemv.fusions.epilogue = fuses_image_epilogue;
  registry.add(Conv::kType, DeviceKind::cpu, std::move(gemv));
}

void register_cpu_conv_tile(Registry& registry) {
  Candidate tile{"tile", refuse_tile, [](const NodeSpec& spec) { return std::make_unique<ConvTile>(spec); }};
  tile.estimate = direct_estimate;
  tile.kept_share = [](const NodeSpec& spec) { return kept_by_conv_tile(spec).share(); };
  tile.fusions.epilogue = [](const NodeSpec& spec, const NodeSpec& next) {
    return TileConvolution::fuses_epilogue(geometry_of(spec), next);
  };
  tile.fusions.computes_pieces = [](const NodeSpec& spec) {
    return TileConvolution::computes_pieces(geometry_of(spec));
  };
  tile.fusions.writes_strided_rows = [](const NodeSpec& spec) {
    return TileConvolution::writes_strided_rows(geometry_of(spec));
  };
  tile.fusions.overwrites = [](const NodeSpec& spec, std::size_t input) {
    return input == 3 && TileConvolution::overwrites_residual(geometry_of(spec));
  };
  registry.add(Conv::kType, DeviceKind::cpu, std::move(tile));
}

}  // namespace pipit::internal
