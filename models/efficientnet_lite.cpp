#include "models/efficientnet_lite.h"

#include <algorithm>
#include <array>

#include "layers/ops/binary.h"
#include "layers/ops/conv.h"
#include "layers/ops/gemm.h"
#include "layers/ops/normalization.h"
#include "layers/ops/pool.h"
#include "layers/ops/reshaping.h"
#include "layers/ops/unary.h"

namespace pipit::internal {

namespace {

constexpr std::int64_t kClasses = 1000;

struct Variant {
  int side;
  std::int64_t width_tenths, depth_tenths;  // multipliers of the table below
};
constexpr std::array kVariants{Variant{224, 10, 10}, Variant{240, 10, 11}, Variant{260, 11, 12}};

struct Stage {
  std::int64_t blocks, kernel, stride, expansion, channels;
};
// EfficientNet-B0. Lite variants multiply neither stem (32) and head (1280) nor the depth of the first and last stage.
constexpr std::array kStages{Stage{1, 3, 1, 1, 16}, Stage{2, 3, 2, 6, 24},  Stage{2, 5, 2, 6, 40},
                             Stage{3, 3, 2, 6, 80}, Stage{3, 5, 1, 6, 112}, Stage{4, 5, 2, 6, 192},
                             Stage{1, 3, 1, 6, 320}};
constexpr std::int64_t kStem = 32;
constexpr std::int64_t kHead = 1280;

const Variant& variant_at(int variant) {
  if (variant < 0 || variant >= static_cast<int>(kVariants.size()))
    fail("there is no EfficientNet-Lite{}; there are 0 to {}", variant, kVariants.size() - 1);
  return kVariants[static_cast<std::size_t>(variant)];
}

// The nearest multiple of 8 that is at least 9/10 of the product.
std::int64_t scaled_channels(std::int64_t channels, std::int64_t tenths) {
  const std::int64_t product = channels * tenths;  // in tenths of a channel
  const std::int64_t rounded = std::max<std::int64_t>(8, (product + 40) / 80 * 8);
  return rounded * 100 < product * 9 ? rounded + 8 : rounded;
}

class Builder {
 public:
  explicit Builder(const WeightSource& weight) : weight_(weight) {}

  Graph build(const Variant& variant) {
    ValueId x = graph_.add_input("input", TensorDesc{Shape{1, 3, variant.side, variant.side}});
    x = relu6("stem", conv_bn("stem", x, "_conv_stem", "_bn0", kStem, 3, 2));
    int index = 0;
    for (const Stage& stage : kStages) {
      const bool fixed = &stage == &kStages.front() || &stage == &kStages.back();
      const std::int64_t blocks = fixed ? stage.blocks : (stage.blocks * variant.depth_tenths + 9) / 10;
      for (std::int64_t block = 0; block < blocks; ++block)
        x = inverted_residual(x, index++, stage, block == 0 ? stage.stride : 1,
                              scaled_channels(stage.channels, variant.width_tenths));
    }
    x = relu6("head", conv_bn("head", x, "_conv_head", "_bn1", kHead, 1, 1));
    x = graph_.add1("pool", std::make_shared<Pool>(PoolAttributes{.kind = PoolKind::average, .global = true}),
                    {x});
    x = graph_.add1("flatten", std::make_shared<Reshape>(ReshapeAttributes{Shape{1, kHead}}), {x});
    x = graph_.add1("fc", std::make_shared<Gemm>(GemmAttributes{.transpose_b = true}),
                    {x, constant("_fc.weight", {kClasses, kHead}), constant("_fc.bias", {kClasses})},
                    "logits");
    graph_.mark_output(x);
    return graph_.build();
  }

 private:
  std::int64_t channels(ValueId x) { return graph_.value(x).desc.shape[1]; }

  ValueId constant(const std::string& name, const Shape& shape) {
    return graph_.add_constant(name, weight_(name, shape));
  }

  ValueId conv_bn(const std::string& name, ValueId x, const std::string& conv, const std::string& bn,
                  std::int64_t out, std::int64_t kernel, std::int64_t stride, bool depthwise = false) {
    const Shape shape = graph_.value(x).desc.shape;
    const std::int64_t groups = depthwise ? shape[1] : 1;
    Window window;
    for (std::size_t d = 0; d < 2; ++d) {
      window.kernel[d] = kernel;
      window.stride[d] = stride;
    }
    window = resolve_auto_pad(window, AutoPad::same_upper, std::array{shape[2], shape[3]});
    x = graph_.add1(name + ".conv",
                    std::make_shared<Conv>(ConvAttributes{.window = window, .groups = groups}),
                    {x, constant(conv + ".weight", {out, shape[1] / groups, kernel, kernel})});
    return graph_.add1(name + ".bn", std::make_shared<BatchNorm>(BatchNormAttributes{.epsilon = 1e-3F}),
                       {x, constant(bn + ".weight", {out}), constant(bn + ".bias", {out}),
                        constant(bn + ".running_mean", {out}), constant(bn + ".running_var", {out})});
  }

  ValueId relu6(const std::string& name, ValueId x) {
    const UnaryAttributes clip{.kind = UnaryKind::clip, .alpha = 0, .beta = 6};
    return graph_.add1(name + ".relu6", std::make_shared<Unary>(clip), {x});
  }

  ValueId inverted_residual(ValueId x, int index, const Stage& stage, std::int64_t stride, std::int64_t out) {
    const std::string name = "blocks." + std::to_string(index);
    const std::string weights = "_" + name + ".";
    const std::int64_t hidden = channels(x) * stage.expansion;
    ValueId y = x;
    if (stage.expansion != 1) {
      y = conv_bn(name + ".expand", y, weights + "_expand_conv", weights + "_bn0", hidden, 1, 1);
      y = relu6(name + ".expand", y);
    }
    y = conv_bn(name + ".depthwise", y, weights + "_depthwise_conv", weights + "_bn1", hidden, stage.kernel,
                stride, true);
    y = relu6(name + ".depthwise", y);
    y = conv_bn(name + ".project", y, weights + "_project_conv", weights + "_bn2", out, 1, 1);
    if (stride != 1 || channels(x) != out) return y;
    return graph_.add1(name + ".add", std::make_shared<Binary>(BinaryAttributes{.kind = BinaryKind::add}),
                       {y, x});
  }

  const WeightSource& weight_;
  GraphBuilder graph_;
};

}  // namespace

int efficientnet_lite_side(int variant) {
  return variant_at(variant).side;
}

Graph build_efficientnet_lite(int variant, const WeightSource& weight) {
  return Builder(weight).build(variant_at(variant));
}

}  // namespace pipit::internal
