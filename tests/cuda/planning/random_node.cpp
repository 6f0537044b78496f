#include "tests/cuda/planning/random_node.h"

#include <fmt/format.h>

#include <algorithm>

#include "layers/ops/dynamic_int8.h"
#include "layers/ops/pool.h"
#include "layers/ops/quantize.h"
#include "layers/ops/qunary.h"
#include "layers/ops/unary.h"
#include "layers/ops/weight_only.h"

namespace pipit::internal::test {

namespace {

constexpr std::int64_t kTiny[] = {1, 1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 28, 31, 32, 33, 56, 57, 112};
constexpr std::int64_t kHuge[] = {0,
                                  0,
                                  224,
                                  1000,
                                  4097,
                                  32769,
                                  65536,
                                  70001,
                                  1 << 20,
                                  1 << 24,
                                  (1 << 30) + 1,
                                  2147483647,
                                  std::int64_t{1} << 33,
                                  std::int64_t{1} << 40};
constexpr std::int64_t kChannels[] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  12,  15,  16,  17,  24,
                                      31, 32, 33, 40, 48, 64, 65, 72, 96, 128, 160, 192, 256, 512};
constexpr std::int64_t kKernels[] = {1, 1, 1, 1, 2, 3, 3, 3, 3, 4, 5, 7, 7, 9, 13, 31};
constexpr std::int64_t kHugeKernels[] = {63, 129, 1024, 4097, 70000, 1 << 20, 2147483647};
constexpr std::int64_t kStrides[] = {1, 1, 1, 1, 1, 2, 2, 2, 3, 4, 7, 8, 9};
constexpr std::int64_t kPads[] = {0, 0, 0, 1, 1, 1, 2, 3, 5, 15, 64};
constexpr std::int64_t kHugeSteps[] = {17, 100, 1025, 4096, 70000, 1 << 20, (1 << 30) + 1, 2147483647};
constexpr std::int64_t kMaxWeights = 1 << 16;

template <typename T>
std::shared_ptr<const Tensor> filled(Draw& draw, const Shape& shape, T low, T high) {
  Tensor tensor(TensorDesc{shape, DTypeOf<T>::value});
  const int kind = draw.below(8);  // all zeros, some blocks of zeros, or dense
  std::size_t i = 0;
  const auto span = tensor.values<T>();
  for (T& value : span) {
    const bool zero = kind == 0 || (kind == 1 && i / 64 % 4 != 0) || (kind == 2 && i > span.size() / 3);
    value = zero ? T{0} : static_cast<T>(low + static_cast<T>(draw.below(256)) * (high - low) / T(255));
    ++i;
  }
  return std::make_shared<const Tensor>(std::move(tensor));
}

template <>
std::shared_ptr<const Tensor> filled<std::int8_t>(Draw& draw, const Shape& shape, std::int8_t, std::int8_t) {
  const auto floats = filled<float>(draw, shape, -127.0F, 127.0F);
  Tensor tensor(TensorDesc{shape, DType::i8});
  std::transform(floats->values<float>().begin(), floats->values<float>().end(),
                 tensor.values<std::int8_t>().begin(), [](float v) { return static_cast<std::int8_t>(v); });
  return std::make_shared<const Tensor>(std::move(tensor));
}

Window random_window(Draw& draw, bool absurd) {
  Window w;
  w.rank = 1 + draw.below(kMaxSpatial);
  if (draw.one_in(2)) w.rank = 2;
  const bool square = draw.one_in(2);
  for (std::size_t i = 0; i < static_cast<std::size_t>(w.rank); ++i) {
    w.kernel[i] = absurd && draw.one_in(6) ? draw.of(kHugeKernels) : draw.of(kKernels);
    w.stride[i] = absurd && draw.one_in(5) ? draw.of(kHugeSteps) : draw.of(kStrides);
    w.dilation[i] = absurd && draw.one_in(5) ? draw.of(kHugeSteps) : draw.one_in(4) ? draw.of(kStrides) : 1;
    w.pad_begin[i] = absurd && draw.one_in(5) ? draw.of(kHugeSteps) : draw.of(kPads);
    w.pad_end[i] = absurd && draw.one_in(5) ? draw.of(kHugeSteps) : draw.of(kPads);
    if (draw.one_in(2)) w.pad_begin[i] = w.pad_end[i] = w.kernel[i] / 2;
    if (square && i > 0) {
      w.kernel[i] = w.kernel[0], w.stride[i] = w.stride[0], w.dilation[i] = w.dilation[0];
      w.pad_begin[i] = w.pad_begin[0], w.pad_end[i] = w.pad_end[0];
    }
  }
  return w;
}

Layout random_layout(Draw& draw, const Shape& shape) {
  return shape.rank() >= 3 && !draw.one_in(6) ? Layout::channels_last : Layout::row_major;
}

Quantization random_i8(Draw& draw) {
  Quantization q{0.05F, 0, DType::i8};
  if (draw.one_in(12)) q = {0.05F, 128, DType::u8};
  if (draw.one_in(12)) q.zero_point = 3;
  return q;
}

QConvAttributes quantized(Draw& draw, const ConvAttributes& conv, std::int64_t outputs, bool residual) {
  QConvAttributes a;
  a.conv = conv;
  a.x = random_i8(draw);
  a.y = draw.one_in(8) ? Quantization{} : random_i8(draw);
  if (residual) a.residual = random_i8(draw);
  a.weight_scales.assign(draw.one_in(2) ? 1 : static_cast<std::size_t>(outputs), 0.002F);
  return a;
}

}  // namespace

