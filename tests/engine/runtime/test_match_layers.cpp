#include "engine/runtime/match_layers.h"

#include <gmock/gmock.h>

namespace pipit::internal {
namespace {

using testing::ElementsAre;
using Side = std::vector<LayerSeries>;
using Layers = std::vector<std::size_t>;

TEST(MatchLayers, SameNodesAreOneRow) {
  const std::vector<Side> sides = {{{{"a"}, {}}, {{"b"}, {}}}, {{{"b"}, {}}, {{"a"}, {}}}};
  EXPECT_THAT(match_layers(sides),
              ElementsAre(ElementsAre(Layers{0}, Layers{1}), ElementsAre(Layers{1}, Layers{0})));
}

TEST(MatchLayers, WhatOneSideFusesIsOneRow) {
  const std::vector<Side> sides = {{{{"a", "b"}, {}}, {{"c"}, {}}}, {{{"a"}, {}}, {{"b"}, {}}, {{"c"}, {}}}};
  EXPECT_THAT(match_layers(sides),
              ElementsAre(ElementsAre(Layers{0}, Layers{0, 1}), ElementsAre(Layers{1}, Layers{2})));
}

TEST(MatchLayers, FusionsThatOverlapAreOneRow) {
  const std::vector<Side> sides = {{{{"a", "b"}, {}}, {{"c"}, {}}}, {{{"a"}, {}}, {{"b", "c"}, {}}}};
  EXPECT_THAT(match_layers(sides), ElementsAre(ElementsAre(Layers{0, 1}, Layers{0, 1})));
}

TEST(MatchLayers, WhatOnlyOneSideHasStandsBehindWhatPrecedesIt) {
  const std::vector<Side> sides = {{{{"a"}, {}}, {{"c"}, {}}},
                                   {{{"quantize"}, {}}, {{"a"}, {}}, {{"b"}, {}}, {{"c"}, {}}}};
  EXPECT_THAT(match_layers(sides),
              ElementsAre(ElementsAre(Layers{}, Layers{0}), ElementsAre(Layers{0}, Layers{1}),
                          ElementsAre(Layers{}, Layers{2}), ElementsAre(Layers{1}, Layers{3})));
}

TEST(MatchLayers, SumsRunByRun) {
  const Side side = {{{"a"}, {1, 2, 3}}, {{"b"}, {10, 20}}, {{"c"}, {5}}};
  EXPECT_THAT(summed_ms(side, Layers{0, 1}), ElementsAre(11, 22));
  EXPECT_THAT(summed_ms(side, Layers{2}), ElementsAre(5));
  EXPECT_TRUE(summed_ms(side, Layers{}).empty());
}

}  // namespace
}  // namespace pipit::internal
