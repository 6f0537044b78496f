// What resident_block's groups do, with loops in their place: on the CPU, needs no GPU.
#include <gmock/gmock.h>

#include <array>
#include <variant>

#include "layers/cuda/conv/resident_block/plan.h"
#include "tests/cuda/chain/unit_emulation.h"
#include "tests/cuda/seed.h"

namespace pipit::cuda {
namespace {

using testing::HasSubstr;

using test::finish;
using test::UnitRow;
using test::UnitWeights;

struct Case {
  ConvChainShape shape;
  BlockRoles roles;
  BlockPlan plan;
  std::vector<UnitWeights> weights;
  std::vector<int> x;  // [positions][in_c]
};

template <typename E>
class Emulation {
 public:
  explicit Emulation(const Case& c) : c_(c), plan_(c.plan) {
    for (const int role : {c.roles.head, c.roles.window, c.roles.tail, c.roles.projection}) {
      if (role >= 0) pack(c.weights[static_cast<std::size_t>(role)], role != c.roles.window);
    }
    ring_.resize(static_cast<std::size_t>(plan_.ring * kUnitRows * kUnitChannels), -99);
  }

  // Heads run as early as they may, or as late.
  std::vector<int> run(int workers, bool eager) {
    const int out_c = plan_.out_units * kUnitChannels;
    y_.assign(static_cast<std::size_t>(plan_.positions * out_c), -77);
    for (int worker = 0, first = 0; worker < workers; ++worker) {
      const int count = plan_.tiles / workers + (worker < plan_.tiles % workers ? 1 : 0);
      int heads = 0;
      for (int i = plan_.lag; i < count + plan_.lag; ++i) {
        const int needed = i - plan_.lag + 2 * plan_.halo;   // the last one that the window waits for
        const int allowed = i - 1 + plan_.ring - plan_.lag;  // its room was read by iteration i - 1
        EXPECT_LE(needed, allowed);
        for (; heads <= (eager ? allowed : needed); ++heads) head(first, heads);
        window_and_tail(first, i - plan_.lag);
      }
      first += count;
    }
    return y_;
  }

 private:
  void pack(const UnitWeights& w, bool stored) {
    const std::vector<E> elements = w.elements<E>();
    const auto* bytes = reinterpret_cast<const std::byte*>(elements.data());
    for (int o = 0; o < w.out_c; o += kUnitChannels) {
      for (int t = 0; t < w.taps; ++t) {
        for (int k = 0; k < w.in_c; k += kUnitChannels) {
          std::vector<std::byte> unit(static_cast<std::size_t>(plan_.unit_bytes()));
          pack_unit(bytes, w.in_c, w.taps, t, k, o, stored, sizeof(E), unit.data());
          units_.push_back(test::as_products_see_it<E>(unit.data(), kUnitChannels));
        }
      }
      constants_.push_back(test::packed_constants<E>(w.bias.data() + o, stored));
    }
  }

  UnitRow start(int constants) const { return test::start(constants_[static_cast<std::size_t>(constants)]); }
  void multiply(UnitRow& sums, const int* left, int unit) const {
    test::multiply(sums, left, units_[static_cast<std::size_t>(unit)].data(), kUnitChannels);
  }

  const int* x_of(int position, int unit) const {
    return c_.x.data() + (position * plan_.in_units + unit) * kUnitChannels;
  }
  int* ring_at(int local_position) {
    return ring_.data() + local_position % (plan_.ring * kUnitRows) * kUnitChannels;
  }

  void head(int first, int i) {
    const int tile = first - plan_.halo + i;
    if (tile < 0 || tile >= plan_.tiles) return;
    for (int row = 0; row < kUnitRows; ++row) {
      const int position = tile * kUnitRows + row;
      UnitRow sums = start(0);
      for (int unit = 0; unit < plan_.in_units && position < plan_.positions; ++unit)
        multiply(sums, x_of(position, unit), unit);
      int* to = ring_at(i * kUnitRows + row);
      for (int lane = 0; lane < 4; ++lane) {
        for (int index = 0; index < 16; ++index)
          to[test::stored_at<E>(lane, index)] = finish(sums[lane][index], 0);
      }
    }
  }

  void window_and_tail(int first, int output) {
    const int out_c = plan_.out_units * kUnitChannels;
    const std::vector<int> zeros(kUnitChannels);
    for (int row = 0; row < kUnitRows; ++row) {
      const int position = (first + output) * kUnitRows + row;
      if (position >= plan_.positions) continue;
      const int h = position / plan_.width % plan_.height, at = position % plan_.width;
      UnitRow sums = start(1);
      for (int t = 0; t < kBlockTaps; ++t) {
        const int dy = t / 3 - 1, dx = t % 3 - 1;
        const bool inside = h + dy >= 0 && h + dy < plan_.height && at + dx >= 0 && at + dx < plan_.width;
        const int from = (output + plan_.halo) * kUnitRows + row + dy * plan_.width + dx;
        multiply(sums, inside ? ring_at(from) : zeros.data(), plan_.in_units + t);
      }
      std::array<int, kUnitChannels> operands{};
      for (int lane = 0; lane < 4; ++lane) {
        for (int index = 0; index < 16; ++index)
          operands[static_cast<std::size_t>(test::operand_at<E>(lane, index))] = finish(sums[lane][index], 0);
      }
      for (int unit = 0; unit < plan_.out_units; ++unit) {
        UnitRow tail = start(2 + unit), projected{};
        multiply(tail, operands.data(), plan_.in_units + kBlockTaps + unit);
        if (plan_.projects()) {
          projected = start(2 + plan_.out_units + unit);
          multiply(projected, x_of(position, 0), plan_.in_units + kBlockTaps + plan_.out_units + unit);
        }
        const bool last = plan_.adds == BlockAdds::tail;  // the projection is
        const UnitRow& added = last ? tail : projected;
        const UnitRow& sums_of_y = last ? projected : tail;
        for (int lane = 0; lane < 4; ++lane) {
          for (int index = 0; index < 16; ++index) {
            const int channel = unit * kUnitChannels + test::stored_at<E>(lane, index);
            const int residual = plan_.projects()             ? finish(added[lane][index], 0)
                                 : plan_.adds == BlockAdds::x ? x_of(position, 0)[channel]
                                                              : 0;
            y_[static_cast<std::size_t>(position * out_c + channel)] =
                finish(sums_of_y[lane][index], residual);
          }
        }
      }
    }
  }

