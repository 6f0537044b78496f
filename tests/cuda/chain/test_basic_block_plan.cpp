// What basic_block's groups do, with loops in their place: on the CPU, needs no GPU.
#include "layers/cuda/conv/basic_block/plan.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <variant>

#include "tests/cuda/chain/unit_emulation.h"
#include "tests/cuda/seed.h"

namespace pipit::cuda {
namespace {

using testing::HasSubstr;

using test::finish;
using test::UnitRow;
using test::UnitWeights;

ConvChainShape block_shape(int images, int height, int width, int element_bytes, bool adds) {
  constexpr int kC = kUnitChannels;
  return {images,        height, width,
          element_bytes, {kC},   {{0, -1, kC, kC, true}, {1, adds ? 0 : -1, kC, kC, true}}};
}

template <typename E>
class Emulation {
 public:
  Emulation(const BasicBlockPlan& plan, const std::vector<UnitWeights>& weights, const std::vector<int>& x)
      : plan_(plan), x_(x) {
    for (const UnitWeights& w : weights) pack(w);
    const auto tiles = [](int count) {
      return std::vector<int>(static_cast<std::size_t>(count) * kTile, -99);
    };
    x_ring_ = tiles(plan.x_ring), ring_ = tiles(plan.ring);
  }

  // x is brought and heads run as early as they may, or as late.
  std::vector<int> run(int workers, bool eager) {
    y_.assign(x_.size(), -77);
    for (int worker = 0, first = 0; worker < workers; ++worker) {
      const int count = plan_.tiles / workers + (worker < plan_.tiles % workers ? 1 : 0);
      held_.assign(static_cast<std::size_t>(count + plan_.lag), {});
      int heads = 0, brought = 0;
      for (int i = plan_.lag; i < count + plan_.lag; ++i) {
        const int allowed = i - 1 + plan_.ring - plan_.lag;  // its room was read by iteration i - 1
        EXPECT_LE(i, allowed);
        for (; heads <= (eager ? std::min(allowed, count + plan_.lag - 1) : i); ++heads) {
          const int room = heads - 1 + plan_.x_ring;  // likewise
          EXPECT_LE(heads + plan_.lag, room);
          for (; brought <= (eager ? room : heads + plan_.lag); ++brought) bring(first, brought);
          head(first, heads);
        }
        tail(first, i);
      }
      first += count;
    }
    return y_;
  }

 private:
  static constexpr int kTile = kUnitRows * kUnitChannels;

  void pack(const UnitWeights& w) {
    const std::vector<E> elements = w.elements<E>();
    for (int t = 0; t < kBlockTaps; ++t) {
      std::vector<std::byte> unit(static_cast<std::size_t>(plan_.unit_bytes()));
      pack_unit(reinterpret_cast<const std::byte*>(elements.data()), w.in_c, w.taps, t, 0, 0, true, sizeof(E),
                unit.data());
      units_.push_back(test::as_products_see_it<E>(unit.data(), kUnitChannels));
    }
    constants_.push_back(test::packed_constants<E>(w.bias.data(), true));
  }

  int* row_of(std::vector<int>& ring, int local_position) {
    return &ring[static_cast<std::size_t>(local_position) * kUnitChannels % ring.size()];
  }

  void bring(int first, int j) {
    for (int row = 0; row < kUnitRows; ++row) {
      const int position = (first - plan_.lag + j) * kUnitRows + row;
      const bool exists = position >= 0 && position < plan_.positions;
      int* to = row_of(x_ring_, j * kUnitRows + row);
      for (int c = 0; c < kUnitChannels; ++c)
        to[c] = exists ? x_[static_cast<std::size_t>(position * kUnitChannels + c)] : 0;
    }
  }

  // Of a position of the images, whose row of the ring is the one at `from`.
  UnitRow convolve(int conv, int position, std::vector<int>& ring, int from) {
    const std::vector<int> zeros(kUnitChannels);
    const int h = position / plan_.width % plan_.height, at = position % plan_.width;
    UnitRow sums = test::start(constants_[static_cast<std::size_t>(conv)]);
    for (int t = 0; t < kBlockTaps; ++t) {
      const int dy = t / 3 - 1, dx = t % 3 - 1;
      const bool inside = h + dy >= 0 && h + dy < plan_.height && at + dx >= 0 && at + dx < plan_.width;
      test::multiply(sums, inside ? row_of(ring, from + dy * plan_.width + dx) : zeros.data(),
                     units_[static_cast<std::size_t>(conv * kBlockTaps + t)].data(), kUnitChannels);
    }
    return sums;
  }

  void head(int first, int i) {
    const int* x = row_of(x_ring_, i * kUnitRows);
    held_[static_cast<std::size_t>(i)].assign(x, x + kTile);
    const int tile = first - plan_.halo + i;
    if (tile < 0 || tile >= plan_.tiles) return;
    for (int row = 0; row < kUnitRows; ++row) {
      const int position = tile * kUnitRows + row;
      if (position >= plan_.positions) continue;
      const UnitRow sums = convolve(0, position, x_ring_, (i + plan_.halo) * kUnitRows + row);
      store(row_of(ring_, i * kUnitRows + row), sums, nullptr);
    }
  }

  void tail(int first, int i) {
    for (int row = 0; row < kUnitRows; ++row) {
      const int position = (first + i - plan_.lag) * kUnitRows + row;
      if (position >= plan_.positions) continue;
      const UnitRow sums = convolve(1, position, ring_, (i - plan_.halo) * kUnitRows + row);
      const int* added = &held_[static_cast<std::size_t>(i)][static_cast<std::size_t>(row * kUnitChannels)];
      store(&y_[static_cast<std::size_t>(position * kUnitChannels)], sums, plan_.adds_x ? added : nullptr);
    }
  }