std::string RandomNode::str() const {
  std::string text = fmt::format("{} {} in {}:", layer->type(), layer->summary(), precision_name(precision));
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    text += inputs[i] == nullptr ? " -"
                                 : fmt::format(" {}{} {}", constants[i] ? "constant " : "", inputs[i]->str(),
                                               layout_name(inputs[i]->layout));
  }
  return text + fmt::format(" -> {} {}", outputs[0].str(), layout_name(outputs[0].layout));
}

std::optional<RandomNode> random_conv(Draw& draw) {
  const bool absurd = draw.one_in(3);
  ConvAttributes conv;
  conv.window = random_window(draw, absurd);
  std::vector<std::int64_t> x{draw.one_in(4) ? 128 : 1 + draw.below(4)};
  if (absurd && draw.one_in(4)) x[0] = draw.of(kHuge);
  x.push_back(absurd && draw.one_in(8) ? 40000 + draw.below(3) : draw.of(kChannels));
  for (int i = 0; i < conv.window.rank; ++i)
    x.push_back(absurd && draw.one_in(3) ? draw.of(kHuge) : draw.of(kTiny));
  std::int64_t outputs = draw.of(kChannels);
  if (draw.one_in(4)) {
    conv.groups = draw.one_in(2) ? x[1] : std::int64_t{2} << draw.below(4);
    if (x[1] % conv.groups != 0) x[1] *= conv.groups;
    outputs = conv.groups == x[1] && draw.one_in(2) ? x[1] : outputs * conv.groups;
  }
  if (draw.one_in(3)) conv.activation = draw.one_in(2) ? Clamp::relu() : Clamp{0, 6};
  std::vector<std::int64_t> w{outputs, x[1] / conv.groups};
  w.insert(w.end(), conv.window.kernel.begin(), conv.window.kernel.begin() + conv.window.rank);

  RandomNode node;
  const bool int8 = draw.one_in(3);
  try {
    const Shape x_shape(x), w_shape(w);
    node.descs = {TensorDesc{x_shape}, TensorDesc{w_shape}};
    for (const TensorDesc& desc : node.descs) node.inputs.push_back(&desc);
    const std::vector<TensorDesc> y = Conv(conv).infer(node.inputs);
    (void)y[0].bytes(), (void)node.descs[0].bytes();
    const bool has_bias = !draw.one_in(3), has_residual = draw.one_in(5);
    node.outputs = y;
    node.descs.resize(4);
    node.descs[2] = TensorDesc{Shape{outputs}};
    node.descs[3] = y[0];
    node.layer = std::make_shared<Conv>(conv);
    node.constants.resize(2 + (has_bias || has_residual ? 1 : 0) + (has_residual ? 1 : 0));
    node.inputs.assign(node.constants.size(), nullptr);
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      if (i != 2 || has_bias) node.inputs[i] = &node.descs[i];
    }
    const bool known = w_shape.elements() <= kMaxWeights && !draw.one_in(16);
    if (int8) {
      const QConvAttributes a = quantized(draw, conv, outputs, has_residual);
      node.layer = std::make_shared<QConv>(a);
      node.descs[0].dtype = draw.one_in(4) ? DType::f32 : a.x.dtype;
      node.descs[1].dtype = DType::i8, node.descs[2].dtype = DType::i32;
      node.descs[3].dtype = a.residual.dtype;
      const DType narrow = draw.one_in(2) ? DType::bf16 : DType::f16;
      node.outputs[0].dtype = a.y.dtype == DType::f32 && draw.one_in(2) ? narrow : a.y.dtype;
      node.precision = node.outputs[0].dtype == DType::f16    ? Precision::fp16
                       : node.outputs[0].dtype == DType::bf16 ? Precision::bf16
                                                              : Precision::fp32;
      if (known) node.constants[1] = filled<std::int8_t>(draw, w_shape, -127, 127);
      if (has_bias && !draw.one_in(16)) {
        Tensor bias(TensorDesc{Shape{outputs}, DType::i32});
        for (std::int32_t& b : bias.values<std::int32_t>()) b = draw.below(4000) - 2000;
        node.constants[2] = std::make_shared<const Tensor>(std::move(bias));
      }
    } else {
      const bool half = !draw.one_in(3);
      if (half) node.precision = draw.one_in(2) ? Precision::bf16 : Precision::fp16;
      if (half) {
        const DType narrow = stored_type(node.precision);
        node.descs[0].dtype = draw.one_in(5) ? DType::f32 : narrow;
        node.descs[3].dtype = node.outputs[0].dtype = draw.one_in(12) ? DType::f32 : narrow;
      }
      if (known) node.constants[1] = filled<float>(draw, w_shape, -1, 1);
      if (has_bias && !draw.one_in(16)) node.constants[2] = filled<float>(draw, Shape{outputs}, -1, 1);
    }
  } catch (const Error&) {
    return std::nullopt;
  }
  node.descs[0].layout = random_layout(draw, node.descs[0].shape);
  node.outputs[0].layout = random_layout(draw, node.outputs[0].shape);
  node.descs[3].layout = draw.one_in(8) ? Layout::row_major : node.outputs[0].layout;
  return node;
}

