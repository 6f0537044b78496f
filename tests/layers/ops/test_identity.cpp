// Every attribute of every layer is part of the layer's identity.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "layers/ops/binary.h"
#include "layers/ops/cast.h"
#include "layers/ops/channel_shuffle.h"
#include "layers/ops/conv_transpose.h"
#include "layers/ops/dequantize_blocks.h"
#include "layers/ops/dynamic_int8.h"
#include "layers/ops/gemm.h"
#include "layers/ops/grid_sample.h"
#include "layers/ops/indexing.h"
#include "layers/ops/matmul.h"
#include "layers/ops/normalization.h"
#include "layers/ops/normalize_image.h"
#include "layers/ops/pool.h"
#include "layers/ops/qconv.h"
#include "layers/ops/qelementwise.h"
#include "layers/ops/quantize.h"
#include "layers/ops/quantize_axis.h"
#include "layers/ops/qunary.h"
#include "layers/ops/recurrent.h"
#include "layers/ops/reduce.h"
#include "layers/ops/reshaping.h"
#include "layers/ops/resize.h"
#include "layers/ops/slicing.h"
#include "layers/ops/softmax.h"
#include "layers/ops/weight_only.h"
#include "layers/registry.h"

namespace pipit::internal {
namespace {

constexpr Quantization kBytes{0.5F, 3, DType::u8};

// Attributes that layer L takes, with something in every list.
template <typename L>
auto attributes() {
  return std::remove_cvref_t<decltype(std::declval<L>().attributes())>{};
}
template <>
auto attributes<ChannelShuffle>() {
  return ChannelShuffleAttributes{2, {1, 3}, {4, 0}, {2, 3}};
}
template <>
auto attributes<Split>() {
  return SplitAttributes{0, {1, 2}};
}
template <>
auto attributes<Slice>() {
  return SliceAttributes{{0}, {1}, {0}, {1}};
}
template <>
auto attributes<Recurrent>() {
  return RecurrentAttributes{.kind = RecurrentKind::rnn, .activations = {{UnaryKind::tanh}}};
}
template <>
auto attributes<Pad>() {
  return PadAttributes{.begin = {0, 1}, .end = {1, 0}};
}
template <>
auto attributes<Transpose>() {
  return TransposeAttributes{{1, 0}};
}
template <>
auto attributes<Tile>() {
  return TileAttributes{{2}};
}
template <>
auto attributes<Reduce>() {
  return ReduceAttributes{.axes = {1}};
}
template <>
auto attributes<Reshape>() {
  return ReshapeAttributes{Shape{2, 3}};
}
template <>
auto attributes<Expand>() {
  return ExpandAttributes{Shape{2, 3}};
}
template <>
auto attributes<Quantize>() {
  return kBytes;
}
template <>
auto attributes<Dequantize>() {
  return kBytes;
}
template <>
auto attributes<QuantizeAxis>() {
  return AxisQuantization{DType::i8, {0.5F, 0.25F}, {0, 1}, 1};
}
template <>
auto attributes<DequantizeAxis>() {
  return attributes<QuantizeAxis>();
}
template <>
auto attributes<DequantizeBlocks>() {
  return BlockQuantization{{0.5F, -0.25F}, 1, 8};
}
template <>
auto attributes<QConv>() {
  return QConvAttributes{{}, kBytes, kBytes, kBytes, {0.5F, 0.25F}};
}
template <>
auto attributes<DynamicQConv>() {
  return DynamicQConvAttributes{{}, {0.5F, 0.25F}};
}
template <>
auto attributes<QAdd>() {
  return QAddAttributes{kBytes, kBytes, kBytes, {}};
}
template <>
auto attributes<QMul>() {
  return QMulAttributes{kBytes, kBytes, kBytes, {}};
}
template <>
auto attributes<QUnary>() {
  return QUnaryAttributes{{UnaryKind::sigmoid, 0, 0}, kBytes, kBytes};
}
template <>
auto attributes<QAveragePool>() {
  return QAveragePoolAttributes{{PoolKind::average, {}}, kBytes, kBytes};
}

template <typename Attributes>
std::string text_of(const Attributes& attributes) {
  AttributeText text(Reals::exact);
  text.add(attributes);
  return text.take();
}

template <typename T>
T other(const T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    return !value;
  } else if constexpr (std::is_floating_point_v<T>) {
    return std::isfinite(value) ? value + 1 : 1;
  } else {
    return static_cast<T>(static_cast<int>(value) + 1);
  }
}

// Calls `body` whenever it has changed one number in `object`, which is as it was afterwards.
template <typename T, typename Body>
void change_each(T& object, Body&& body) {
  const T old = object;
  if constexpr (std::is_same_v<T, Shape>) {
    for (const Shape& shape : {old.with(0, old[0] + 1), Shape{old[0], old[1], 1}}) {
      object = shape;
      body();
    }
    object = old;
  } else if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
    object = other(old);
    body();
    object = old;
  } else if constexpr (AttributeList<T>) {
    for (auto& element : object) change_each(element, body);
  } else {
    for_each_field(object, [&](auto& field) { change_each(field, body); });
  }
}

