// What streamed_block's groups do, with loops in their place: on the CPU, needs no GPU.
#include "layers/cuda/conv/streamed_block/plan.h"

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
using E = std::int8_t;

struct Case {
  ConvChainShape shape;
  StreamedPlan plan;
  std::vector<UnitWeights> weights;
  std::vector<int> x;  // [positions][in_c]
};

class Emulation {
 public:
  explicit Emulation(const Case& c) : c_(c), plan_(c.plan) {
    std::vector<std::vector<E>> all;
    for (const UnitWeights& w : c.weights) all.push_back(w.elements<E>());
    const auto bytes = [&](std::size_t conv) { return reinterpret_cast<const std::byte*>(all[conv].data()); };
    const std::vector<std::byte> packed = pack_streamed_weights(plan_, bytes(0), bytes(1), bytes(2));
    EXPECT_EQ(packed.size(), static_cast<std::size_t>(plan_.stages() * kStreamedWeightBytes));
    for (std::size_t at = 0; at < packed.size(); at += kUnitChannels * kStreamedInner)
      units_.push_back(test::as_products_see_it<E>(packed.data() + at, kStreamedInner));
    for (std::size_t conv = 0; conv < 3; ++conv) {
      for (int o = 0; o < c.weights[conv].out_c; o += kUnitChannels)
        constants_.push_back(test::packed_constants<E>(c.weights[conv].bias.data() + o, conv != 1));
    }
    EXPECT_EQ(constants_.size(), static_cast<std::size_t>(plan_.constant_units()));
  }

  std::vector<int> run() {
    y_.assign(static_cast<std::size_t>(plan_.positions * out_c()), -77);
    EXPECT_GT(plan_.workers * plan_.worker_tiles, plan_.tiles - plan_.worker_tiles);
    for (int worker = 0; worker < plan_.workers; ++worker) {
      const int first = worker * plan_.worker_tiles,
                count = std::min(plan_.worker_tiles, plan_.tiles - first);
      EXPECT_GT(count, 0);
      ring_.assign(static_cast<std::size_t>(kStreamedRing * kUnitRows * kStreamedInner), -99);
      const int iterations = (count + kStreamedGroups - 1) / kStreamedGroups + 1;
      for (int i = 0; i < iterations; ++i) {
        for (int g = 0; g < kStreamedGroups; ++g) head(first, count, i * kStreamedGroups + g);
        for (int g = 0; i > 0 && g < kStreamedGroups; ++g)
          window_and_tail(first, count, (i - 1) * kStreamedGroups + g);
      }
    }
    return y_;
  }

 private:
  int in_c() const { return plan_.in_chunks * kStreamedInner; }
  int out_c() const { return plan_.out_stages * kStreamedInner; }
  const E* unit(int stage, int u) const { return units_[static_cast<std::size_t>(stage * 2 + u)].data(); }
  UnitRow start(int unit) const { return test::start(constants_[static_cast<std::size_t>(unit)]); }
  int* ring_at(int local_position) {
    return ring_.data() + local_position % (kStreamedRing * kUnitRows) * kStreamedInner;
  }

  void head(int first, int count, int h) {
    if (h >= count + 2 * plan_.halo) return;
    for (int row = 0; row < kUnitRows; ++row) {
      const int position = (first - plan_.halo + h) * kUnitRows + row;
      for (int u = 0; u < 2; ++u) {
        UnitRow sums = start(u);
        for (int chunk = 0; chunk < plan_.in_chunks && position >= 0 && position < plan_.positions; ++chunk)
          test::multiply(sums, c_.x.data() + position * in_c() + chunk * kStreamedInner, unit(chunk, u),
                         kStreamedInner);
        int* to = ring_at(h * kUnitRows + row) + u * kUnitChannels;
        for (int lane = 0; lane < 4; ++lane) {
          for (int index = 0; index < 16; ++index)
            to[test::stored_at<E>(lane, index)] = finish(sums[lane][index], 0);
        }
      }
    }
  }

