// Every attribute of every layer is part of the layer's identity.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "layers/arrange.h"
#include "layers/binary.h"
#include "layers/cast.h"
#include "layers/conv_transpose.h"
#include "layers/dynamic.h"
#include "layers/gemm.h"
#include "layers/matmul.h"
#include "layers/normalization.h"
#include "layers/pool.h"
#include "layers/qconv.h"
#include "layers/qelementwise.h"
#include "layers/quantize.h"
#include "layers/quantize_axis.h"
#include "layers/qunary.h"
#include "layers/rearrange.h"
#include "layers/reduce.h"
#include "layers/registry.h"
#include "layers/resize.h"
#include "layers/softmax.h"
#include "layers/weight_only.h"

namespace pipit {
namespace {

constexpr Quantisation kBytes{0.5F, 3, DType::u8};

// Attributes that layer L takes, with something in every list.
template <typename L>
auto attributes() {
  return std::remove_cvref_t<decltype(std::declval<L>().attributes())>{};
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
  return AxisQuantisation{DType::i8, {0.5F, 0.25F}, {0, 1}, 1};
}
template <>
auto attributes<DequantizeAxis>() {
  return attributes<QuantizeAxis>();
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

// Other values for one number, of which layers refuse some.
template <typename T>
std::vector<T> others(const T& value) {
  std::vector<T> list;
  if constexpr (std::is_same_v<T, bool>) {
    list = {!value};
  } else if constexpr (std::is_enum_v<T>) {
    for (int i = 0; i < 8; ++i) list.push_back(static_cast<T>(i));
  } else {
    for (const int step : {1, -1, 2, 4})
      list.push_back(static_cast<T>(std::isfinite(double(value)) ? value + T(step) : T(step)));
  }
  std::erase(list, value);
  return list;
}

// Calls `change(try_value)` for every number in `object`, in its place.
template <typename T, typename Body>
void for_each_number(T& object, Body&& body) {
  if constexpr (std::is_same_v<T, Shape>) {
    const Shape old = object;
    body(
        "extent", [&] { object = old.with(0, old[0] + 1); }, [&] { object = old; });
    body(
        "rank",
        [&] {
          object = Shape{old[0], old[1], 1};
        },
        [&] { object = old; });
  } else if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
    const T old = object;
    for (const T other : others(old)) {
      if (body(
              "number", [&] { object = other; }, [&] { object = old; }))
        return;
    }
    ADD_FAILURE() << "no other value is accepted";
  } else if constexpr (AttributeList<T>) {
    for (auto& element : object) for_each_number(element, body);
  } else {
    for_each_field(object, [&](auto& field) { for_each_number(field, body); });
  }
}

template <typename L>
void expect_sensitive() {
  SCOPED_TRACE(std::string(L::kType));
  if constexpr (std::is_default_constructible_v<L>) {
    EXPECT_EQ(L().identity(), L::kType);
  } else {
    auto a = attributes<L>();
    const std::string identity = L(a).identity();
    EXPECT_EQ(L(a).identity(), identity);
    int number = 0;
    for_each_number(
        a, [&](const char* what, const std::function<void()>& change, const std::function<void()>& undo) {
          change();
          bool accepted = true;
          try {
            EXPECT_NE(L(a).identity(), identity) << what << " " << number;
          } catch (const Error&) {
            accepted = false;
          }
          undo();
          number += accepted ? 1 : 0;
          return accepted;
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

using All =
    Layers<ArgMax, BatchNorm, Binary, Cast, Concat, Conv, ConvTranspose, DepthToSpace, Dequantize,
           DequantizeAxis, DynamicQConv, DynamicQuantize, Expand, Gather, Gemm, InstanceNorm, LayerNorm, Lrn,
           MatMul, Pad, Pool, QAdd, QAveragePool, QConv, QMul, QUnary, Quantize, QuantizeAxis, Reduce,
           Reshape, Resize, Slice, Softmax, Split, Tile, ToLayout, Transpose, Unary, WConv, WLinear, Where>;

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
  EXPECT_NE(Slice({{0, 1}, {2}, {}, {}}).identity(), Slice({{0}, {1, 2}, {}, {}}).identity());
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
}  // namespace pipit
