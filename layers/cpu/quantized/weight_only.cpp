// WLinear and WConv: few rows by the packed kernels, which read no more than the integers; many on the tile kernel,
// for which a panel of weights is made f32 at a time.
#include "layers/ops/weight_only.h"

#include <fmt/format.h>

#include "layers/common/layer_kernel.h"
#include "layers/cpu/families.h"
#include "layers/cpu/quantized/packed_weights.h"
#include "layers/cpu/tile/tile_convolution.h"
#include "layers/ops/operands.h"

namespace pipit::internal {

namespace {

// Decoding weights costs about a quarter of eight rows' multiplications; widening a panel for the tile kernel costs
// that much for this many rows.
constexpr std::int64_t kMaxRows = 16;
// The limit of a panel in f32. A larger one leaves the second-level cache before the next tile of pixels comes.
constexpr std::int64_t kMaxPanelBytes = 1 << 20;

// The matrix product of either layer.
struct Product {
  WeightFormat format;
  Clamp activation;
  std::int64_t rows = 0;  // where they lie one after the other; else 0
  std::int64_t depth = 0;
  std::int64_t outputs = 0;
  std::size_t residual = 0;  // index of the operand; 0: the layer takes none
  int channel_dim = 0;
  TileConvolution::Geometry geometry;
};

Product product_of(const NodeSpec& spec, const WLinear& layer) {
  const Shape& x = spec.inputs[0]->shape;
  const Shape& y = spec.outputs[0].shape;
  Product p;
  p.format = layer.attributes().format;
  p.activation = layer.attributes().activation;
  p.depth = x[x.rank() - 1];
  p.outputs = y[y.rank() - 1];
  p.rows = y.elements() / p.outputs;
  p.channel_dim = y.rank() - 1;
  Window window;
  window.rank = 1;
  p.geometry = {TensorDesc{Shape{1, p.depth, p.rows}, DType::f32, Layout::channels_last},
                Shape{1, p.outputs, p.rows},
                window,
                1,
                p.activation,
                false,
                0,
                true,
                p.channel_dim};
  return p;
}

Product product_of(const NodeSpec& spec, const WConv& layer) {
  const TensorDesc& x = *spec.inputs[0];
  const Shape& y = spec.outputs[0].shape;
  const ConvAttributes& conv = layer.attributes().conv;
  Product p;
  p.format = layer.attributes().format;
  p.activation = conv.activation;
  p.depth = x.shape[1];
  p.outputs = y[1];
  p.residual = 4;
  p.channel_dim = 1;
  p.geometry = {x, y, conv.window, 1, conv.activation, spec.has_input(4), 0, true};
  Window plain;
  plain.rank = conv.window.rank;
  plain.dilation = conv.window.dilation;  // of one tap: without meaning
  plain.ceil_mode = conv.window.ceil_mode;
  if (conv.window == plain && is_channels_last(x)) p.rows = y.elements() / p.outputs;
  return p;
}

template <typename L>
Product product_of(const NodeSpec& spec) {
  return product_of(spec, layer_as<L>(spec.layer));
}

TileConvolution::Geometry geometry_of(const NodeSpec& spec, const Product& product) {
  TileConvolution::Geometry geometry = product.geometry;
  geometry.fusion = spec.fusion;
  return geometry;
}

class PackedGemv final : public Kernel {
 public:
  PackedGemv(const NodeSpec& spec, const Product& product)
      : product_(product),
        weights_(product.format, *spec.constant(1), *spec.constant(2), product.depth),
        epilogue_(product.channel_dim, spec.fusion.followers) {}

  bool reads_constant(std::size_t index) const override { return index != 1 && index != 2; }
  std::vector<KernelWork> work() const override {
    return {{product_.rows * weights_.panels().padded_outputs() * product_.depth, Products::fp32,
             f32_tiles().isa}};
  }
  std::size_t packed_bytes() const override { return weights_.bytes(); }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    PackedCall call;
    call.x = inputs[0].as<float>();
    call.x_stride = product_.depth;
    call.y = outputs[0].as<float>();
    call.y_stride = product_.outputs;
    if (product_.residual != 0) call.residual = optional_data<float>(inputs, product_.residual);
    call.finish.bias = optional_data<float>(inputs, 3);
    call.finish.low = product_.activation.low;
    call.finish.high = product_.activation.high;
    const TilePanels& panels = weights_.panels();
    context.pool.parallel_for(panels.count(), [&](std::int64_t panel, int /*worker*/) {
      weights_.multiply(panel, product_.rows, call);
      if (epilogue_.empty()) return;
      const std::int64_t first = panel * panels.panel;
      epilogue_.apply(call.y + first, first, {panels.columns(panel), product_.rows, call.y_stride});
    });
  }

