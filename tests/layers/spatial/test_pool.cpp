#include <gmock/gmock.h>

#include <cfloat>
#include <cmath>
#include <limits>

#include "layers/ops/pool.h"
#include "tests/layers/conformance.h"

namespace pipit::internal {
namespace {

using test::Conformance;
using test::expect_conformance;
using test::Operand;
using test::Random;
using testing::ElementsAre;

template <typename T>
Operand pool_operand(const Shape& shape, std::vector<T> values) {
  return {std::make_shared<const Tensor>(Tensor::from<T>(shape, std::span<const T>(values)))};
}

PoolAttributes attributes_1d(PoolKind kind, std::int64_t kernel, std::int64_t stride, std::int64_t begin,
                             std::int64_t end, bool ceil_mode = false) {
  PoolAttributes a;
  a.kind = kind;
  a.window.rank = 1;
  a.window.kernel[0] = kernel;
  a.window.stride[0] = stride;
  a.window.pad_begin[0] = begin;
  a.window.pad_end[0] = end;
  a.window.ceil_mode = ceil_mode;
  return a;
}

std::vector<float> pooled(const PoolAttributes& a, std::vector<float> x) {
  const auto n = static_cast<std::int64_t>(x.size());
  const auto y = test::run_reference(Pool(a), {pool_operand<float>(Shape{1, 1, n}, std::move(x))});
  return {y[0].values<float>().begin(), y[0].values<float>().end()};
}

// The same arithmetic by hand, so that the oracle itself is checked.
TEST(Pool, ReferenceOfHandWorkedExamples) {
  const std::vector<float> x{1, -2, 3, 4, -5};
  EXPECT_THAT(pooled(attributes_1d(PoolKind::max, 3, 2, 1, 1), x), ElementsAre(1, 4, 4));
  EXPECT_THAT(pooled(attributes_1d(PoolKind::max, 2, 2, 0, 0, true), x), ElementsAre(1, 4, -5));
  EXPECT_THAT(pooled(attributes_1d(PoolKind::max, 2, 2, 1, 0), {-1, -2, -3}), ElementsAre(-1, -2));
  EXPECT_THAT(pooled(attributes_1d(PoolKind::average, 2, 2, 1, 0), x), ElementsAre(1, 0.5F, -0.5F));
  PoolAttributes included = attributes_1d(PoolKind::average, 2, 2, 1, 0);
  included.count_include_pad = true;
  EXPECT_THAT(pooled(included, x), ElementsAre(0.5F, 0.5F, -0.5F));
  PoolAttributes lp = attributes_1d(PoolKind::lp, 2, 3, 0, 0);
  EXPECT_THAT(pooled(lp, {3, -4, 9, 5, 12}), ElementsAre(5, 13));
  lp.p = 1;
  EXPECT_THAT(pooled(lp, {3, -4, 9, 5, 12}), ElementsAre(7, 17));
}

// 4 inputs, kernel 3, stride 2, one pad on both sides: ceil_mode adds no window (floor: 2 windows and half a
// stride left). With 5 inputs and kernel 4 it adds one that reaches beyond the padding: only what lies in the
// padded input counts.
TEST(Pool, CeilModeNeverCountsWhatItAdds) {
  PoolAttributes a = attributes_1d(PoolKind::average, 4, 2, 1, 0, true);
  a.count_include_pad = true;
  // Padded input 0 1 2 3 4 5; windows [0 1 2 3] / 4 and [2 3 4 5] / 4.
  EXPECT_THAT(pooled(a, {1, 2, 3, 4, 5}), ElementsAre(1.5F, 3.5F));
  // Padded input 0 1 2 3 4 5 6; a third window holds [4 5 6] and is divided by 3.
  EXPECT_THAT(pooled(a, {1, 2, 3, 4, 5, 6}), ElementsAre(1.5F, 3.5F, 5));
  a.count_include_pad = false;
  EXPECT_THAT(pooled(a, {1, 2, 3, 4, 5, 6}), ElementsAre(2, 3.5F, 5));
}

TEST(Pool, IndicesCountThroughTheWholeTensor) {
  PoolAttributes a;
  a.window.kernel = {2, 2, 1};
  a.indices = true;
  const Operand x = pool_operand<float>(Shape{1, 2, 2, 3}, {1, 5, 2, 3, 4, 5, 9, 0, 7, 9, 9, 8});
  auto y = test::run_reference(Pool(a), {x});
  EXPECT_THAT(y[0].values<float>(), ElementsAre(5, 5, 9, 9));
  EXPECT_THAT(y[1].values<std::int64_t>(), ElementsAre(1, 1, 6, 10));  // the first of equal maxima
  a.column_major_indices = true;
  y = test::run_reference(Pool(a), {x});
  EXPECT_THAT(y[1].values<std::int64_t>(), ElementsAre(2, 2, 6, 6 + 3));
}

TEST(Pool, IntegersAndEmptyWindows) {
  PoolAttributes a = attributes_1d(PoolKind::max, 2, 1, 0, 0);
  const auto i8 = test::run_reference(Pool(a), {pool_operand<std::int8_t>(Shape{1, 1, 3}, {-7, -9, 5})});
  EXPECT_THAT(i8[0].values<std::int8_t>(), ElementsAre(-7, 5));
  // Taps at -1 and 1 of an input of one element.
  a = attributes_1d(PoolKind::max, 2, 1, 1, 1);
  a.window.dilation[0] = 2;
  a.indices = true;
  const auto none = test::run_reference(Pool(a), {pool_operand<float>(Shape{1, 1, 1}, {3})});
  EXPECT_THAT(none[0].values<float>(), ElementsAre(-std::numeric_limits<float>::infinity()));
  EXPECT_THAT(none[1].values<std::int64_t>(), ElementsAre(-1));
  a.indices = false;
  a.kind = PoolKind::average;
  EXPECT_THAT(test::run_reference(Pool(a), {pool_operand<float>(Shape{1, 1, 1}, {3})})[0].values<float>(),
              ElementsAre(0));
}

PoolAttributes random_attributes(Random& random, PoolKind kind, int rank,
                                 std::array<std::int64_t, 3>& extent) {
  PoolAttributes a;
  a.kind = kind;
  a.window.rank = rank;
  a.window.ceil_mode = random.coin();
  a.count_include_pad = random.coin();
  a.p = random.integer(1, 3);
  for (std::size_t axis = 0; axis < static_cast<std::size_t>(rank); ++axis) {
    Window& w = a.window;
    w.kernel[axis] = random.integer(1, 4);
    w.stride[axis] = random.integer(1, 3);
    w.dilation[axis] = random.integer(1, 2);
    const std::int64_t span = w.span(static_cast<int>(axis));
    w.pad_begin[axis] = random.integer(0, span - 1);
    w.pad_end[axis] = random.integer(0, span - 1);
    extent[axis] =
        random.integer(std::max<std::int64_t>(1, span - w.pad_begin[axis] - w.pad_end[axis]), span + 9);
  }
  return a;
}

// A sum of `taps` terms, a factor that is rounded, its product and a square root; what is added up is |x| or x^2, so
// the error is relative to the average or norm of |x|, which 1 bounds from above for |x| <= 1 (the norm by the root of
// the taps).
double tolerance(const PoolAttributes& a, std::int64_t taps) {
  if (a.kind == PoolKind::max) return 0;
  const auto n = static_cast<double>(taps);
  return (n + 2) * FLT_EPSILON * (a.kind == PoolKind::lp ? (a.p == 1 ? n : std::sqrt(n)) : 1);
}

TEST(Pool, RandomCasesMatchTheReference) {
  Random random;
  for (int i = 0; i < 180 && !HasFailure(); ++i) {
    const PoolKind kind =
        std::array{PoolKind::max, PoolKind::average, PoolKind::lp}[static_cast<std::size_t>(i % 3)];
    const int rank = std::array{2, 3, 1, 2}[static_cast<std::size_t>(i / 3 % 4)];
    std::array<std::int64_t, 3> extent{};
    const PoolAttributes a = random_attributes(random, kind, rank, extent);
    std::array<std::int64_t, 5> dims{random.integer(1, 3), random.integer(1, 70)};
    std::copy_n(extent.begin(), rank, dims.begin() + 2);
    const auto x =
        random.tensor(Shape(std::span<const std::int64_t>(dims.data(), static_cast<std::size_t>(rank + 2))));
    Conformance conformance{{{x}}, {"reference"}};
    if (kind != PoolKind::lp || a.p <= 2) conformance.expected.emplace_back("nhwc");
    conformance.absolute = tolerance(a, a.window.taps());
    expect_conformance(Pool(a), conformance);
  }
}

// Windows that overlap: their rows are joined before their columns, a block of channels at a time, unless the input is
// very wide; results of halves go through a stage of some outputs. NaN and infinities are what they are for maxima.
TEST(Pool, OverlappingWindows) {
  Random random;
  for (int i = 0; i < 27 && !HasFailure(); ++i) {
    PoolAttributes a;
    a.kind = std::array{PoolKind::max, PoolKind::average, PoolKind::lp}[static_cast<std::size_t>(i % 3)];
    a.p = random.integer(1, 2);
    a.window.rank = random.integer(0, 3) == 0 ? 3 : 2;
    a.window.ceil_mode = random.coin();
    a.count_include_pad = random.coin();
    std::array<std::int64_t, 5> dims{random.integer(1, 2), random.integer(1, 150), 1, 1, 1};
    const auto rank = static_cast<std::size_t>(a.window.rank);
    for (std::size_t axis = 0; axis < rank; ++axis) {
      Window& w = a.window;
      w.kernel[axis] = random.integer(2, rank == 3 ? 3 : 9);
      w.stride[axis] = random.integer(1, 2);
      w.dilation[axis] = random.integer(0, 3) == 0 ? 2 : 1;
      const std::int64_t span = w.span(static_cast<int>(axis));
      w.pad_begin[axis] = random.integer(0, span - 1);
      w.pad_end[axis] = random.integer(0, span - 1);
      dims[axis + 2] = span + random.integer(0, axis + 1 == rank ? 70 : 3);
    }
    if (i % 9 == 8) {
      dims[1] = random.integer(1, 3);
      dims[rank + 1] = random.integer(1000, 1100);
    }
    Tensor x = random.tensor(Shape(std::span<const std::int64_t>(dims.data(), rank + 2)))->clone();
    if (a.kind == PoolKind::max && random.coin()) {
      const auto values = x.values<float>();
      for (int k = 0; k < 20; ++k) {
        const auto at = static_cast<std::size_t>(random.integer(0, std::ssize(values) - 1));
        values[at] =
            std::array{std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::quiet_NaN(),
                       std::numeric_limits<float>::infinity(),
                       -std::numeric_limits<float>::infinity()}[static_cast<std::size_t>(k % 4)];
      }
    }
    Conformance conformance{{{std::make_shared<const Tensor>(std::move(x))}}, {"nhwc", "reference"}};
    conformance.absolute = tolerance(a, a.window.taps());
    expect_conformance(Pool(a), conformance);
  }
}

TEST(Pool, GlobalPooling) {
  Random random;
  for (const PoolKind kind : {PoolKind::max, PoolKind::average, PoolKind::lp}) {
    for (const std::int64_t channels : {1, 16, 100, 777}) {
      PoolAttributes a;
      a.kind = kind;
      a.global = true;
      const std::int64_t batch = random.integer(1, 40);
      const std::int64_t height = random.integer(1, 9);
      const std::int64_t width = random.integer(1, 9);
      const auto x =
          random.tensor(random.coin() ? Shape{batch, channels, height, width}
                                      : Shape{batch, channels, random.integer(1, 5), height, width});
      Conformance conformance{{{x}}, {"nhwc", "reference"}};
      conformance.absolute = tolerance(a, x->desc().elements() / batch / channels);
      expect_conformance(Pool(a), conformance);
      if (HasFailure()) return;
    }
  }
}

TEST(Pool, NanPropagatesThroughMax) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const std::int64_t channels : {1, 16}) {
    for (const std::size_t at : {0U, 1U, 2U}) {
      std::vector<float> x(static_cast<std::size_t>(3 * channels), 1.0F);
      for (std::size_t c = 0; c < static_cast<std::size_t>(channels); ++c) x[c * 3 + at] = nan;
      PoolAttributes a;
      a.global = true;
      const Operand input = pool_operand<float>(Shape{1, channels, 1, 3}, x);
      EXPECT_TRUE(std::isnan(test::run_reference(Pool(a), {input})[0].values<float>()[0]));
      expect_conformance(Pool(a), {{input}, {"nhwc"}});
    }
  }
}

