// Which convolution is chosen without timing: the cost model is total, and the choice is the model's, always the same.
#include "layers/cpu/conv/winograd_cost.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/plan/candidate_order.h"
#include "layers/cpu/conv/conv_tile.h"
#include "layers/cpu/conv/winograd_schedule.h"
#include "layers/ops/conv.h"
#include "layers/registry.h"
#include "tests/layers/conformance.h"

namespace pipit::internal {
namespace {

using test::Random;

TEST(WinogradCost, IsFiniteForAnyLayer) {
  Random random;
  for (int i = 0; i < 2000 && !testing::Test::HasFailure(); ++i) {
    WinogradLayer layer;
    const std::int64_t batch = random.integer(0, 16);
    const std::int64_t most = random.coin() ? 12 : 300;
    layer.x = Shape{batch, random.integer(0, 700), random.integer(0, most), random.integer(0, most)};
    layer.y = Shape{batch, random.integer(0, 700), random.integer(0, most), random.integer(0, most)};
    layer.lanes = static_cast<int>(std::int64_t{1} << random.integer(0, 4));
    layer.direct_steps = random.real(0, 1e12);
    layer.product_steps = random.real(0, 1e12);
    const Isa isa = all_isas()[static_cast<std::size_t>(random.integer(0, std::ssize(all_isas()) - 1))];
    for (const WinogradRates& rates :
         {float_winograd_rates(2, isa), float_winograd_rates(4, isa), byte_winograd_rates(isa)}) {
      layer.rates = rates;
      const double direct = layer.direct_cost();
      const double winograd = layer.winograd_cost();
      EXPECT_TRUE(std::isfinite(direct) && direct >= 0) << layer.y.str() << " " << direct;
      EXPECT_TRUE(std::isfinite(winograd) && winograd >= 0)
          << layer.x.str() << layer.y.str() << " " << winograd;
      EXPECT_LE(layer.winograd_cost(0.5), winograd);
      EXPECT_EQ(refuse_beside_pruned(layer, 1), std::nullopt) << "dense weights are no reason";
      WinogradLayer more = layer;
      more.direct_steps *= 2;
      more.product_steps *= 2;
      EXPECT_GE(more.direct_cost(), direct);
      EXPECT_GE(more.winograd_cost(), winograd);
    }
  }
}

// A 3x3 layer with dense weights on channels_last operands.
struct DenseLayer {
  Conv layer;
  TensorDesc x, w, y;
  const TensorDesc* inputs[2];
  std::vector<std::shared_ptr<const Tensor>> constants;

  static ConvAttributes attributes() {
    ConvAttributes of;
    of.window.kernel = {3, 3, 1};
    of.window.pad_begin = of.window.pad_end = {1, 1, 0};
    return of;
  }
  DenseLayer(Random& random, std::int64_t batch, std::int64_t channels, std::int64_t outputs,
             std::int64_t side)
      : layer(attributes()),
        x{Shape{batch, channels, side, side}, DType::f32, Layout::channels_last},
        w{Shape{outputs, channels, 3, 3}},
        y{Shape{batch, outputs, side, side}, DType::f32, Layout::channels_last},
        inputs{&x, &w},
        constants{nullptr, std::make_shared<const Tensor>(random.tensor(w.shape, 0.01, 0.1)->clone())} {}

  NodeSpec spec(int threads) const { return {layer, inputs, {&y, 1}, constants, Precision::fp32, threads}; }

  /// The candidates' names in the order in which they are asked.
  std::vector<std::string> order(int threads) const {
    std::vector<std::string> names;
    for (const OrderedCandidate& place : candidate_order(default_registry(), DeviceKind::cpu, spec(threads)))
      names.push_back(place.candidate->name);
    return names;
  }
};

std::ptrdiff_t place(const std::vector<std::string>& names, const char* name) {
  return std::find(names.begin(), names.end(), name) - names.begin();
}

TEST(WinogradCost, ChoosesTheSameEveryTimeWithAnyNumberOfThreads) {
  Random random;
  for (int i = 0; i < 40; ++i) {
    const DenseLayer layer(random, random.integer(1, 3), random.integer(1, 70), random.integer(1, 70),
                           random.integer(1, 40));
    const std::vector<std::string> order = layer.order(1);
    EXPECT_EQ(order.size(), default_registry().candidates(Conv::kType, DeviceKind::cpu).size());
    for (const int threads : {1, 2, 3, 8, 64})
      EXPECT_EQ(layer.order(threads), order) << layer.x.str() << ", " << threads << " threads";
  }
}

// Where transforms are little beside the products that they save, and where they are most of the time.
TEST(WinogradCost, KnowsClearCases) {
  Random random;
  for (const int threads : {1, 2, 8}) {
    const std::vector<std::string> wide = DenseLayer(random, 1, 64, 64, 56).order(threads);
    EXPECT_LT(place(wide, "winograd_f4x4"), place(wide, "winograd_f2x2")) << threads;
    EXPECT_LT(place(wide, "winograd_f2x2"), place(wide, "tile")) << threads;
    const std::vector<std::string> narrow = DenseLayer(random, 1, 8, 8, 112).order(threads);
    EXPECT_LT(place(narrow, "tile"), place(narrow, "winograd_f2x2")) << threads;
  }
}

}  // namespace
}  // namespace pipit::internal
