// What image_chain divides how: on the CPU, needs no GPU. The kernel itself runs in test_emulated.
#include "layers/cuda/conv/image_chain/plan.h"

#include <gmock/gmock.h>

#include <variant>

#include "tests/cuda/chain/random_chain.h"

namespace pipit::cuda {
namespace {

ConvChainShape blocks(int images, int size, int channels, int count) {
  return test::residual_blocks(images, size, size, channels, count);
}

// What an H200 was seen to hold.
int clusters_of(const ImageChainPlan& plan) {
  return plan.ranks == 1 ? 132 : plan.ranks == 2 ? 66 : plan.ranks == 4 ? 30 : 15;
}

ImageChainPlan plan_of(const ConvChainShape& shape) {
  const auto plan = plan_image_chain(shape, clusters_of);
  EXPECT_TRUE(std::holds_alternative<ImageChainPlan>(plan)) << std::get<std::string>(plan);
  return std::get<ImageChainPlan>(plan);
}

TEST(ImageChainPlan, DividesImagesAmongAsManyRanksAsThereIsRoomFor) {
  // The 14x14 stage of ResNet-50.
  const ImageChainPlan few = plan_of(blocks(30, 14, 1024, 5)), many = plan_of(blocks(128, 14, 1024, 5));
  EXPECT_EQ(few.ranks, 4);
  EXPECT_EQ(few.rows, 4);
  EXPECT_EQ(few.tiles, 1);
  EXPECT_EQ(few.ring, 8);
  EXPECT_EQ(many.ranks, 2);
  EXPECT_EQ(many.rows, 7);
  EXPECT_EQ(many.tiles, 2);
  EXPECT_EQ(many.ring, 4);
  for (const ImageChainPlan& plan : {few, many}) {
    EXPECT_LE(plan.shared_bytes(), kBlockMostShared);
    // 1114112 weights of a residual block.
    EXPECT_EQ(plan.stages() * kImageStageBytes, 2 * 256 * 1024 + 9 * 256 * 256);
  }
}

TEST(ImageChainPlan, EveryRankHasRows) {
  for (int size = 1; size <= 40; ++size) {
    const auto planned = plan_image_chain(blocks(3, size, 256, 1), clusters_of);
    const auto* plan = std::get_if<ImageChainPlan>(&planned);
    if (plan == nullptr) continue;
    EXPECT_GT(plan->height - (plan->ranks - 1) * plan->rows, 0) << size;
    EXPECT_GE(plan->ranks * plan->rows, plan->height) << size;
    EXPECT_LE(plan->positions(), plan->tiles * kUnitRows) << size;
    EXPECT_LE(plan->ring, 4 * plan->chunks()) << size;
  }
}

TEST(ImageChainPlan, PaysWhereClustersAreFull) {
  const auto pays = [](int images) { return image_chain_pays(plan_of(blocks(images, 14, 1024, 5))); };
  for (const int images : {63, 64, 66, 126, 128, 132, 190, 198, 1192, 2048})
    EXPECT_TRUE(pays(images)) << images;
  for (const int images : {1, 16, 30, 32, 62, 67, 90, 100, 125, 150, 600, 1191})
    EXPECT_FALSE(pays(images)) << images;
  // More clusters than one round has room for wait, so two ranks with two tiles take one image each.
  EXPECT_EQ(plan_of(blocks(32, 14, 1024, 5)).ranks, 2);
  // A GPU that holds no cluster.
  const auto none = plan_image_chain(blocks(2, 14, 1024, 2), [](const ImageChainPlan&) { return 0; });
  EXPECT_TRUE(std::holds_alternative<std::string>(none));
}

TEST(ImageChainPlan, WeightsComeInTheOrderOfTheirUse) {
  const ImageChainPlan plan = plan_of(blocks(1, 4, 512, 1));
  std::vector<std::byte> head(256 * 512, std::byte{1}), window(9 * 256 * 256), tail(512 * 256, std::byte{99});
  for (std::size_t i = 0; i < window.size(); ++i) window[i] = static_cast<std::byte>(10 + i / 256 % 9);
  std::vector<std::byte> packed;
  append_image_weights(plan, head.data(), window.data(), tail.data(), packed);
  ASSERT_EQ(packed.size(), static_cast<std::size_t>(plan.stages()) * kImageStageBytes);
  for (int s = 0; s < plan.stages(); ++s) {
    const int expected = s < 8 ? 1 : s < 8 + 36 ? 10 + (s - 8) / 4 : 99;
    EXPECT_EQ(packed[static_cast<std::size_t>(s) * kImageStageBytes], static_cast<std::byte>(expected)) << s;
  }
}

TEST(ImageChainPlan, RefusesWhatItHasNoRoomFor) {
  const auto reason = [](auto change) {
    ConvChainShape shape = blocks(2, 14, 1024, 2);
    change(shape);
    const auto plan = plan_image_chain(shape, clusters_of);
    const auto* why = std::get_if<std::string>(&plan);
    return why == nullptr ? "" : *why;
  };
  EXPECT_EQ(reason([](ConvChainShape&) {}), "");
  EXPECT_THAT(reason([](ConvChainShape& s) { s.element_bytes = 2; }), testing::HasSubstr("int8"));
  EXPECT_THAT(reason([](ConvChainShape& s) { s.convs.pop_back(); }), testing::HasSubstr("residual blocks"));
  EXPECT_THAT(reason([](ConvChainShape& s) { s.convs[5].residual = 0; }),
              testing::HasSubstr("residual blocks"));
  EXPECT_THAT(reason([](ConvChainShape& s) { s = blocks(2, 14, 640, 1); }), testing::HasSubstr("256"));
  EXPECT_THAT(reason([](ConvChainShape& s) { s = blocks(2, 14, 256, 23); }), testing::HasSubstr("blocks"));
  EXPECT_THAT(reason([](ConvChainShape& s) { s = blocks(2, 56, 1024, 1); }), testing::HasSubstr("fit"));
  EXPECT_THAT(reason([](ConvChainShape& s) { s = blocks(2, 8, 16384, 1); }), testing::HasSubstr("fit"));
}

}  // namespace
}  // namespace pipit::cuda