TEST(Pool, RefusesWhatHasNoMeaning) {
  PoolAttributes a;
  a.window.kernel = {3, 3, 1};
  a.window.pad_begin = {3, 0, 0};
  EXPECT_THROW(Pool{a}, Error);
  a.window.pad_begin = {0, 0, 0};
  a.window.pad_end = {0, 3, 0};
  EXPECT_THROW(Pool{a}, Error);
  a.window.pad_end = {0, 0, 0};
  a.kind = PoolKind::average;
  a.indices = true;
  EXPECT_THROW(Pool{a}, Error);
  a.indices = false;
  a.kind = PoolKind::lp;
  a.p = 0;
  EXPECT_THROW(Pool{a}, Error);
  PoolAttributes global;
  global.global = true;
  for (const Shape& shape : {Shape{2, 3}, Shape{1, 2, 3, 4, 5, 6}, Shape{1, 2, 0, 4}, Shape{}}) {
    const TensorDesc x{shape};
    const TensorDesc* inputs[] = {&x};
    EXPECT_THROW(Pool(global).infer(inputs), Error) << shape.str();
  }
  const TensorDesc integers{Shape{1, 2, 3, 4}, DType::i8};
  const TensorDesc* inputs[] = {&integers};
  EXPECT_NO_THROW(Pool(global).infer(inputs));
  global.kind = PoolKind::average;
  EXPECT_THROW(Pool(global).infer(inputs), Error);
}

}  // namespace
}  // namespace pipit::internal
