#include <gmock/gmock.h>

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "layers/ops/indexing.h"
#include "tests/layers/conformance.h"
#include "tests/layers/values.h"

namespace pipit::internal {
namespace {

using test::expect_conformance;
using test::Operand;
using test::Random;
using test::run_reference;
using testing::ElementsAre;

template <typename T = float>
std::shared_ptr<const Tensor> tensor_with(const Shape& shape, const std::vector<T>& values) {
  return std::make_shared<const Tensor>(Tensor::from<T>(shape, values));
}
std::shared_ptr<const Tensor> index_tensor(const Shape& shape, const std::vector<std::int64_t>& values) {
  return tensor_with(shape, values);
}

constexpr IndexedAttributes kPairs{IndexForm::tuples, 0, 0};
IndexedAttributes along(std::int64_t axis) {
  return {IndexForm::elements, axis, 0};
}

TEST(GatherIndexed, HandWorkedExamples) {
  const auto x = tensor_with(Shape{2, 2}, {1, 2, 3, 4});
  auto y = run_reference(GatherIndexed(along(1)), {{x}, {index_tensor(Shape{2, 2}, {0, 0, 1, -2})}});
  EXPECT_THAT(y[0].values<float>(), ElementsAre(1, 1, 4, 3));
  y = run_reference(GatherIndexed(along(0)), {{x}, {index_tensor(Shape{1, 2}, {1, 0})}});
  EXPECT_THAT(y[0].values<float>(), ElementsAre(3, 2));
  y = run_reference(GatherIndexed(kPairs), {{x}, {index_tensor(Shape{2, 2}, {0, 0, 1, -1})}});
  EXPECT_THAT(y[0].values<float>(), ElementsAre(1, 4));
  y = run_reference(GatherIndexed(kPairs), {{x}, {index_tensor(Shape{1, 1}, {1})}});
  EXPECT_THAT(y[0].values<float>(), ElementsAre(3, 4));
  const auto blocks = tensor_with(Shape{2, 2, 2}, {0, 1, 2, 3, 4, 5, 6, 7});
  y = run_reference(GatherIndexed({IndexForm::tuples, 0, 1}),
                    {{blocks}, {index_tensor(Shape{2, 1}, {1, 0})}});
  EXPECT_EQ(y[0].shape(), (Shape{2, 2}));
  EXPECT_THAT(y[0].values<float>(), ElementsAre(2, 3, 4, 5));
}

TEST(ScatterIndexed, HandWorkedExamples) {
  const auto x = tensor_with(Shape{4}, {1, 2, 3, 4});
  const auto twice = index_tensor(Shape{3}, {1, -1, 1});
  const auto updates = tensor_with(Shape{3}, {10, 20, 30});
  const auto run = [&](ScatterReduction reduction) {
    return run_reference(ScatterIndexed({along(0), reduction}), {{x}, {twice}, {updates}});
  };
  EXPECT_THAT(run(ScatterReduction::none)[0].values<float>(), ElementsAre(1, 30, 3, 20))
      << "the last one counts";
  EXPECT_THAT(run(ScatterReduction::add)[0].values<float>(), ElementsAre(1, 42, 3, 24));
  EXPECT_THAT(run(ScatterReduction::mul)[0].values<float>(), ElementsAre(1, 600, 3, 80));
  EXPECT_THAT(run(ScatterReduction::min)[0].values<float>(), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(run(ScatterReduction::max)[0].values<float>(), ElementsAre(1, 30, 3, 20));
  const auto matrix = tensor_with(Shape{2, 2}, {1, 2, 3, 4});
  const auto y =
      run_reference(ScatterIndexed({kPairs, ScatterReduction::none}),
                    {{matrix}, {index_tensor(Shape{1, 1}, {1})}, {tensor_with(Shape{1, 2}, {8, 9})}});
  EXPECT_THAT(y[0].values<float>(), ElementsAre(1, 2, 8, 9));
}

// Indices that are made from the shape, with what is out of range checked elsewhere.
TEST(GatherIndexed, RandomCasesMatchTheReference) {
  Random random;
  for (int i = 0; i < 60 && !HasFailure(); ++i) {
    std::vector<std::int64_t> dims;
    for (std::int64_t rank = random.integer(1, 4); rank > 0; --rank) dims.push_back(random.integer(1, 7));
    const Shape data(dims);
    const DType type = random.coin() ? DType::f32 : DType::u8;
    const auto x = random.tensor(data, 0, 100, type);
    const auto axis = random.integer(0, data.rank() - 1);
    for (auto& extent : dims) extent = random.integer(1, extent);
    const std::int64_t here = data[static_cast<int>(axis)];
    const auto indices = random.integers<std::int64_t>(Shape(dims), -here, here - 1);
    expect_conformance(GatherIndexed(along(axis)), {{{x}, {indices}}, {"reference"}});
    const auto updates = random.tensor(Shape(dims), 0, 100, type);
    const auto reduction = static_cast<ScatterReduction>(random.integer(0, 4));
    expect_conformance(ScatterIndexed({along(axis), reduction}),
                       {{{x}, {indices}, {updates}}, {"reference"}});
    const std::int64_t least = *std::min_element(data.dims().begin(), data.dims().end());
    const auto tuples = random.integers<std::int32_t>(
        Shape{random.integer(0, 5), random.integer(1, data.rank())}, -least, least - 1);
    expect_conformance(GatherIndexed(kPairs), {{{x}, {tuples}}, {"reference"}});
  }
}

TEST(GatherIndexed, RefusesWhatDoesNotFit) {
  const auto x = tensor_with(Shape{2, 2}, {1, 2, 3, 4});
  EXPECT_THROW(run_reference(GatherIndexed(along(1)), {{x}, {index_tensor(Shape{1, 1}, {2})}}), Error);
  EXPECT_THROW(run_reference(GatherIndexed(kPairs), {{x}, {index_tensor(Shape{1, 2}, {0, -3})}}), Error);
  EXPECT_THROW(
      run_reference(ScatterIndexed({along(0)}),
                    {{x}, {index_tensor(Shape{1, 1}, {INT64_MIN})}, {tensor_with(Shape{1, 1}, {1})}}),
      Error);
  const TensorDesc data{Shape{2, 3}};
  const auto infer = [&](const IndexedAttributes& a, const TensorDesc& indices) {
    return test::infer(GatherIndexed(a), {data, indices});
  };
  EXPECT_THROW(infer(along(2), {Shape{2, 3}, DType::i64}), Error);
  EXPECT_THROW(infer(along(1), {Shape{3, 3}, DType::i64}), Error);
  EXPECT_THROW(infer(along(1), {Shape{2}, DType::i64}), Error);
  EXPECT_THROW(infer(along(1), {Shape{2, 3}, DType::f32}), Error);
  EXPECT_THROW(infer(kPairs, {Shape{2, 3}, DType::i64}), Error);
  EXPECT_THROW(infer(kPairs, {Shape{}, DType::i64}), Error);
  EXPECT_THROW(infer({IndexForm::tuples, 0, 2}, {Shape{2, 1}, DType::i64}), Error);
  EXPECT_THROW(infer({IndexForm::tuples, 0, -1}, {Shape{2, 1}, DType::i64}), Error);
  EXPECT_THROW(infer({IndexForm::tuples, 0, 1}, {Shape{3, 1}, DType::i64}), Error);
  const TensorDesc indices{Shape{2, 3}, DType::i64};
  EXPECT_THROW(test::infer(ScatterIndexed({along(0)}), {data, indices, {Shape{2, 2}}}), Error);
  EXPECT_THROW(test::infer(ScatterIndexed({along(0)}), {data, indices, {Shape{2, 3}, DType::i64}}), Error);
  const TensorDesc bits{Shape{2, 3}, DType::boolean};
  EXPECT_THROW(test::infer(ScatterIndexed({along(0), ScatterReduction::add}), {bits, indices, bits}), Error);
}

TEST(TopK, HandWorkedExamples) {
  const auto x = tensor_with(Shape{2, 4}, {1, 4, 4, 3, 5, NAN, 7, -1});
  auto y = run_reference(TopK({-1, 3, true}), {{x}});
  EXPECT_THAT(y[1].values<std::int64_t>(), ElementsAre(1, 2, 3, 1, 2, 0));
  y = run_reference(TopK({1, 2, false}), {{x}});
  EXPECT_THAT(y[0].values<float>(), ElementsAre(1, 3, -1, 5));
  EXPECT_THAT(y[1].values<std::int64_t>(), ElementsAre(0, 3, 3, 0));
  y = run_reference(TopK({0, 1, true}),
                    {{tensor_with<std::int64_t>(Shape{2, 2}, {INT64_MIN, 5, INT64_MAX, 4})}});
  EXPECT_THAT(y[1].values<std::int64_t>(), ElementsAre(1, 0));
  EXPECT_EQ(run_reference(TopK({-1, 0, true}), {{x}})[0].shape(), (Shape{2, 0}));
}

TEST(TopK, AnyAxisInBothLayouts) {
  Random random;
  for (std::int64_t axis = -4; axis < 4; ++axis) {
    const auto x = random.tensor(Shape{2, 3, 4, 5}, -9, 9, random.coin() ? DType::f32 : DType::i32);
    expect_conformance(TopK({axis, 2, random.coin()}), {{{x}}, {"reference"}});
  }
}

TEST(TopK, RefusesWhatDoesNotFit) {
  EXPECT_THROW(test::infer(TopK({0, 3, true}), {{Shape{2}}}), Error);
  EXPECT_THROW(test::infer(TopK({0, -1, true}), {{Shape{2}}}), Error);
  EXPECT_THROW(test::infer(TopK({1, 1, true}), {{Shape{2}}}), Error);
  EXPECT_THROW(test::infer(TopK({0, 1, true}), {{Shape{}}}), Error);
  EXPECT_THROW(test::infer(TopK({0, 1, true}), {{Shape{2}, DType::boolean}}), Error);
}

TEST(CumSum, HandWorkedExamples) {
  const auto x = tensor_with(Shape{2, 3}, {1, 2, 3, 4, 5, 6});
  const auto run = [&](const CumSumAttributes& a) { return run_reference(CumSum(a), {{x}}); };
  EXPECT_THAT(run({1})[0].values<float>(), ElementsAre(1, 3, 6, 4, 9, 15));
  EXPECT_THAT(run({0})[0].values<float>(), ElementsAre(1, 2, 3, 5, 7, 9));
  EXPECT_THAT(run({-1, true})[0].values<float>(), ElementsAre(0, 1, 3, 0, 4, 9));
  EXPECT_THAT(run({1, false, true})[0].values<float>(), ElementsAre(6, 5, 3, 15, 11, 6));
  EXPECT_THAT(run({1, true, true})[0].values<float>(), ElementsAre(5, 3, 0, 11, 6, 0));
  const auto bytes = run_reference(CumSum({0}), {{tensor_with<std::int8_t>(Shape{3}, {100, 100, 1})}});
  EXPECT_THAT(bytes[0].values<std::int8_t>(), ElementsAre(100, -56, -55)) << "wraps";
}

TEST(CumSum, AnyAxisInBothLayouts) {
  Random random;
  for (std::int64_t axis = 0; axis < 4; ++axis) {
    const auto x = random.tensor(Shape{2, 3, 4, 5}, -9, 9, random.coin() ? DType::f64 : DType::i64);
    expect_conformance(CumSum({axis, random.coin(), random.coin()}), {{{x}}, {"reference"}});
  }
  EXPECT_THROW(test::infer(CumSum({2}), {{Shape{2, 2}}}), Error);
  EXPECT_THROW(test::infer(CumSum({0}), {{Shape{2}, DType::boolean}}), Error);
}

}  // namespace
}  // namespace pipit::internal