  const Case& c_;
  const BlockPlan& plan_;
  std::vector<std::vector<E>> units_;
  std::vector<std::array<int, kUnitChannels>> constants_;
  std::vector<int> ring_, y_;
};

template <typename E>
void compare(unsigned seed) {
  std::mt19937 random(seed);
  for (int i = 0; i < 8; ++i) {
    Case c;
    c.shape = test::random_block(random, sizeof(E), test::draw(random, 0, 3));
    c.shape.images = test::draw(random, 1, 2), c.shape.height = test::draw(random, 1, 9);
    c.shape.width = test::draw(random, 0, 3) == 0 ? test::draw(random, 60, 90) : test::draw(random, 1, 30);
    const std::optional<BlockRoles> roles = block_roles(c.shape, kUnitChannels);
    ASSERT_TRUE(roles) << "case " << i << ", seed " << seed;
    c.roles = *roles;
    const auto plan = plan_block(c.shape, c.roles);
    if (const auto* reason = std::get_if<std::string>(&plan)) {
      // Wide images in fp16, where weights leave room for few tiles.
      EXPECT_THAT(*reason, HasSubstr("no room"));
      EXPECT_TRUE(c.shape.width > 63 && sizeof(E) == 2);
      continue;
    }
    c.plan = std::get<BlockPlan>(plan);
    EXPECT_LE(c.plan.shared_bytes(), kBlockMostShared);
    for (const ChainConv& conv : c.shape.convs)
      c.weights.emplace_back(conv.in_c, conv.out_c, conv.window ? 9 : 1, random);
    c.x.resize(static_cast<std::size_t>(c.plan.positions * c.shape.inputs[0]));
    for (int& v : c.x) v = test::draw(random, -4, 4);
    const std::vector<int> expected = test::plain(c.shape, c.weights, c.x);
    const int workers = test::draw(random, 1, c.plan.tiles);
    for (const bool eager : {false, true}) {
      ASSERT_EQ(Emulation<E>(c).run(workers, eager), expected)
          << "case " << i << ", " << workers << " workers, eager " << eager << ", seed " << seed;
    }
  }
}

TEST(ResidentBlockPlan, ComputesTheBlockInBytes) {
  compare<std::int8_t>(test::gpu_seed() + 420);
}
TEST(ResidentBlockPlan, ComputesTheBlockInHalves) {
  compare<std::int16_t>(test::gpu_seed() + 421);
}

TEST(ResidentBlockPlan, RefusesOtherChains) {
  const ConvChainShape block{
      1, 8, 8, 1, {256}, {{0, -1, 256, 64, false}, {1, -1, 64, 64, true}, {2, 0, 64, 256, false}}};
  EXPECT_TRUE(block_roles(block, kUnitChannels));
  const auto refuses = [&](auto change) {
    ConvChainShape other = block;
    change(other);
    return !block_roles(other, kUnitChannels);
  };
  EXPECT_TRUE(refuses([](ConvChainShape& s) { s.convs.pop_back(); }));
  EXPECT_TRUE(refuses([](ConvChainShape& s) { s.convs[0].window = true; }));
  EXPECT_TRUE(refuses([](ConvChainShape& s) { s.convs[1].window = false; }));
  EXPECT_TRUE(refuses([](ConvChainShape& s) { s.convs[2].window = true; }));
  EXPECT_TRUE(refuses([](ConvChainShape& s) { s.convs[0].out_c = 128; }));
  EXPECT_TRUE(refuses([](ConvChainShape& s) { s.convs[2].residual = 1; }));
  EXPECT_TRUE(refuses([](ConvChainShape& s) { s.convs[1].residual = 1; }));
  EXPECT_TRUE(refuses([](ConvChainShape& s) { s.convs[2].x = 1; }));
  EXPECT_TRUE(refuses([](ConvChainShape& s) { s.inputs.push_back(64); }));
  ConvChainShape wide = block;
  wide.inputs = {320}, wide.convs[0].in_c = 320, wide.convs[2].out_c = 320;
  EXPECT_THAT(std::get<std::string>(plan_block(wide, *block_roles(wide, kUnitChannels))),
              HasSubstr("more channels"));
}

}  // namespace
}  // namespace pipit::cuda