  static void store(int* to, const UnitRow& sums, const int* added) {
    for (int lane = 0; lane < 4; ++lane) {
      for (int index = 0; index < 16; ++index) {
        const int channel = test::stored_at<E>(lane, index);
        to[channel] = finish(sums[static_cast<std::size_t>(lane)][static_cast<std::size_t>(index)],
                             added == nullptr ? 0 : added[channel]);
      }
    }
  }

  const BasicBlockPlan& plan_;
  const std::vector<int>& x_;  // [positions][64]
  std::vector<std::vector<E>> units_;
  std::vector<std::array<int, kUnitChannels>> constants_;
  std::vector<int> x_ring_, ring_, y_;
  std::vector<std::vector<int>> held_;  // x that an iteration adds
};

template <typename E>
void compare(unsigned seed) {
  std::mt19937 random(seed);
  for (int i = 0; i < 8; ++i) {
    const int width = i % 4 == 0 ? test::draw(random, 60, 127) : test::draw(random, 1, 30);
    const ConvChainShape shape =
        block_shape(test::draw(random, 1, 2), test::draw(random, 1, 9), width, sizeof(E), i % 2 == 0);
    ASSERT_TRUE(is_basic_block(shape));
    const auto planned = plan_basic_block(shape);
    const auto* plan = std::get_if<BasicBlockPlan>(&planned);
    ASSERT_NE(plan, nullptr) << std::get<std::string>(planned) << ", seed " << seed;
    EXPECT_LE(plan->shared_bytes(), kBlockMostShared);
    EXPECT_LE(plan->x_ring, kBasicTurns);
    std::vector<UnitWeights> weights;
    for (int conv = 0; conv < 2; ++conv)
      weights.emplace_back(kUnitChannels, kUnitChannels, kBlockTaps, random);
    std::vector<int> x(static_cast<std::size_t>(plan->positions * kUnitChannels));
    for (int& v : x) v = test::draw(random, -4, 4);
    const std::vector<int> expected = test::plain(shape, weights, x);
    const int workers = test::draw(random, 1, plan->tiles);
    for (const bool eager : {false, true}) {
      ASSERT_EQ(Emulation<E>(*plan, weights, x).run(workers, eager), expected)
          << "case " << i << ", " << workers << " workers, eager " << eager << ", seed " << seed;
    }
  }
}

TEST(BasicBlockPlan, ComputesTheBlockInBytes) {
  compare<std::int8_t>(test::gpu_seed() + 430);
}
TEST(BasicBlockPlan, ComputesTheBlockInHalves) {
  compare<std::int16_t>(test::gpu_seed() + 431);
}

// At 56x56 nobody waits for room: every group has tiles of its own in both rings.
TEST(BasicBlockPlan, HasATileForEveryGroup) {
  for (const int element_bytes : {1, 2}) {
    const auto plan = std::get<BasicBlockPlan>(plan_basic_block(block_shape(1, 56, 56, element_bytes, true)));
    EXPECT_EQ(plan.tiles, 49);
    EXPECT_EQ(plan.halo, 1);
    EXPECT_GE(plan.x_ring, plan.lag + block_groups(element_bytes));
    EXPECT_GE(plan.ring, plan.lag + block_groups(element_bytes));
  }
}

TEST(BasicBlockPlan, RefusesOtherChains) {
  const ConvChainShape block = block_shape(1, 8, 8, 1, true);
  const auto refuses = [&](auto change) {
    ConvChainShape other = block;
    change(other);
    return !is_basic_block(other);
  };
  EXPECT_FALSE(refuses([](ConvChainShape&) {}));
  EXPECT_FALSE(refuses([](ConvChainShape& s) { s.convs[1].residual = -1; }));
  EXPECT_TRUE(refuses([](ConvChainShape& s) { s.convs.pop_back(); }));
  EXPECT_TRUE(refuses([](ConvChainShape& s) { s.convs.push_back({2, -1, 64, 64, true}); }));
  EXPECT_TRUE(refuses([](ConvChainShape& s) { s.convs[0].window = false; }));
  EXPECT_TRUE(refuses([](ConvChainShape& s) { s.convs[1].window = false; }));
  EXPECT_TRUE(refuses([](ConvChainShape& s) { s.convs[0].in_c = 128; }));
  EXPECT_TRUE(refuses([](ConvChainShape& s) { s.convs[1].out_c = 128; }));
  EXPECT_TRUE(refuses([](ConvChainShape& s) { s.convs[0].residual = 0; }));
  EXPECT_TRUE(refuses([](ConvChainShape& s) { s.convs[1].residual = 1; }));
  EXPECT_TRUE(refuses([](ConvChainShape& s) { s.convs[1].x = 0; }));
  EXPECT_TRUE(refuses([](ConvChainShape& s) { s.inputs.push_back(64); }));
}

TEST(BasicBlockPlan, RefusesLongRows) {
  const auto reason = [](int width, int element_bytes) {
    const auto plan = plan_basic_block(block_shape(1, 4, width, element_bytes, true));
    return std::holds_alternative<std::string>(plan) ? std::get<std::string>(plan) : "";
  };
  EXPECT_EQ(reason(447, 1), "");
  EXPECT_THAT(reason(448, 1), HasSubstr("too long"));
  EXPECT_EQ(reason(127, 2), "");
  EXPECT_THAT(reason(128, 2), HasSubstr("no room"));
}

}  // namespace
}  // namespace pipit::cuda
