#include <gmock/gmock.h>

#include "layers/ops/channel_shuffle.h"
#include "tests/layers/conformance.h"
#include "tests/layers/values.h"

namespace pipit::internal {
namespace {

using ::testing::ElementsAre;

TEST(ChannelShuffle, TakesOneOfEachGroupInTurn) {
  const auto x = test::make<float>(Shape{1, 6}, {0, 1, 2, 3, 4, 5});
  EXPECT_THAT(test::results<float>(ChannelShuffle({2, {6}}), {x}), ElementsAre(0, 3, 1, 4, 2, 5));
  EXPECT_THAT(test::results<float>(ChannelShuffle({3, {6}}), {x}), ElementsAre(0, 2, 4, 1, 3, 5));
}

TEST(ChannelShuffle, JoinsAndSplits) {
  const auto a = test::make<std::int8_t>(Shape{2, 1}, {0, 10});
  const auto b = test::make<std::int8_t>(Shape{2, 3}, {1, 2, 3, 11, 12, 13});
  const std::vector<Tensor> y = test::run_reference(ChannelShuffle({2, {3, 1}}), {{a}, {b}});
  ASSERT_EQ(y.size(), 2U);
  EXPECT_THAT(y[0].values<std::int8_t>(), ElementsAre(0, 2, 1, 10, 12, 11));
  EXPECT_THAT(y[1].values<std::int8_t>(), ElementsAre(3, 13));
}

TEST(ChannelShuffle, LeavesChannelsOutAndRepeatsTheLast) {
  const auto a = test::make<std::int8_t>(Shape{2, 2}, {0, -1, 10, -1});
  const auto b = test::make<std::int8_t>(Shape{2, 3}, {1, 2, 3, 11, 12, 13});
  const std::vector<Tensor> y = test::run_reference(ChannelShuffle({2, {3, 1}, {1, 3}, {4, 3}}), {{a}, {b}});
  ASSERT_EQ(y.size(), 2U);
  EXPECT_THAT(y[0].values<std::int8_t>(), ElementsAre(0, 2, 1, 1, 10, 12, 11, 11));
  EXPECT_THAT(y[1].values<std::int8_t>(), ElementsAre(3, 3, 3, 13, 13, 13));
}

// `parts` numbers, some of them 0, of which the sum is `total`.
std::vector<std::int64_t> cut(test::Random& random, std::int64_t total, std::int64_t parts) {
  std::vector<std::int64_t> result;
  for (; parts > 1; --parts) {
    result.push_back(random.integer(0, total));
    total -= result.back();
  }
  result.push_back(total);
  return result;
}

TEST(ChannelShuffle, KernelsMatchTheReference) {
  constexpr DType kTypes[] = {DType::f32, DType::f64, DType::i8, DType::u8, DType::i32, DType::boolean};
  test::Random random;
  for (int round = 0; round < 60; ++round) {
    const std::int64_t groups = random.coin() ? 2 : random.integer(1, 7);
    const std::int64_t channels = groups * random.integer(1, 20);
    const DType type = kTypes[random.integer(0, static_cast<std::int64_t>(std::size(kTypes)) - 1)];
    const bool image = random.coin();
    test::Conformance c{.expected = {"rows"}};
    ChannelShuffleAttributes attributes{groups, cut(random, channels, random.integer(1, 3))};
    const bool wide = random.coin();
    for (const std::int64_t taken : cut(random, channels, random.integer(1, 4))) {
      const std::int64_t width = taken + (wide ? random.integer(0, 3) : 0);
      const Shape shape = image ? Shape{2, width, 3, 5} : Shape{3, width};
      c.inputs.push_back({random.tensor(shape, 0, 100, type)});
      if (wide) attributes.taken.push_back(taken);
    }
    if (wide) {
      for (const std::int64_t size : attributes.sizes)
        attributes.widths.push_back(size + (size > 0 ? random.integer(0, 5) : 0));
    }
    test::expect_conformance(ChannelShuffle(attributes), c);
  }
  // As in ShuffleNet v2, and several chunks of work.
  test::expect_conformance(ChannelShuffle({2, {58, 58}}), {.inputs = {{random.tensor(Shape{2, 58, 19, 21})},
                                                                      {random.tensor(Shape{2, 58, 19, 21})}},
                                                           .expected = {"rows"},
                                                           .expected_fp16 = {"rows"}});
}

TEST(ChannelShuffle, RefusesWhatDoesNotFit) {
  EXPECT_THROW(ChannelShuffle({0, {1}}), Error);
  EXPECT_THROW(ChannelShuffle({65, {65}}), Error);
  EXPECT_THROW(ChannelShuffle({1, {}}), Error);
  EXPECT_THROW(ChannelShuffle({1, std::vector<std::int64_t>(17, 1)}), Error);
  EXPECT_THROW(test::infer(ChannelShuffle({1, {17}}), std::vector<TensorDesc>(17, TensorDesc{Shape{1, 1}})),
               Error);
  EXPECT_THROW(test::infer(ChannelShuffle({2, {6}}), {}), Error);
  EXPECT_THROW(test::infer(ChannelShuffle({2, {6}}), {{Shape{6}}}), Error) << "no channels";
  EXPECT_THROW(test::infer(ChannelShuffle({4, {6}}), {{Shape{1, 6}}}), Error) << "groups";
  EXPECT_THROW(test::infer(ChannelShuffle({2, {6, 1}}), {{Shape{1, 6}}}), Error) << "sizes";
  EXPECT_THROW(test::infer(ChannelShuffle({2, {7, -1}}), {{Shape{1, 6}}}), Error) << "sizes";
  EXPECT_THROW(ChannelShuffle({2, {6}, {}, {6, 6}}), Error) << "widths";
  EXPECT_THROW(test::infer(ChannelShuffle({2, {6}, {}, {5}}), {{Shape{1, 6}}}), Error) << "narrow";
  EXPECT_THROW(test::infer(ChannelShuffle({2, {6, 0}, {}, {6, 1}}), {{Shape{1, 6}}}), Error) << "of what?";
  EXPECT_THROW(test::infer(ChannelShuffle({2, {6}, {3, 3}}), {{Shape{1, 6}}}), Error) << "inputs";
  EXPECT_THROW(test::infer(ChannelShuffle({2, {6}, {6}}), {{Shape{1, 5}}}), Error) << "more than there are";
  EXPECT_THROW(test::infer(ChannelShuffle({2, {6}, {-6}}), {{Shape{1, 6}}}), Error);
  EXPECT_THROW(test::infer(ChannelShuffle({2, {6}}), {{Shape{1, 3}}, {Shape{2, 3}}}), Error);
  EXPECT_THROW(test::infer(ChannelShuffle({2, {6}}), {{Shape{1, 3}}, {Shape{1, 3}, DType::i8}}), Error);
}

}  // namespace
}  // namespace pipit::internal
