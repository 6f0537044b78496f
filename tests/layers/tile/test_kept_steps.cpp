// Which steps of K are kept, and by which tiles.
#include "layers/cpu/tile/kept_steps.h"

#include <gmock/gmock.h>

#include "tests/layers/conformance.h"

namespace pipit::internal {
namespace {

using test::Random;

TEST(KeptSteps, ListsRunsWithAMark) {
  TilePanels panels(f32_tiles(), 12, 3 * f32_tiles().panel() - 1);
  std::vector<std::uint8_t> marks(36, 0);
  for (const int step : {0, 1, 5, 12 + 0, 12 + 1, 12 + 5}) marks[static_cast<std::size_t>(step)] = 1;
  const KeptSteps lone(panels, 1, 1, marks);
  EXPECT_THAT(lone.steps(0).starts, testing::ElementsAre(0, 1, 5));
  EXPECT_THAT(lone.steps(1).starts, testing::ElementsAre(0, 1, 5));
  EXPECT_THAT(lone.steps(2).starts, testing::IsEmpty());
  EXPECT_EQ(lone.all_starts().size(), 3U) << "equal lists are kept once";
  EXPECT_EQ(lone.offset(1), 3 * f32_tiles().panel() * 4);
  EXPECT_EQ(lone.bytes(), 6 * f32_tiles().panel() * 4);
  EXPECT_EQ(lone.mean_runs(), 2);

  const KeptSteps fours(panels, 1, 4, marks);
  EXPECT_THAT(fours.steps(0).starts, testing::ElementsAre(0, 4));
  EXPECT_EQ(fours.steps(0).count(), 8);
  const double columns = 3 * f32_tiles().panel() - 1;
  EXPECT_NEAR(fours.share(), 8 * 2 * f32_tiles().panel() / (12 * columns), 1e-12);

  const KeptSteps all(panels, 1, 4);
  EXPECT_THAT(all.steps(2).starts, testing::ElementsAre(0, 4, 8));
  EXPECT_EQ(all.share(), 1);
  EXPECT_EQ(all.bytes(), panels.bytes());
}

TEST(KeptSteps, SingleStepsOnlyWhereTheyLeaveOutSomething) {
  const TilePanels panels(f32_tiles(), 300, f32_tiles().panel());
  std::vector<std::uint8_t> marks(300, 1);
  EXPECT_EQ(kept_steps(panels, 1, 100, marks).run(), 100);
  marks[7] = 0;
  EXPECT_EQ(kept_steps(panels, 1, 100, marks).run(), 100);
  EXPECT_EQ(kept_steps(panels, 1, 100, marks).share(), 1);
  std::fill_n(marks.begin(), 100, 0);
  EXPECT_EQ(kept_steps(panels, 1, 100, marks).run(), 100) << "a whole segment";
  EXPECT_NEAR(kept_steps(panels, 1, 100, marks).share(), 2.0 / 3, 1e-12);
  marks[101] = marks[115] = marks[117] = marks[250] = marks[260] = marks[270] = 0;
  EXPECT_EQ(kept_steps(panels, 1, 100, marks).run(), 1);
}

TEST(KeptSteps, FewBytesAreNotForAmx) {
  TileKernels amx = u8s8_tiles();
  amx.isa = Isa::amx;
  const TilePanels panels(amx, 9 * 64, amx.panel());
  Random random;
  const auto of = [&](double share, std::int64_t block) {
    std::vector<std::uint8_t> marks(9 * 64, 0);
    for (std::size_t i = 0; i < marks.size(); i += static_cast<std::size_t>(block)) {
      if (random.real(0, 1) < share) std::fill_n(marks.begin() + static_cast<std::ptrdiff_t>(i), block, 1);
    }
    return kept_for_tiles(amx, u8s8_tiles(Isa::avx512vnni), panels, 1, 64, marks);
  };
  EXPECT_EQ(of(1, 1).kernels.isa, Isa::amx);
  EXPECT_EQ(of(1, 1).steps.run(), 64);
  // Blocks that AMX multiplies at a time it leaves out itself.
  EXPECT_EQ(of(0.5, 16).kernels.isa, Isa::amx);
  EXPECT_EQ(of(0.5, 16).steps.run(), 16);
  EXPECT_LT(of(0.5, 16).steps.share(), 0.8);
  // Half of the single steps are more work for VNNI than all are for AMX; a twentieth is less.
  EXPECT_EQ(of(0.5, 1).kernels.isa, Isa::amx);
  EXPECT_NE(of(0.05, 1).kernels.isa, Isa::amx);
  EXPECT_EQ(of(0.05, 1).steps.run(), 1);
}

}  // namespace
}  // namespace pipit::internal
