#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "layers/cpu/elementwise/elementwise_loops.h"
#include "layers/ops/binary.h"
#include "tests/layers/conformance.h"
#include "tests/layers/values.h"

namespace pipit::internal {
namespace {

using test::Conformance;
using test::kInf;
using test::kNaN;
using test::make;
using test::results;
using ::testing::ElementsAre;

constexpr BinaryKind kFastKinds[] = {BinaryKind::add, BinaryKind::sub, BinaryKind::mul,  BinaryKind::div,
                                     BinaryKind::min, BinaryKind::max, BinaryKind::prelu};

// The same bits as the reference: each is one correctly rounded operation.
TEST(Binary, FastKernelMatchesReferenceOnTypicalBroadcasts) {
  test::Random random;
  const std::pair<Shape, Shape> pairs[] = {
      {Shape{2, 5, 3, 7}, Shape{2, 5, 3, 7}},
      {Shape{2, 5, 3, 7}, Shape{}},
      {Shape{2, 5, 3, 7}, Shape{1}},
      {Shape{2, 5, 3, 7}, Shape{5, 1, 1}},     // per channel
      {Shape{2, 5, 3, 7}, Shape{2, 5, 1, 1}},  // squeeze and excitation
      {Shape{2, 5, 3, 7}, Shape{7}},
      {Shape{2, 5, 3, 7}, Shape{1, 1, 3, 1}},
      {Shape{2, 19, 17, 31}, Shape{2, 19, 17, 31}},  // several chunks
      {Shape{1, 67, 21, 13}, Shape{67, 1, 1}},
      {Shape{2, 3, 0, 4}, Shape{3, 1, 1}},
      {Shape{1, 1, 1, 1}, Shape{1, 1, 1, 1}},
      {Shape{9001}, Shape{9001}},
  };
  for (const BinaryKind kind : kFastKinds) {
    for (const auto& [a, b] : pairs) {
      const Conformance c{.inputs = {{random.tensor(a)}, {random.tensor(b)}}, .expected = {"vector"}};
      test::expect_conformance(Binary({kind, {}}), c);
      test::expect_conformance(Binary({kind, Clamp{-0.25F, 0.5F}}), c);
      if (kind == BinaryKind::prelu) continue;
      test::expect_conformance(Binary({kind, {}}), {.inputs = {{random.tensor(b)}, {random.tensor(a)}}});
    }
  }
}

TEST(Binary, FastKernelMatchesReferenceOnRandomBroadcasts) {
  test::Random random;
  for (int round = 0; round < 100; ++round) {
    const auto rank = static_cast<std::size_t>(random.integer(1, kMaxRank));
    std::vector<std::int64_t> a(rank);
    std::vector<std::int64_t> b(rank);
    for (std::size_t d = 0; d < rank; ++d) {
      const std::int64_t extent = random.integer(1, 5);
      const std::int64_t broadcast = random.integer(0, 3);
      a[d] = broadcast == 0 ? 1 : extent;
      b[d] = broadcast == 1 ? 1 : extent;
    }
    b.erase(b.begin(), b.begin() + random.integer(0, static_cast<std::int64_t>(rank)));
    const BinaryKind kind = kFastKinds[random.integer(0, 5)];
    test::expect_conformance(
        Binary({kind, {}}),
        {.inputs = {{random.tensor(Shape(a))}, {random.tensor(Shape(b))}}, .expected = {"vector"}});
  }
}

// Within an ulp of the exact value, and all that C's pow() says of zeros, infinities, NaN and negative bases.
TEST(Binary, FastPowerMatchesReference) {
  test::Random random;
  const Binary layer({BinaryKind::pow, {}});
  const auto conformance = [](const std::shared_ptr<const Tensor>& a,
                              const std::shared_ptr<const Tensor>& b) {
    return Conformance{.inputs = {{a}, {b}}, .expected = {"vector"}, .relative = 0x1p-23};
  };
  test::expect_conformance(
      layer, conformance(random.tensor(Shape{2, 5, 3, 7}, 0, 8), random.tensor(Shape{5, 1, 1}, -9, 9)));
  test::expect_conformance(
      layer, conformance(random.tensor(Shape{3001}, 0, 2), random.tensor(Shape{3001}, -80, 80)));
  const std::vector<float> special = {0.0F,  -0.0F, 1,      -1,          0.5F,   -0.5F, 2,
                                      -2,    3,     -3,     1.5F,        -1.5F,  2.25F, kInf,
                                      -kInf, kNaN,  1e-30F, 16777217.0F, -1e30F, 1e20F};
  std::vector<float> bases;
  std::vector<float> exponents;
  for (const float a : special) {
    for (const float b : special) {
      bases.push_back(a);
      exponents.push_back(b);
    }
  }
  const std::vector<float> expected = results<float>(layer, {make(bases), make(exponents)});
  std::vector<float> got(bases.size());
  binary_span(layer.attributes(), {bases.data(), 1}, {exponents.data(), 1}, got.data(),
              {static_cast<std::int64_t>(got.size())});
  for (std::size_t i = 0; i < got.size(); ++i) {
    const bool close = std::abs(got[i] - expected[i]) <= 0x1p-23F * std::abs(expected[i]) + 0x1p-126F;
    const bool same = std::isnan(expected[i]) ? std::isnan(got[i]) : got[i] == expected[i] || close;
    EXPECT_TRUE(same) << bases[i] << " ^ " << exponents[i] << ": " << got[i] << ", expected " << expected[i];
    if (expected[i] == 0) {
      EXPECT_EQ(std::signbit(got[i]), std::signbit(expected[i])) << bases[i];
    }
  }
}

TEST(Binary, ExtremaPropagateNaN) {
  const std::vector<float> a = {1, kNaN, 1, kNaN, -kInf, 0, 2, 3, kNaN};
  const std::vector<float> b = {kNaN, 1, 2, kNaN, kInf, 5, 2, 1, -kInf};
  for (const BinaryKind kind : {BinaryKind::min, BinaryKind::max}) {
    const std::vector<float> y = results<float>(Binary({kind, {}}), {make(a), make(b)});
    for (const std::size_t i : {0U, 1U, 3U, 8U}) EXPECT_TRUE(std::isnan(y[i])) << i;
    EXPECT_EQ(y[2], kind == BinaryKind::min ? 1 : 2);
    EXPECT_EQ(y[4], kind == BinaryKind::min ? -kInf : kInf);
    test::expect_conformance(Binary({kind, {}}), {.inputs = {{make(a)}, {make(b)}}, .expected = {"vector"}});
  }
}

template <typename T>
std::vector<T> apply(BinaryKind kind, const std::vector<T>& a, const std::vector<T>& b) {
  return results<T>(Binary({kind, {}}), {make(a), make(b)});
}

TEST(Binary, IntegerArithmetic) {
  using I = std::int64_t;
  EXPECT_THAT(apply<I>(BinaryKind::div, {7, -7, 7, -7}, {2, 2, -2, -2}), ElementsAre(3, -3, -3, 3));
  EXPECT_THAT(apply<I>(BinaryKind::mod, {7, -7, 7, -7, 6}, {3, 3, -3, -3, 3}), ElementsAre(1, 2, -2, -1, 0));
  EXPECT_THAT(apply<I>(BinaryKind::fmod, {7, -7, 7, -7}, {3, 3, -3, -3}), ElementsAre(1, -1, 1, -1));
  EXPECT_THAT(apply<I>(BinaryKind::pow, {2, -2, 3, 1, -1, 5}, {10, 3, 0, -4, -3, -1}),
              ElementsAre(1024, -8, 1, 1, -1, 0));
  EXPECT_THAT(apply<I>(BinaryKind::add, {INT64_MAX}, {1}), ElementsAre(INT64_MIN)) << "wraps";
  EXPECT_THAT(apply<I>(BinaryKind::div, {INT64_MIN}, {-1}), ElementsAre(INT64_MIN)) << "wraps";
  EXPECT_THAT(apply<I>(BinaryKind::mod, {INT64_MIN}, {-1}), ElementsAre(0));
  EXPECT_THAT(apply<std::int8_t>(BinaryKind::mul, {100}, {2}), ElementsAre(-56)) << "wraps";
  EXPECT_THAT(apply<std::uint8_t>(BinaryKind::sub, {1}, {2}), ElementsAre(255)) << "wraps";
  EXPECT_THAT(apply<std::int32_t>(BinaryKind::prelu, {-3, 3}, {2, 2}), ElementsAre(-6, 3));
  for (const BinaryKind kind : {BinaryKind::div, BinaryKind::mod, BinaryKind::fmod}) {
    EXPECT_THROW(apply<I>(kind, {1}, {0}), Error);
    EXPECT_THROW(apply<std::uint8_t>(kind, {1}, {0}), Error);
  }
  EXPECT_THROW(apply<I>(BinaryKind::pow, {0}, {-1}), Error);
}

TEST(Binary, FloatRemainders) {
  EXPECT_THAT(apply<float>(BinaryKind::fmod, {5.5F, -5.5F}, {2, 2}), ElementsAre(1.5F, -1.5F));
  EXPECT_THAT(apply<double>(BinaryKind::mod, {5.5, -5.5, 5.5}, {2, 2, -2}), ElementsAre(1.5, 0.5, -0.5));
}

TEST(Binary, PowerOfMixedTypes) {
  const Binary pow({BinaryKind::pow, {}});
  EXPECT_THAT(results<float>(pow, {make<float>({2, 9}), make<std::int64_t>({3, 2})}), ElementsAre(8, 81));
  EXPECT_THAT(results<std::int32_t>(pow, {make<std::int32_t>({2, 9}), make<float>({3, 0.5F})}),
              ElementsAre(8, 3));
  EXPECT_THAT(results<std::int8_t>(pow, {make<std::int8_t>({10}), make<float>({3})}), ElementsAre(127))
      << "saturates";
  EXPECT_THAT(results<float>(Binary({BinaryKind::pow, Clamp{0, 10}}), {make<float>({4}), make<float>({2})}),
              ElementsAre(10));
}

TEST(Binary, ComparisonsAndLogic) {
  const auto compare = [](BinaryKind kind) {
    return results<bool>(Binary({kind, {}}), {make<float>({1, 2, kNaN}), make<float>({2, 2, kNaN})});
  };
  EXPECT_THAT(compare(BinaryKind::equal), ElementsAre(false, true, false));
  EXPECT_THAT(compare(BinaryKind::less), ElementsAre(true, false, false));
  EXPECT_THAT(compare(BinaryKind::less_equal), ElementsAre(true, true, false));
  EXPECT_THAT(compare(BinaryKind::greater), ElementsAre(false, false, false));
  EXPECT_THAT(compare(BinaryKind::greater_equal), ElementsAre(false, true, false));
  // 2^53 + 1 is not a double: integers must not be compared as floating point.
  EXPECT_THAT(results<bool>(Binary({BinaryKind::equal, {}}),
                            {make<std::int64_t>({9007199254740993}), make<std::int64_t>({9007199254740992})}),
              ElementsAre(false));
  const std::vector<bool> p = {true, true, false, false};
  const std::vector<bool> q = {true, false, true, false};
  EXPECT_THAT(apply<bool>(BinaryKind::logical_and, p, q), ElementsAre(true, false, false, false));
  EXPECT_THAT(apply<bool>(BinaryKind::logical_or, p, q), ElementsAre(true, true, true, false));
  EXPECT_THAT(apply<bool>(BinaryKind::logical_xor, p, q), ElementsAre(false, true, true, false));
  EXPECT_THAT(apply<bool>(BinaryKind::equal, p, q), ElementsAre(true, false, false, true));
}

// Quotients of all sizes, signs and zeros.
TEST(Binary, RemaindersMatchTheReference) {
  test::Random random;
  std::vector<float> a, b;
  for (int i = 0; i < 3000; ++i) {
    a.push_back(
        static_cast<float>(std::ldexp(random.real(-1, 1), static_cast<int>(random.integer(-20, 30)))));
    b.push_back(static_cast<float>(
        std::ldexp(random.real(-1, 1), static_cast<int>(random.integer(-8, i < 1000 ? 30 : 0)))));
    if (i % 7 == 0) a.back() = b.back() * static_cast<float>(random.integer(-1000, 1000));
  }
  for (const float v : {0.0F, -0.0F, kInf, -kInf, kNaN, 3.0F, -3.0F}) {
    for (const float w : {kInf, -kInf, 0.0F, 2.0F, -2.0F, kNaN}) {
      a.push_back(v);
      b.push_back(w);
    }
  }
  const auto expect = [&](const std::vector<float>& u, const std::vector<float>& v) {
    for (const BinaryKind kind : {BinaryKind::mod, BinaryKind::fmod}) {
      test::expect_conformance(Binary({kind, {}}), {.inputs = {{make(u)}, {make(v)}}, .expected = {"typed"}});
    }
  };
  expect(a, b);
  for (const float divisor : {0.37F, -3.0F, 1e-3F})
    expect(std::vector<float>(a.begin(), a.begin() + 2000), {divisor});
}

// Everything that "vector" leaves: other types, comparisons, remainders, logic.
TEST(Binary, TypedKernelMatchesReference) {
  test::Random random;
  const std::pair<Shape, Shape> pairs[] = {{Shape{2, 5, 3, 7}, Shape{2, 5, 3, 7}},
                                           {Shape{2, 5, 3, 7}, Shape{}},
                                           {Shape{2, 5, 3, 7}, Shape{5, 1, 1}},
                                           {Shape{1, 1, 1, 7}, Shape{2, 5, 3, 7}},
                                           {Shape{9001}, Shape{9001}},
                                           {Shape{0, 3}, Shape{3}}};
  for (int k = 0; k <= static_cast<int>(BinaryKind::logical_xor); ++k) {
    const auto kind = static_cast<BinaryKind>(k);
    const bool logic = k >= static_cast<int>(BinaryKind::logical_and);
    const bool remainder = kind == BinaryKind::mod || kind == BinaryKind::fmod;
    for (const DType type :
         {DType::f32, DType::f64, DType::i8, DType::u8, DType::i32, DType::i64, DType::boolean}) {
      const bool floating = type == DType::f32 || type == DType::f64;
      const bool boolean = type == DType::boolean;
      if (logic ? !boolean : (boolean || (floating && !remainder)) && !is_comparison(kind)) continue;
      if (boolean && is_comparison(kind) && kind != BinaryKind::equal) continue;
      for (const auto& [a, b] : pairs) {
        if (kind == BinaryKind::prelu && a.elements() < b.elements())
          continue;  // the slope is broadcast, not x
        // No zero divides, no exponent is negative.
        test::expect_conformance(Binary({kind, {}}),
                                 {.inputs = {{random.tensor(a, 0, 9, type)}, {random.tensor(b, 1, 9, type)}},
                                  .expected = {"typed"}});
      }
    }
  }
}

// Pieces of 2048 elements, in 16 bits: operands that are made f32 once for several rows, once for a row, or whole.
TEST(Binary, ShortRowsAndOperandsThatServeManyRows) {
  test::Random random;
  const std::pair<Shape, Shape> pairs[] = {
      {Shape{2, 24, 9, 7}, Shape{2, 24, 1, 1}},    // gates of an image
      {Shape{70, 32, 2, 1}, Shape{70, 32, 1, 1}},  // more gates than a piece holds
      {Shape{1, 3, 50, 44}, Shape{1, 1, 50, 44}},  // one value for each pixel, more than a piece holds
  };
  for (const auto& [x, y] : pairs) {
    for (const BinaryKind kind : {BinaryKind::mul, BinaryKind::sub}) {
      const test::Operand a{random.tensor(x, -2, 2)}, b{random.tensor(y, -2, 2)};
      test::expect_conformance(Binary({kind, {}}), {.inputs = {a, b}, .expected = {"vector"}});
      test::expect_conformance(Binary({kind, Clamp::relu()}), {.inputs = {b, a}, .expected = {"vector"}});
    }
  }
}

TEST(Binary, RefusesWhatDoesNotFit) {
  const auto infer = [](BinaryKind kind, TensorDesc a, TensorDesc b, Clamp clamp = {}) {
    return test::infer(Binary({kind, clamp}), {a, b});
  };
  const TensorDesc f{Shape{2, 3}};
  const TensorDesc i{Shape{2, 3}, DType::i32};
  const TensorDesc bits{Shape{2, 3}, DType::boolean};
  EXPECT_THROW(infer(BinaryKind::add, f, {Shape{2}}), Error);
  EXPECT_THROW(infer(BinaryKind::add, f, i), Error);
  EXPECT_THROW(infer(BinaryKind::add, bits, bits), Error);
  EXPECT_THROW(infer(BinaryKind::pow, f, bits), Error);
  EXPECT_THROW(infer(BinaryKind::logical_and, i, i), Error);
  EXPECT_THROW(infer(BinaryKind::prelu, {Shape{3}}, f), Error);
  EXPECT_THROW(infer(BinaryKind::add, i, i, Clamp::relu()), Error);
  EXPECT_THROW(infer(BinaryKind::less, f, f, Clamp::relu()), Error);
  EXPECT_THROW(test::infer(Binary(BinaryAttributes{}), {f}), Error);
  EXPECT_EQ(infer(BinaryKind::less, f, f)[0].dtype, DType::boolean);
}

TEST(Where, ChoosesWithBroadcasting) {
  const test::TensorPtr condition = make<bool>(Shape{2, 1}, {true, false});
  EXPECT_THAT(
      results<std::int64_t>(Where(), {condition, make<std::int64_t>({1, 2, 3}), make<std::int64_t>({9})}),
      ElementsAre(1, 2, 3, 9, 9, 9));
  test::Random random;
  for (const DType type : {DType::f32, DType::f64, DType::u8, DType::boolean}) {
    test::expect_conformance(Where(), {.inputs = {{random.tensor(Shape{2, 1, 3, 5}, -1, 1, DType::boolean)},
                                                  {random.tensor(Shape{4, 3, 1}, 0, 2, type)},
                                                  {random.tensor(Shape{2, 4, 1, 5}, 0, 2, type)}},
                                       .expected = {"typed"}});
    // Every kind of step along a row.
    for (const Shape& a : {Shape{3, 700}, Shape{3, 1}}) {
      for (const Shape& b : {Shape{3, 700}, Shape{1, 1}, Shape{700}}) {
        for (const Shape& c : {Shape{3, 700}, Shape{3, 1}}) {
          test::expect_conformance(Where(), {.inputs = {{random.tensor(c, -1, 1, DType::boolean)},
                                                        {random.tensor(a, 0, 2, type)},
                                                        {random.tensor(b, 0, 2, type)}},
                                             .expected = {"typed"}});
        }
      }
    }
  }
}

TEST(Where, RefusesWhatDoesNotFit) {
  const TensorDesc bits{Shape{2}, DType::boolean};
  EXPECT_THROW(test::infer(Where(), {{Shape{2}}, {Shape{2}}, {Shape{2}}}), Error);
  EXPECT_THROW(test::infer(Where(), {bits, {Shape{2}}, {Shape{2}, DType::i64}}), Error);
  EXPECT_THROW(test::infer(Where(), {bits, {Shape{3}}, {Shape{1}}}), Error);
}

}  // namespace
}  // namespace pipit::internal