std::optional<RandomNode> random_dynamic_conv(Draw& draw) {
  std::optional<RandomNode> node = random_conv(draw);
  const auto* conv = node ? dynamic_cast<const Conv*>(node->layer.get()) : nullptr;
  if (conv == nullptr) return std::nullopt;
  const std::int64_t samples = node->descs[0].shape[0], outputs = node->descs[1].shape[0];
  DynamicQConvAttributes attributes;
  attributes.conv = conv->attributes();
  attributes.weight_scales.assign(draw.one_in(2) ? 1 : static_cast<std::size_t>(outputs), 0.002F);
  if (draw.one_in(8)) attributes.weight_zero_points = {3};
  const bool has_bias = draw.one_in(2), has_residual = draw.one_in(3);
  std::vector<TensorDesc>& descs = node->descs;
  descs.resize(5);
  descs[0].dtype = draw.one_in(8) ? DType::u8 : DType::i8;
  descs[1].dtype = DType::i8;
  descs[2] = TensorDesc{Shape{outputs}};
  descs[4] = TensorDesc{draw.one_in(8) ? Shape() : Shape{draw.one_in(2) ? samples : std::int64_t{1}}};
  node->outputs[0].dtype = draw.one_in(6) ? DType::f32 : DType::f16;
  descs[3].dtype = draw.one_in(12) ? DType::f32 : node->outputs[0].dtype;
  node->precision = Precision::fp16;
  node->inputs.assign(5, nullptr);
  for (std::size_t i = 0; i < node->inputs.size(); ++i) {
    if ((i != 2 || has_bias) && (i != 3 || has_residual)) node->inputs[i] = &descs[i];
  }
  const bool known = node->constants[1] != nullptr;
  node->constants.assign(5, nullptr);
  if (known) node->constants[1] = filled<std::int8_t>(draw, descs[1].shape, -127, 127);
  if (has_bias && !draw.one_in(16)) node->constants[2] = filled<float>(draw, Shape{outputs}, -1, 1);
  try {
    node->layer = std::make_shared<DynamicQConv>(std::move(attributes));
  } catch (const Error&) {
    return std::nullopt;
  }
  return node;
}

