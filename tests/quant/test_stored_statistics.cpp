#include "quant/stored_statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "engine/base/error.h"
#include "layers/ops/normalization.h"
#include "layers/ops/unary.h"
#include "tests/support/random.h"

namespace pipit::internal {
namespace {

using test::test_seed;
using testing::DoubleNear;
using testing::ElementsAre;

Tensor numbers(const std::vector<float>& values) {
  Tensor tensor({Shape({static_cast<std::int64_t>(values.size())}), DType::f32});
  std::ranges::copy(values, tensor.values<float>().begin());
  return tensor;
}

// Input, a function of it, and batch normalization of two channels, twice; and a function that neither follows from.
Graph normalized(const std::vector<float>& means, const std::vector<float>& variances) {
  GraphBuilder builder;
  const ValueId x = builder.add_input("x", {Shape({2, 2, 3, 1}), DType::f32});
  const auto relu = std::make_shared<Unary>(UnaryAttributes{UnaryKind::relu});
  const auto layer = std::make_shared<BatchNorm>(BatchNormAttributes{.epsilon = 0.01F});
  const auto operands = [&](ValueId value) {
    return std::vector<ValueId>{
        value, builder.add_constant("scale", numbers({1, 1})), builder.add_constant("bias", numbers({0, 0})),
        builder.add_constant("mean", numbers(means)), builder.add_constant("variance", numbers(variances))};
  };
  builder.mark_output(builder.add1("beside", relu, {x}));
  const ValueId before = builder.add1("relu", relu, {x}, "before");
  const ValueId first = builder.add1("first", layer, operands(before));
  builder.mark_output(builder.add1("second", layer, operands(first)));
  return builder.build();
}

TEST(StoredStatistics, AreThoseOfTheFirstBatchNormalization) {
  const std::optional<StoredStatistics> stored = first_stored_statistics(normalized({1, 2}, {3, 4}));
  ASSERT_TRUE(stored);
  EXPECT_EQ(stored->layer, "first");
  EXPECT_THAT(stored->means, ElementsAre(1, 2));
  EXPECT_THAT(stored->variances, ElementsAre(3, 4));
  EXPECT_FLOAT_EQ(static_cast<float>(stored->epsilon), 0.01F);
  ASSERT_EQ(stored->graph.nodes().size(), 1);
  EXPECT_EQ(stored->graph.nodes()[0].name, "relu");
  EXPECT_EQ(stored->graph.value(stored->graph.outputs()[0]).name, "before");
}

TEST(StoredStatistics, AreMissingBeforeTraining) {
  EXPECT_FALSE(first_stored_statistics(normalized({0, 0}, {1, 1})));
  EXPECT_TRUE(first_stored_statistics(normalized({0, 0}, {1, 1.5})));
}

TEST(ChannelMoments, GiveMeansAndVariancesOfTheImagesThatCount) {
  std::mt19937 random(test_seed());
  std::normal_distribution<float> noise;
  const StoredStatistics stored = {
      .layer = "bn", .graph = {}, .means = {1, -1, 0}, .variances = {4, 0.25, 1e-6}, .epsilon = 1e-3};
  ChannelMoments moments;
  EXPECT_FALSE(moments.difference(stored));
  // Two images of three count. The first channel is as stored, of the second the mean is off by one deviation and the
  // variance by 9; the third is dead.
  constexpr std::int64_t kPositions = 2000;
  Tensor batch({Shape({3, 3, kPositions}), DType::f32});
  for (int run = 0; run < 2; ++run) {
    std::span<float> values = batch.values<float>();
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::size_t image = i / (3 * kPositions), channel = i / kPositions % 3;
      const float z = noise(random);
      values[i] = image == 2 ? NAN : channel == 0 ? 1 + 2 * z : channel == 1 ? -0.5F + 1.5F * z : 5.0F;
    }
    moments.add(batch.view(), 2);
  }
  const std::optional<StatisticsDifference> found = moments.difference(stored);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->layer, "bn");
  EXPECT_EQ(found->images, 4);
  EXPECT_EQ(found->channels, 2);
  // 8000 values: a mean is within 4 / sqrt(8000) deviations, a variance within 4 * sqrt(2 / 8000) of itself.
  EXPECT_THAT(found->mean_deviation, DoubleNear(std::sqrt(0.5), 3 * 4 / std::sqrt(8000.0)));
  EXPECT_THAT(found->variance_ratio, DoubleNear(9, 9 * 4 * std::sqrt(2 / 8000.0)));
}

TEST(ChannelMoments, RefuseOtherChannels) {
  ChannelMoments moments;
  moments.add(Tensor({Shape({1, 2, 4}), DType::f32}).view(), 1);
  EXPECT_THROW(moments.add(Tensor({Shape({1, 3, 4}), DType::f32}).view(), 1), Error);
  EXPECT_THROW(moments.difference({.layer = "bn", .graph = {}, .means = {0}, .variances = {1}}), Error);
}

}  // namespace
}  // namespace pipit::internal
