#include <gmock/gmock.h>

#include <cfloat>
#include <cmath>
#include <limits>

#include "layers/ops/grid_sample.h"
#include "tests/layers/conformance.h"
#include "tests/layers/values.h"

namespace pipit::internal {
namespace {

using test::Conformance;
using test::expect_conformance;
using test::Random;
using testing::ElementsAre;

std::vector<float> sample(const GridSampleAttributes& a, const std::vector<float>& row,
                          const std::vector<float>& positions) {
  const auto count = static_cast<std::int64_t>(positions.size());
  const auto x = std::make_shared<const Tensor>(
      Tensor::from<float>(Shape{1, 1, static_cast<std::int64_t>(row.size())}, row));
  const auto grid = std::make_shared<const Tensor>(Tensor::from<float>(Shape{1, count, 1}, positions));
  const auto y = test::run_reference(GridSample(a), {{x}, {grid}});
  return {y[0].values<float>().begin(), y[0].values<float>().end()};
}

TEST(GridSample, HandWorkedExamples) {
  // Middles of four elements: -0.75, -0.25, 0.25, 0.75.
  EXPECT_THAT(sample({ResizeMode::linear}, {1, 2, 3, 4}, {-0.75F, 0, 0.75F, 1, 2}),
              ElementsAre(1, 2.5F, 4, 2, 0));
  EXPECT_THAT(sample({ResizeMode::linear, GridPadding::border}, {1, 2, 3, 4}, {-9, 1, 9}),
              ElementsAre(1, 4, 4));
  EXPECT_THAT(sample({ResizeMode::linear, GridPadding::reflection}, {1, 2, 3, 4}, {1.25F, -1.25F, 3}),
              ElementsAre(4, 1, 1));
  EXPECT_THAT(sample({ResizeMode::linear, GridPadding::zeros, true}, {1, 2, 3}, {-1, -0.5F, 0, 1}),
              ElementsAre(1, 1.5F, 2, 3));
  EXPECT_THAT(sample({ResizeMode::nearest}, {1, 2, 3, 4}, {-0.8F, -0.1F, 0.1F, 1.2F}),
              ElementsAre(1, 2, 3, 0));
  EXPECT_THAT(sample({ResizeMode::cubic}, {1, 2, 3, 4}, {-0.25F}), ElementsAre(2));
}

TEST(GridSample, PositionsThatAreNoNumbersOrFarAway) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const ResizeMode mode : {ResizeMode::nearest, ResizeMode::linear, ResizeMode::cubic}) {
    EXPECT_THAT(sample({mode}, {1, 2, 3}, {NAN, inf, -inf, 1e30F}), ElementsAre(0, 0, 0, 0));
    EXPECT_THAT(sample({mode, GridPadding::border}, {1, 2, 3}, {NAN, inf, -inf, 1e30F}),
                ElementsAre(1, 3, 1, 3));
    for (const float y : sample({mode, GridPadding::reflection}, {1, 2, 3}, {NAN, inf, -inf, 1e30F}))
      EXPECT_TRUE(y >= 0.5F && y <= 3.5F) << y;
    EXPECT_THAT(sample({mode, GridPadding::reflection, true}, {5}, {0, 7, -inf}), ElementsAre(5, 5, 5));
  }
}

TEST(GridSample, RandomCasesMatchTheReference) {
  Random random;
  for (int i = 0; i < 54 && !HasFailure(); ++i) {
    const GridSampleAttributes a{static_cast<ResizeMode>(i % 3), static_cast<GridPadding>(i / 3 % 3),
                                 i / 9 % 2 == 1};
    const std::int64_t rank = random.integer(1, 3);
    std::vector<std::int64_t> x{random.integer(1, 2), random.integer(1, 4)};
    std::vector<std::int64_t> grid{x[0]};
    for (std::int64_t d = 0; d < rank; ++d) {
      x.push_back(random.integer(1, 9));
      grid.push_back(random.integer(0, 3) == 0 ? random.integer(0, 2) : random.integer(3, 13));
    }
    if (random.integer(0, 3) == 0) grid.back() = random.integer(60, 70);
    grid.push_back(rank);
    // Positions that are no numbers or far away, in some places.
    const auto near = random.tensor(Shape(grid), -1.5, 1.5);
    std::vector<float> positions(near->values<float>().begin(), near->values<float>().end());
    for (float& value : positions) {
      if (random.integer(0, 19) == 0) value = random.coin() ? NAN : random.coin() ? 1e30F : -1e30F;
    }
    Conformance conformance{
        .inputs = {{random.tensor(Shape(x), -1, 1)},
                   {std::make_shared<const Tensor>(Tensor::from<float>(Shape(grid), positions))}},
        .expected = {"corners", "reference"}};
    // Weights of cubic add up to less than 1.5 in size along an axis; each term rounds rank + 2 times, sums of 4^rank.
    const double terms = std::pow(max_grid_taps(a.mode), static_cast<double>(rank));
    conformance.absolute =
        (terms + static_cast<double>(rank) + 2) * std::pow(1.5, static_cast<double>(rank)) * FLT_EPSILON;
    expect_conformance(GridSample(a), conformance);
  }
}

// An element that weighs nothing does not count, whatever it is.
TEST(GridSample, InfinitiesThatWeighNothing) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const ResizeMode mode : {ResizeMode::nearest, ResizeMode::linear, ResizeMode::cubic}) {
    const auto x = std::make_shared<const Tensor>(
        Tensor::from<float>(Shape{1, 1, 1, 4}, std::vector<float>{1, 2, 3, inf}));
    const auto grid = std::make_shared<const Tensor>(
        Tensor::from<float>(Shape{1, 1, 2, 2}, std::vector<float>{-0.75F, 0, -0.25F, 0}));
    expect_conformance(GridSample({mode}), {.inputs = {{x}, {grid}}, .expected = {"corners"}});
    EXPECT_THAT(test::run_reference(GridSample({mode}), {{x}, {grid}})[0].values<float>(), ElementsAre(1, 2));
  }
}

TEST(GridSample, RefusesWhatDoesNotFit) {
  const GridSample layer(GridSampleAttributes{});
  EXPECT_EQ(test::infer(layer, {{Shape{2, 3, 4, 5}}, {Shape{2, 6, 7, 2}}})[0].shape, (Shape{2, 3, 6, 7}));
  EXPECT_THROW(test::infer(layer, {{Shape{2, 3, 4, 5}}, {Shape{2, 6, 7, 3}}}), Error);
  EXPECT_THROW(test::infer(layer, {{Shape{2, 3, 4, 5}}, {Shape{1, 6, 7, 2}}}), Error);
  EXPECT_THROW(test::infer(layer, {{Shape{2, 3, 4, 5}}, {Shape{2, 6, 2}}}), Error);
  EXPECT_THROW(test::infer(layer, {{Shape{2, 3, 0, 5}}, {Shape{2, 6, 7, 2}}}), Error);
  EXPECT_THROW(test::infer(layer, {{Shape{2, 3}}, {Shape{2, 0}}}), Error);
  EXPECT_THROW(test::infer(layer, {{Shape{2, 3, 4}, DType::i32}, {Shape{2, 4, 1}, DType::i32}}), Error);
}

}  // namespace
}  // namespace pipit::internal