std::optional<RandomNode> random_stored_product(Draw& draw) {
  constexpr std::int64_t kGroups[] = {0, 8, 32, 32, 40, 64, 128, 128, 256};
  constexpr std::int64_t kDepths[] = {1, 3, 8, 31, 32, 33, 64, 65, 96, 127, 128, 129, 200, 576, 1000, 4096};
  const bool absurd = draw.one_in(4), convolves = draw.one_in(2), absurd_window = absurd && draw.one_in(3);
  WeightFormat format{draw.one_in(2) ? 8 : 4, draw.of(kGroups)};
  if (format.bits == 8 && !draw.one_in(4)) format.group_size = 0;
  ConvAttributes conv;
  conv.window = random_window(draw, absurd_window);
  if (!draw.one_in(8)) conv.window.kernel = {1, 1, 1};
  for (std::size_t i = 0; !draw.one_in(3) && i < kMaxSpatial; ++i)
    conv.window.stride[i] = 1, conv.window.pad_begin[i] = conv.window.pad_end[i] = 0;
  const Clamp clamp = draw.one_in(2) ? Clamp::relu() : Clamp{};
  conv.activation = clamp;
  const std::int64_t depth = absurd && draw.one_in(4) ? draw.of(kHuge) : draw.of(kDepths),
                     outputs = absurd && draw.one_in(4) ? draw.of(kHuge) : draw.of(kChannels);
  std::vector<std::int64_t> x{absurd && draw.one_in(4) ? draw.of(kHuge) : 1 + draw.below(40)};
  if (convolves) x.push_back(depth);
  for (int i = 0; i < (convolves ? conv.window.rank : draw.below(3)); ++i)
    x.push_back(absurd && draw.one_in(4) ? draw.of(kHuge) : draw.of(kTiny));
  if (!convolves) x.push_back(depth);
  RandomNode node;
  node.precision = Precision::fp16;
  const bool has_bias = draw.one_in(2), has_residual = convolves && draw.one_in(3);
  try {
    if (convolves) {
      node.layer = std::make_shared<WConv>(WConvAttributes{format, conv});
    } else {
      node.layer = std::make_shared<WLinear>(WLinearAttributes{format, clamp});
    }
    const Shape integers{outputs, format.row_bytes(depth)};
    node.descs = {TensorDesc{Shape(x)}, TensorDesc{integers, format.bits == 8 ? DType::i8 : DType::u8},
                  TensorDesc{Shape{outputs, format.groups(depth)}}, TensorDesc{Shape{outputs}}};
    for (const TensorDesc& desc : node.descs) node.inputs.push_back(&desc);
    node.outputs = node.layer->infer(node.inputs);
    (void)node.outputs[0].bytes(), (void)node.descs[0].bytes();
    node.descs.push_back(node.outputs[0]);
    node.inputs.assign(has_residual ? 5 : 4, nullptr);
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      if (i != 3 || has_bias) node.inputs[i] = &node.descs[i];
    }
    node.constants.resize(node.inputs.size());
    if (integers.elements() <= kMaxWeights && !draw.one_in(16)) {
      Tensor bytes(node.descs[1]);
      for (std::size_t i = 0; i < bytes.desc().bytes(); ++i)
        bytes.view().data[i] = static_cast<std::byte>(draw.below(256));
      node.constants[1] = std::make_shared<const Tensor>(std::move(bytes));
      node.constants[2] = filled<float>(draw, node.descs[2].shape, -1, 1);
      if (has_bias && !draw.one_in(16)) node.constants[3] = filled<float>(draw, Shape{outputs}, -1, 1);
    }
  } catch (const Error&) {
    return std::nullopt;
  }
  node.descs[0].dtype = draw.one_in(8) ? DType::f32 : DType::f16;
  node.outputs[0].dtype = draw.one_in(4) ? DType::f32 : DType::f16;
  node.descs[4].dtype = draw.one_in(8) ? DType::f32 : DType::f16;
  if (convolves) {
    node.descs[0].layout = random_layout(draw, node.descs[0].shape);
    node.outputs[0].layout = random_layout(draw, node.outputs[0].shape);
    node.descs[4].layout = draw.one_in(8) ? Layout::row_major : node.outputs[0].layout;
  }
  return node;
}

std::optional<RandomNode> random_follower(Draw& draw, const RandomNode& node) {
  RandomNode next;
  next.precision = node.precision;
  next.descs = node.outputs;
  next.inputs = {&next.descs[0]};
  next.constants.resize(1);
  const DType stored = next.descs[0].dtype;
  const bool integers = stored == DType::i8 || stored == DType::u8;
  if (integers) {
    const Quantization q{0.05F, stored == DType::u8 ? 128 : 0, stored};
    next.layer = std::make_shared<QUnary>(QUnaryAttributes{{UnaryKind::silu}, q, q});
  } else if (draw.one_in(2)) {
    constexpr UnaryKind kKinds[] = {UnaryKind::silu, UnaryKind::hard_swish, UnaryKind::sigmoid,
                                    UnaryKind::relu, UnaryKind::gelu,       UnaryKind::leaky_relu,
                                    UnaryKind::mish};
    next.layer =
        std::make_shared<Unary>(UnaryAttributes{kKinds[static_cast<std::size_t>(draw.below(7))], 0.1});
  } else if (draw.one_in(4)) {
    next.layer = std::make_shared<Quantize>(Quantization{0.05F, 0, DType::i8});
  } else {
    PoolAttributes pool;
    pool.kind = draw.one_in(4) ? PoolKind::max : PoolKind::average;
    pool.global = true;
    next.layer = std::make_shared<Pool>(pool);
  }
  try {
    // Layers are defined on f32; 16 bits are how a plan stores it.
    TensorDesc defined = next.descs[0];
    if (is_stored_float(stored)) defined.dtype = DType::f32;
    const TensorDesc* const as_defined = &defined;
    next.outputs = next.layer->infer({&as_defined, 1});
    if (is_stored_float(stored) && next.outputs[0].dtype == DType::f32 && !draw.one_in(4))
      next.outputs[0].dtype = stored;
    next.outputs[0].layout = next.descs[0].layout;
  } catch (const Error&) {
    return std::nullopt;
  }
  return next;
}

}  // namespace pipit::internal::test