 private:
  Product product_;
  PackedWeights weights_;
  Epilogue epilogue_;
};

class PackedTile final : public Kernel {
 public:
  PackedTile(const NodeSpec& spec, const Product& product)
      : residual_(product.residual),
        convolution_(geometry_of(spec, product),
                     std::make_unique<PackedWeights>(product.format, *spec.constant(1), *spec.constant(2),
                                                     product.depth),
                     spec.threads) {}

  std::size_t scratch_bytes() const override { return convolution_.scratch_bytes(); }
  bool reads_constant(std::size_t index) const override { return index != 1 && index != 2; }
  std::vector<KernelWork> work() const override { return {convolution_.work()}; }
  std::size_t packed_bytes() const override { return convolution_.packed_bytes(); }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const float* residual = residual_ != 0 ? optional_data<float>(inputs, residual_) : nullptr;
    convolution_.run(inputs[0].data, optional_data<float>(inputs, 3),
                     reinterpret_cast<const std::byte*>(residual), outputs[0].data, context);
  }

 private:
  std::size_t residual_;
  TileConvolution convolution_;
};

Refusal refuse_operands(const NodeSpec& spec) {
  if (Refusal reason = refuse_reduced_precision(spec)) return reason;
  if (spec.constant(1) == nullptr || spec.constant(2) == nullptr) return "weights are computed at run time";
  if (spec.outputs[0].elements() == 0) return "the output is empty";
  return std::nullopt;
}

Refusal refuse_layouts(const NodeSpec& spec, const WLinear&) {
  return refuse_unless_row_major(spec);
}

Refusal refuse_layouts(const NodeSpec& spec, const WConv&) {
  if (!is_channels_last(spec.outputs[0])) return "the output must be channels_last";
  if (spec.has_input(4) && !is_channels_last(*spec.inputs[4])) return "the residual must be channels_last";
  return std::nullopt;
}

template <typename L>
Refusal refuse_tile(const NodeSpec& spec) {
  if (Refusal reason = refuse_operands(spec)) return reason;
  if (Refusal reason = refuse_layouts(spec, layer_as<L>(spec.layer))) return reason;
  const TileConvolution::Geometry geometry = product_of<L>(spec).geometry;
  if (TileConvolution::copies_long_rows(geometry)) return "a padded input row is too long";
  if (TileConvolution::input_of(geometry).segments().empty())
    return "a pixel reaches over more than 2 GiB of input";
  return std::nullopt;
}

template <typename L>
Refusal refuse_gemv(const NodeSpec& spec) {
  if (Refusal reason = refuse_operands(spec)) return reason;
  if (Refusal reason = refuse_layouts(spec, layer_as<L>(spec.layer))) return reason;
  const Product p = product_of<L>(spec);
  if (p.rows == 0) return "rows of the input do not follow each other";
  const std::int64_t panel_bytes = p.depth * f32_tiles().panel() * 4;
  if (p.rows > kMaxRows && panel_bytes <= kMaxPanelBytes)
    return fmt::format("{} rows, more than {}: decoding the weights for each few would take too long", p.rows,
                       kMaxRows);
  return std::nullopt;
}

template <typename Made, typename L>
std::unique_ptr<Kernel> create(const NodeSpec& spec) {
  return std::make_unique<Made>(spec, product_of<L>(spec));
}

template <typename L>
void add(Registry& registry) {
  Candidate gemv{"gemv", refuse_gemv<L>, create<PackedGemv, L>};
  gemv.fusions.epilogue = [](const NodeSpec& spec, const NodeSpec& next) {
    return Epilogue::fuses(product_of<L>(spec).channel_dim, next);
  };
  registry.add(L::kType, DeviceKind::cpu, std::move(gemv));
  Candidate tile{"tile", refuse_tile<L>, create<PackedTile, L>};
  tile.fusions.epilogue = [](const NodeSpec& spec, const NodeSpec& next) {
    return TileConvolution::fuses_epilogue(geometry_of(spec, product_of<L>(spec)), next);
  };
  tile.fusions.writes_strided_rows = [](const NodeSpec& spec) {
    return TileConvolution::writes_strided_rows(geometry_of(spec, product_of<L>(spec)));
  };
  registry.add(L::kType, DeviceKind::cpu, std::move(tile));
}

}  // namespace

void register_cpu_weight_only(Registry& registry) {
  add<WLinear>(registry);
  add<WConv>(registry);
}

}  // namespace pipit::internal