template <typename L>
void expect_sensitive() {
  SCOPED_TRACE(std::string(L::kType));
  if constexpr (std::is_default_constructible_v<L>) {
    EXPECT_EQ(L().identity(), L::kType);
  } else {
    auto a = attributes<L>();
    const std::string text = text_of(a);
    EXPECT_EQ(L(a).identity(), std::string(L::kType) + text);
    int number = 0;
    change_each(a, [&] {
      EXPECT_NE(text_of(a), text) << "number " << number;
      ++number;
    });
    EXPECT_GT(number, 0);
  }
}

template <typename... L>
struct Layers {
  static std::vector<std::string> types() {
    std::vector<std::string> names{std::string(L::kType)...};
    std::sort(names.begin(), names.end());
    return names;
  }
  static void check() { (expect_sensitive<L>(), ...); }
};

using All = Layers<ArgMax, BatchNorm, Binary, Cast, ChannelShuffle, Concat, Conv, ConvTranspose, CumSum,
                   DepthToSpace, Dequantize, DequantizeAxis, DequantizeBlocks, DynamicQConv, DynamicQuantize,
                   Expand, Gather, GatherIndexed, Gemm, GridSample, InstanceNorm, LayerNorm, Lrn, MatMul,
                   NormalizeImage, Pad, Pool, QAdd, QAveragePool, QConv, QMul, QUnary, Quantize, QuantizeAxis,
                   Recurrent, Reduce, Reshape, Resize, ScatterIndexed, Slice, Softmax, Split, Tile, TopK,
                   ToLayout, Transpose, Unary, WConv, WLinear, Where>;

TEST(Identity, KnowsEveryAttributeOfEveryLayer) {
  ASSERT_EQ(All::types(), default_registry().layer_types(DeviceKind::cpu))
      << "a layer is missing in the list above";
  All::check();
}

TEST(Identity, TellsEqualLayersApartFromOthersOnly) {
  ConvAttributes a;
  EXPECT_EQ(Conv(a).identity(), Conv(ConvAttributes{}).identity());
  a.activation = Clamp::relu();
  EXPECT_NE(Conv(a).identity(), Conv(ConvAttributes{}).identity());
  EXPECT_NE(Conv(a).identity(Reals::kind), Conv(ConvAttributes{}).identity(Reals::kind))
      << "a kernel may refuse it";
  // Lists do not run into each other.
  EXPECT_NE(text_of(SliceAttributes{{0, 1}, {2}, {}, {}}), text_of(SliceAttributes{{0}, {1, 2}, {}, {}}));
  EXPECT_NE(Lrn({.alpha = 0.1F}).identity(), Lrn({.alpha = std::nextafter(0.1F, 1.0F)}).identity());
}

TEST(Identity, TimeDoesNotDependOnScales) {
  QConvAttributes a = attributes<QConv>();
  QConvAttributes b = a;
  b.y.scale = 0.125F;
  b.weight_scales = {3, 4};
  EXPECT_EQ(QConv(a).identity(Reals::kind), QConv(b).identity(Reals::kind));
  EXPECT_NE(QConv(a).identity(), QConv(b).identity());
  b.y.zero_point = 4;
  EXPECT_NE(QConv(a).identity(Reals::kind), QConv(b).identity(Reals::kind));
}

}  // namespace
}  // namespace pipit::internal