  void window_and_tail(int first, int count, int output) {
    const std::vector<int> zeros(kStreamedInner);
    for (int row = 0; row < kUnitRows && output < count; ++row) {
      const int position = (first + output) * kUnitRows + row;
      if (position >= plan_.positions) continue;
      const int h = position / plan_.width % plan_.height, at = position % plan_.width;
      std::array<int, kStreamedInner> operands{};
      for (int u = 0; u < 2; ++u) {
        UnitRow sums = start(2 + u);
        for (int t = 0; t < kBlockTaps; ++t) {
          const int dy = t / 3 - 1, dx = t % 3 - 1;
          const bool inside = h + dy >= 0 && h + dy < plan_.height && at + dx >= 0 && at + dx < plan_.width;
          const int from = (output + plan_.halo) * kUnitRows + row + dy * plan_.width + dx;
          test::multiply(sums, inside ? ring_at(from) : zeros.data(), unit(plan_.in_chunks + t, u),
                         kStreamedInner);
        }
        for (int lane = 0; lane < 4; ++lane) {
          for (int index = 0; index < 16; ++index)
            operands[static_cast<std::size_t>(u * kUnitChannels + test::operand_at<E>(lane, index))] =
                finish(sums[lane][index], 0);
        }
      }
      for (int u = 0; u < 2 * plan_.out_stages; ++u) {
        UnitRow sums = start(4 + u);
        test::multiply(sums, operands.data(), unit(plan_.in_chunks + kBlockTaps + u / 2, u % 2),
                       kStreamedInner);
        for (int lane = 0; lane < 4; ++lane) {
          for (int index = 0; index < 16; ++index) {
            const int to = position * out_c() + u * kUnitChannels + test::stored_at<E>(lane, index);
            const int added = plan_.adds_x ? c_.x[static_cast<std::size_t>(to)] : 0;
            y_[static_cast<std::size_t>(to)] = finish(sums[lane][index], added);
          }
        }
      }
    }
  }

  const Case& c_;
  const StreamedPlan& plan_;
  std::vector<std::vector<E>> units_;
  std::vector<std::array<int, kUnitChannels>> constants_;
  std::vector<int> ring_, y_;
};

TEST(StreamedBlockPlan, ComputesTheBlock) {
  const unsigned seed = test::gpu_seed() + 520;
  std::mt19937 random(seed);
  for (int i = 0; i < 8; ++i) {
    Case c;
    do {
      c.shape = test::random_block(random, 1, i % 2, kStreamedInner);
    } while (c.shape.inputs[0] + c.shape.convs.back().out_c < 3 * kStreamedInner);
    c.shape.images = test::draw(random, 1, 3), c.shape.height = test::draw(random, 1, 9);
    c.shape.width = test::draw(random, 0, 3) == 0 ? test::draw(random, 60, 127) : test::draw(random, 1, 30);
    const std::optional<BlockRoles> roles = block_roles(c.shape, kStreamedInner);
    ASSERT_TRUE(roles) << "case " << i << ", seed " << seed;
    const auto plan = plan_streamed_block(c.shape, *roles, test::draw(random, 1, 5));
    ASSERT_TRUE(std::holds_alternative<StreamedPlan>(plan))
        << std::get<std::string>(plan) << ", seed " << seed;
    c.plan = std::get<StreamedPlan>(plan);
    EXPECT_LE(c.plan.shared_bytes(), kBlockMostShared);
    for (const ChainConv& conv : c.shape.convs)
      c.weights.emplace_back(conv.in_c, conv.out_c, conv.window ? 9 : 1, random);
    c.x.resize(static_cast<std::size_t>(c.plan.positions * c.shape.inputs[0]));
    for (int& v : c.x) v = test::draw(random, -4, 4);
    ASSERT_EQ(Emulation(c).run(), test::plain(c.shape, c.weights, c.x)) << "case " << i << ", seed " << seed;
  }
}

TEST(StreamedBlockPlan, RefusesWhatItHasNoRoomFor) {
  const ConvChainShape block{
      1, 8, 8, 1, {512}, {{0, -1, 512, 128, false}, {1, -1, 128, 128, true}, {2, 0, 128, 512, false}}};
  const auto reason = [&](auto change) {
    ConvChainShape other = block;
    change(other);
    const auto plan = plan_streamed_block(other, block_roles(other, kStreamedInner).value(), 132);
    const auto* why = std::get_if<std::string>(&plan);
    return why == nullptr ? "" : *why;
  };
  EXPECT_EQ(reason([](ConvChainShape&) {}), "");
  EXPECT_THAT(reason([](ConvChainShape& s) { s.element_bytes = 2; }), testing::HasSubstr("int8"));
  EXPECT_THAT(reason([](ConvChainShape& s) { s.width = 128; }), testing::HasSubstr("longer"));
  EXPECT_THAT(
      reason([](ConvChainShape& s) { s.inputs = {128}, s.convs[0].in_c = 128, s.convs[2].out_c = 128; }),
      testing::HasSubstr("too few"));
  EXPECT_THAT(reason([](ConvChainShape& s) {
                s.inputs = {64 * 9}, s.convs[0].in_c = 64 * 9, s.convs[2].out_c = 64 * 9;
              }),
              testing::HasSubstr("128"));
  EXPECT_THAT(
      reason([](ConvChainShape& s) { s.inputs = {4096}, s.convs[0].in_c = 4096, s.convs[2].out_c = 4096; }),
      testing::HasSubstr("room"));
}

}  // namespace
}  // namespace pipit::cuda
