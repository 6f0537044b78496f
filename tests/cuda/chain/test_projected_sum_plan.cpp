// What projected_sum's groups do, with loops in their place: on the CPU, needs no GPU.
#include "layers/cuda/conv/projected_sum/plan.h"

#include <gmock/gmock.h>

#include <array>
#include <variant>

#include "tests/cuda/chain/unit_emulation.h"
#include "tests/cuda/seed.h"

namespace pipit::cuda {
namespace {

using test::finish;
using test::UnitRow;
using test::UnitWeights;

struct Case {
  ProjectedSumShape shape;
  ProjectedSumPlan plan;
  std::vector<UnitWeights> weights;  // of what is added, of the other
  std::vector<std::vector<int>> x;   // [positions][in_c] of each
};

// Both convolutions of a position's output; in halves both are one sum.
std::vector<int> plain(const Case& c) {
  std::vector<int> y;
  for (int p = 0; p < c.plan.positions; ++p) {
    for (int o = 0; o < c.shape.out_c; ++o) {
      int sums[2];
      for (std::size_t n = 0; n < 2; ++n) {
        const UnitWeights& w = c.weights[n];
        sums[n] = w.bias[static_cast<std::size_t>(o)];
        for (int k = 0; k < w.in_c; ++k)
          sums[n] += c.x[n][static_cast<std::size_t>(p * w.in_c + k)] *
                     w.values[static_cast<std::size_t>(o * w.in_c + k)];
      }
      y.push_back(c.shape.element_bytes == 2 ? finish(sums[0] + sums[1], 0)
                                             : finish(sums[1], finish(sums[0], 0)));
    }
  }
  return y;
}

template <typename E>
std::vector<int> emulated(const Case& c) {
  const ProjectedSumPlan& plan = c.plan;
  const int channels = kBlockChunkBytes / static_cast<int>(sizeof(E));
  const std::vector<E> added = c.weights[0].elements<E>(), other = c.weights[1].elements<E>();
  const std::vector<std::byte> packed =
      pack_projected_sum(plan, reinterpret_cast<const std::byte*>(added.data()),
                         reinterpret_cast<const std::byte*>(other.data()));
  EXPECT_EQ(packed.size(), static_cast<std::size_t>(plan.slices * plan.weight_bytes()));
  std::vector<int> y(static_cast<std::size_t>(plan.positions * c.shape.out_c), -77);
  const auto row = [&](int slice, int stage, int u, int conv, int position, UnitRow& sums) {
    for (int chunk = 0; chunk < plan.chunks[conv]; ++chunk) {
      const int at = stage * plan.tile_chunks() + (conv == 1 ? plan.chunks[0] : 0) + chunk;
      const std::byte* unit = packed.data() + std::ptrdiff_t{slice} * plan.weight_bytes() +
                              at * kSumStageBytes + u * kUnitChannels * kBlockChunkBytes;
      const int in_c = plan.chunks[conv] * channels;
      test::multiply(sums, c.x[static_cast<std::size_t>(conv)].data() + position * in_c + chunk * channels,
                     test::as_products_see_it<E>(unit, channels).data(), channels);
    }
  };
  for (int slice = 0; slice < plan.slices; ++slice) {
    for (int stage = 0; stage < plan.stages; ++stage) {
      for (int u = 0; u < 2; ++u) {
        const int first = ((slice * plan.stages + stage) * 2 + u) * kUnitChannels;
        const auto start = [&](std::size_t conv) {
          return test::start(test::packed_constants<E>(c.weights[conv].bias.data() + first, true));
        };
        for (int position = 0; position < plan.positions; ++position) {
          UnitRow sums[2] = {start(0), start(1)};
          for (int conv = 0; conv < 2; ++conv) row(slice, stage, u, conv, position, sums[conv]);
          for (int lane = 0; lane < 4; ++lane) {
            for (int index = 0; index < 16; ++index) {
              const int a = sums[0][static_cast<std::size_t>(lane)][static_cast<std::size_t>(index)];
              const int b = sums[1][static_cast<std::size_t>(lane)][static_cast<std::size_t>(index)];
              y[static_cast<std::size_t>(position * c.shape.out_c + first +
                                         test::stored_at<E>(lane, index))] =
                  sizeof(E) == 2 ? finish(a + b, 0) : finish(b, finish(a, 0));
            }
          }
        }
      }
    }
  }
  return y;
}

template <typename E>
void compare(unsigned seed) {
  std::mt19937 random(seed);
  for (int i = 0; i < 6; ++i) {
    Case c;
    const int channels = kBlockChunkBytes / static_cast<int>(sizeof(E));
    c.shape.element_bytes = sizeof(E);
    c.shape.positions = test::draw(random, 1, 150);
    const int first = test::draw(random, 1, 5);
    c.shape.in_c[0] = channels * first, c.shape.in_c[1] = channels * test::draw(random, 1, 6 - first);
    c.shape.out_c = kSumStageOutputs * test::draw(random, 1, 6);
    const auto plan = plan_projected_sum(c.shape, test::draw(random, 1, 132));
    ASSERT_TRUE(std::holds_alternative<ProjectedSumPlan>(plan))
        << std::get<std::string>(plan) << ", seed " << seed;
    c.plan = std::get<ProjectedSumPlan>(plan);
    EXPECT_LE(c.plan.shared_bytes(), kBlockMostShared);
    EXPECT_GE(c.plan.slots, 2 * c.plan.tile_chunks());
    EXPECT_EQ(c.plan.slices * c.plan.stages * kSumStageOutputs, c.shape.out_c);
    EXPECT_LE(c.plan.workers, c.plan.tiles);
    for (const int in_c : c.shape.in_c) {
      c.weights.emplace_back(in_c, c.shape.out_c, 1, random);
      c.x.emplace_back(static_cast<std::size_t>(c.plan.positions * in_c));
      for (int& v : c.x.back()) v = test::draw(random, -4, 4);
    }
    ASSERT_EQ(emulated<E>(c), plain(c)) << "case " << i << ", seed " << seed;
  }
}

TEST(ProjectedSumPlan, ComputesTheSumInBytes) {
  compare<std::int8_t>(test::gpu_seed() + 530);
}
TEST(ProjectedSumPlan, ComputesTheSumInHalves) {
  compare<std::int16_t>(test::gpu_seed() + 531);
}

// ResNet-50's changes of resolution: what fits, and that blocks are about as many as processors.
TEST(ProjectedSumPlan, FitsTheFirstChangesOfResolution) {
  const auto plan = [](const ProjectedSumShape& shape) { return plan_projected_sum(shape, 132); };
  const auto second = std::get<ProjectedSumPlan>(plan({1, 100352, {128, 256}, 512}));
  EXPECT_EQ(second.slices, 2);
  EXPECT_EQ(second.workers, 66);
  const auto third = std::get<ProjectedSumPlan>(plan({1, 25088, {256, 512}, 1024}));
  EXPECT_EQ(third.slices, 8);
  EXPECT_EQ(third.workers, 16);
  EXPECT_THAT(std::get<std::string>(plan({1, 6272, {512, 1024}, 2048})), testing::HasSubstr("room"));
  EXPECT_THAT(std::get<std::string>(plan({1, 100, {128, 192}, 512})), testing::HasSubstr("128 bytes"));
  EXPECT_THAT(std::get<std::string>(plan({1, 100, {128, 256}, 64})), testing::HasSubstr("128"));
}

}  // namespace
}  // namespace pipit::cuda
