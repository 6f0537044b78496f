#include <gmock/gmock.h>

#include <numeric>

#include "layers/ops/slicing.h"
#include "tests/layers/conformance.h"
#include "tests/layers/values.h"

namespace pipit::internal {
namespace {

using test::iota;
using test::make;
using test::results;
using ::testing::ElementsAre;
using Dims = std::vector<std::int64_t>;

constexpr DType kTypes[] = {DType::f32, DType::f64, DType::i8,     DType::u8,
                            DType::i32, DType::i64, DType::boolean};

DType random_type(test::Random& random) {
  return kTypes[random.integer(0, static_cast<std::int64_t>(std::size(kTypes)) - 1)];
}

Dims random_dims(test::Random& random, std::int64_t low, std::int64_t high) {
  Dims dims(static_cast<std::size_t>(random.integer(1, kMaxRank)));
  for (std::int64_t& d : dims) d = random.integer(low, high);
  return dims;
}

TEST(Concat, JoinsAlongTheAxis) {
  const auto a = make<std::int64_t>(Shape{2, 1}, {1, 2});
  const auto b = make<std::int64_t>(Shape{2, 2}, {3, 4, 5, 6});
  EXPECT_THAT(results<std::int64_t>(Concat({-1}), {a, b}), ElementsAre(1, 3, 4, 2, 5, 6));
}

TEST(Concat, KernelsMatchTheReference) {
  test::Random random;
  for (int round = 0; round < 40; ++round) {
    Dims dims = random_dims(random, 1, 5);
    const auto axis = static_cast<std::size_t>(random.integer(0, static_cast<std::int64_t>(dims.size()) - 1));
    const DType type = random_type(random);
    test::Conformance c{.expected = {"strided_copy"}};
    for (std::int64_t i = random.integer(1, 3); i > 0; --i) {
      dims[axis] = random.integer(0, 6);
      c.inputs.push_back({random.tensor(Shape(dims), 0, 100, type)});
    }
    test::expect_conformance(Concat({static_cast<std::int64_t>(axis)}), c);
  }
  // Several chunks of work, as in a dense block.
  test::expect_conformance(
      Concat({1}), {.inputs = {{random.tensor(Shape{2, 33, 19, 21})}, {random.tensor(Shape{2, 7, 19, 21})}},
                    .expected = {"rows", "strided_copy"}});
}

TEST(Concat, RefusesWhatDoesNotFit) {
  EXPECT_THROW(test::infer(Concat({0}), {}), Error);
  EXPECT_THROW(test::infer(Concat({0}), {{Shape{}}}), Error);
  EXPECT_THROW(test::infer(Concat({2}), {{Shape{2, 3}}, {Shape{2, 3}}}), Error);
  EXPECT_THROW(test::infer(Concat({0}), {{Shape{2, 3}}, {Shape{2, 4}}}), Error);
  EXPECT_THROW(test::infer(Concat({0}), {{Shape{2, 3}}, {Shape{2}}}), Error);
  EXPECT_THROW(test::infer(Concat({0}), {{Shape{2}}, {Shape{2}, DType::i64}}), Error);
  const TensorDesc huge{Shape{std::int64_t{1} << 61}};
  EXPECT_THROW(test::infer(Concat({0}), {huge, huge, huge}), Error);
}

TEST(Split, CutsAlongTheAxis) {
  const Split split({1, {1, 2}});
  EXPECT_THAT(results<float>(split, {iota(Shape{2, 3})}, 0), ElementsAre(0, 3));
  EXPECT_THAT(results<float>(split, {iota(Shape{2, 3})}, 1), ElementsAre(1, 2, 4, 5));
}

TEST(Split, KernelsMatchTheReference) {
  test::Random random;
  for (int round = 0; round < 40; ++round) {
    Dims dims = random_dims(random, 1, 5);
    const std::int64_t axis = random.integer(0, static_cast<std::int64_t>(dims.size()) - 1);
    Dims sizes;
    for (std::int64_t i = random.integer(1, 3); i > 0; --i) sizes.push_back(random.integer(0, 4));
    dims[static_cast<std::size_t>(axis)] = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
    test::expect_conformance(Split({axis, sizes}),
                             {.inputs = {{random.tensor(Shape(dims), 0, 100, random_type(random))}},
                              .expected = {"strided_copy"}});
  }
}

TEST(Split, RefusesWhatDoesNotFit) {
  EXPECT_THROW(Split({0, {}}), Error);
  EXPECT_THROW(test::infer(Split({0, {1, 2}}), {{Shape{4}}}), Error);
  EXPECT_THROW(test::infer(Split({0, {-1, 5}}), {{Shape{4}}}), Error);
  EXPECT_THROW(test::infer(Split({0, {INT64_MAX, INT64_MAX}}), {{Shape{4}}}), Error);
}

// Expected: NumPy's x[start:end:step] on arange(10).
TEST(Slice, FollowsNumPy) {
  const auto slice = [](std::int64_t start, std::int64_t end, std::int64_t step) {
    return results<float>(Slice({{start}, {end}, {0}, {step}}), {iota(Shape{10})});
  };
  EXPECT_THAT(slice(2, 8, 3), ElementsAre(2, 5));
  EXPECT_THAT(slice(2, 9, 3), ElementsAre(2, 5, 8));
  EXPECT_THAT(slice(-3, INT64_MAX, 1), ElementsAre(7, 8, 9));
  EXPECT_THAT(slice(8, 2, -3), ElementsAre(8, 5));
  EXPECT_THAT(slice(INT64_MAX, INT64_MIN, -4), ElementsAre(9, 5, 1));
  EXPECT_THAT(slice(3, -100, -1), ElementsAre(3, 2, 1, 0));
  EXPECT_THAT(slice(3, -1, -1), ElementsAre());
  EXPECT_THAT(slice(5, 5, 1), ElementsAre());
  EXPECT_THAT(slice(100, 200, 1), ElementsAre());
  EXPECT_THAT(slice(4, INT64_MAX, INT64_MAX), ElementsAre(4));
  EXPECT_THAT(slice(4, INT64_MIN, INT64_MIN), ElementsAre(4));
  EXPECT_THAT(slice(-100, 3, 2), ElementsAre(0, 2));
  EXPECT_THAT(slice(-100, 3, -1), ElementsAre());
}

TEST(Slice, KernelsMatchTheReference) {
  test::Random random;
  for (int round = 0; round < 60; ++round) {
    const Dims dims = random_dims(random, 0, 7);
    SliceAttributes a;
    for (std::size_t d = 0; d < dims.size(); ++d) {
      if (random.coin()) continue;
      a.axes.push_back(static_cast<std::int64_t>(d) -
                       (random.coin() ? static_cast<std::int64_t>(dims.size()) : 0));
      a.starts.push_back(random.integer(-9, 9));
      a.ends.push_back(random.integer(-9, 9));
      a.steps.push_back(random.coin() ? random.integer(1, 3) : random.integer(-3, -1));
    }
    test::expect_conformance(Slice(a), {.inputs = {{random.tensor(Shape(dims), 0, 100, random_type(random))}},
                                        .expected = {"table_copy"}});
  }
}

TEST(Slice, RefusesWhatDoesNotFit) {
  EXPECT_THROW(Slice({{0}, {1}, {0}, {0}}), Error) << "step 0";
  EXPECT_THROW(Slice({{0}, {1, 2}, {0}, {1}}), Error);
  EXPECT_THROW(test::infer(Slice({{0}, {1}, {1}, {1}}), {{Shape{4}}}), Error);
  EXPECT_THROW(test::infer(Slice({{0, 0}, {1, 1}, {0, -1}, {1, 1}}), {{Shape{4}}}), Error) << "twice";
}

// Expected: NumPy's pad on [1, 2, 3].
TEST(Pad, FollowsNumPy) {
  const auto pad = [](PadMode mode, std::int64_t begin, std::int64_t end) {
    return results<std::int32_t>(Pad({mode, {begin}, {end}, 9}), {make<std::int32_t>({1, 2, 3})});
  };
  EXPECT_THAT(pad(PadMode::constant, 1, 2), ElementsAre(9, 1, 2, 3, 9, 9));
  EXPECT_THAT(pad(PadMode::constant, -1, 1), ElementsAre(2, 3, 9));
  EXPECT_THAT(pad(PadMode::constant, -5, 5), ElementsAre(9, 9, 9));
  EXPECT_THAT(pad(PadMode::constant, 5, -5), ElementsAre(9, 9, 9));
  EXPECT_THAT(pad(PadMode::reflect, 2, 2), ElementsAre(3, 2, 1, 2, 3, 2, 1));
  EXPECT_THAT(pad(PadMode::reflect, 5, 0), ElementsAre(2, 1, 2, 3, 2, 1, 2, 3));
  EXPECT_THAT(pad(PadMode::edge, 2, 1), ElementsAre(1, 1, 1, 2, 3, 3));
  EXPECT_THAT(pad(PadMode::wrap, 4, 2), ElementsAre(3, 1, 2, 3, 1, 2, 3, 1, 2));
  EXPECT_THAT(results<float>(Pad({PadMode::reflect, {1}, {1}}), {make<float>({5})}), ElementsAre(5, 5, 5));
}

TEST(Pad, KernelsMatchTheReference) {
  test::Random random;
  for (int round = 0; round < 60; ++round) {
    const Dims dims = random_dims(random, 1, 5);
    PadAttributes a;
    a.value = static_cast<double>(random.integer(0, 1));
    a.mode = static_cast<PadMode>(random.integer(0, 3));
    for (const std::int64_t extent : dims) {
      a.begin.push_back(random.integer(-2, 3));
      a.end.push_back(std::max(random.integer(-2, 3), -extent - a.begin.back()));
    }
    test::expect_conformance(Pad(a), {.inputs = {{random.tensor(Shape(dims), 0, 100, random_type(random))}},
                                      .expected = {"table_copy"}});
  }
}

// Rows that are joined, rows that are not, and rows of more elements than are joined; runs and single elements.
TEST(Pad, KernelsMatchTheReferenceOnImages) {
  test::Random random;
  for (const Shape& shape : {Shape{2, 3, 33, 70}, Shape{1, 64, 9, 11}, Shape{1, 700, 3, 5},
                             Shape{1, 2, 2, 3000}, Shape{1, 33, 90}, Shape{2, 17, 3, 9, 10}}) {
    for (const PadMode mode : {PadMode::constant, PadMode::reflect, PadMode::edge, PadMode::wrap}) {
      PadAttributes a{mode, std::vector<std::int64_t>(static_cast<std::size_t>(shape.rank())), {}, 7};
      a.end = a.begin;
      for (std::size_t d = random.coin() ? 1 : 2; d < a.begin.size(); ++d) {
        a.begin[d] = random.integer(-1, 4);
        a.end[d] = random.integer(0, 4);
      }
      for (const DType type : {DType::f32, DType::u8, DType::f64}) {
        test::expect_conformance(
            Pad(a), {.inputs = {{random.tensor(shape, 0, 100, type)}}, .expected = {"table_copy"}});
      }
    }
  }
}

TEST(Pad, RefusesWhatDoesNotFit) {
  const auto infer = [](PadMode mode, const Dims& begin, const Dims& end, const Shape& shape) {
    return test::infer(Pad({mode, begin, end}), {{shape}});
  };
  EXPECT_THROW(Pad({PadMode::constant, {1}, {1, 1}}), Error);
  EXPECT_THROW(infer(PadMode::constant, {1}, {1}, Shape{2, 2}), Error);
  EXPECT_THROW(infer(PadMode::constant, {-2}, {-1}, Shape{2}), Error);
  EXPECT_THROW(infer(PadMode::constant, {INT64_MAX}, {1}, Shape{2}), Error);
  EXPECT_THROW(infer(PadMode::reflect, {1}, {0}, Shape{0}), Error);
  EXPECT_EQ(infer(PadMode::constant, {1}, {0}, Shape{0})[0].shape, Shape{1});
}

}  // namespace
}  // namespace pipit::internal
