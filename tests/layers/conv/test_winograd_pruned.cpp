// Input channels that are zero at all taps for a panel of outputs: Winograd finds them, leaves them out of all of its
// products, and changes nothing else.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "layers/cpu/conv/winograd_schedule.h"
#include "layers/cpu/quantized/winograd_int8.h"
#include "layers/registry.h"
#include "tests/layers/conv/winograd_case.h"
#include "tests/layers/qconv_case.h"

namespace pipit::internal {
namespace {

using test::Conformance;
using test::expect_conformance;
using test::Operand;
using test::QConvCase;
using test::Random;
using test::WinogradCase;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::int64_t kTapsOfChannel = 9;

// Which of `count` channels a panel keeps.
std::vector<bool> random_kept_channels(Random& random, std::int64_t count) {
  std::vector<bool> keep(static_cast<std::size_t>(count), false);
  const double share = random.real(0, 1);
  switch (random.integer(0, 4)) {
    case 0:  // nothing
      break;
    case 1:  // one channel
      keep[static_cast<std::size_t>(random.integer(0, count - 1))] = true;
      break;
    case 2:  // the first ones
      std::fill_n(keep.begin(), count / 2, true);
      break;
    default:
      for (std::size_t c = 0; c < keep.size(); ++c) keep[c] = random.real(0, 1) < share;
  }
  return keep;
}

// Weights [O, C, 3, 3]: what `panel` neighbouring outputs do not keep is zero, of either sign where there is one; of
// the rest some taps are.
template <typename T>
std::shared_ptr<const Tensor> without_channels(Random& random, Tensor weights, std::int64_t panel) {
  const std::int64_t channels = weights.shape()[1];
  const auto values = weights.values<T>();
  std::vector<bool> keep;
  for (std::int64_t o = 0; o < weights.shape()[0]; ++o) {
    if (o % panel == 0) keep = random_kept_channels(random, channels);
    for (std::int64_t c = 0; c < channels; ++c) {
      for (std::int64_t t = 0; t < kTapsOfChannel; ++t) {
        if (keep[static_cast<std::size_t>(c)] && random.integer(0, 3) > 0) continue;
        T& w = values[static_cast<std::size_t>((o * channels + c) * kTapsOfChannel + t)];
        w = std::is_same_v<T, float> && random.coin() ? static_cast<T>(-0.0F) : T{0};
      }
    }
  }
  return std::make_shared<const Tensor>(std::move(weights));
}

// The share of groups of `step` channels that have a weight at some tap, by the definition.
template <typename T>
double channels_with_weights(const Tensor& weights, std::int64_t panel, std::int64_t step) {
  const std::int64_t outputs = weights.shape()[0];
  const std::int64_t channels = weights.shape()[1];
  const auto values = weights.values<T>();
  std::int64_t kept = 0;
  std::int64_t all = 0;
  for (std::int64_t first = 0; first < outputs; first += panel) {
    const std::int64_t columns = std::min(panel, outputs - first);
    for (std::int64_t c = 0; c < channels; c += step) {
      bool any = false;
      for (std::int64_t o = first; o < first + columns; ++o) {
        const std::int64_t end = std::min(c + step, channels);
        for (std::int64_t i = (o * channels + c) * kTapsOfChannel; i < (o * channels + end) * kTapsOfChannel;
             ++i)
          any = any || values[static_cast<std::size_t>(i)] != T{0};
      }
      kept += any ? columns : 0;
      all += columns;
    }
  }
  return static_cast<double>(kept) / static_cast<double>(all);
}

// Where all channels are kept instead, a list of single ones would have left out next to nothing.
void expect_share_of_channels(double got, double of_channels) {
  EXPECT_GE(got, of_channels - 1e-9);
  EXPECT_LE(got, std::max(of_channels * 1.021, of_channels + 1e-9));
}

// A node of one output on channels_last operands.
struct ConvNode {
  const Layer& layer;
  std::vector<Operand> operands;
  std::vector<TensorDesc> descs;
  std::vector<const TensorDesc*> inputs;
  std::vector<std::shared_ptr<const Tensor>> constants;
  std::vector<TensorDesc> outputs;

  ConvNode(const Layer& of, std::vector<Operand> given) : layer(of), operands(std::move(given)) {
    for (const Operand& operand : operands) {
      descs.push_back(operand.tensor ? operand.tensor->desc() : TensorDesc{});
      constants.push_back(operand.constant ? operand.tensor : nullptr);
    }
    for (std::size_t i = 0; i < operands.size(); ++i) {
      if (i == 0 || i == 3) descs[i].layout = Layout::channels_last;
      inputs.push_back(operands[i].tensor ? &descs[i] : nullptr);
    }
    outputs = layer.infer(inputs);
    outputs[0].layout = Layout::channels_last;
  }
  NodeSpec spec() const { return {layer, inputs, outputs, constants, Precision::fp32, 2}; }
};

const Candidate& candidate_of(const Registry& registry, std::string_view type, std::string_view name) {
  for (const Candidate& candidate : registry.candidates(type, DeviceKind::cpu)) {
    if (candidate.name == name) return candidate;
  }
  throw std::runtime_error("no such candidate: " + std::string(name));
}

double share_of_kernel(const Candidate& candidate, const NodeSpec& spec) {
  const std::unique_ptr<Kernel> kernel = candidate.create(spec);
  EXPECT_EQ(candidate.kept_share(spec), kernel->kept_share());
  return kernel->kept_share();
}

TEST(PrunedWinograd, FloatsMatchTheReference) {
  Random random;
  int fewer = 0;
  for (int i = 0; i < 24 && !HasFailure(); ++i) {
    WinogradCase c;
    for (std::size_t axis = 0; axis < 2; ++axis) {
      c.window.pad_begin[axis] = random.integer(0, 2);
      c.window.pad_end[axis] = random.integer(0, 2);
    }
    c.height = random.integer(3, 14);
    c.width = random.integer(3, 14);
    c.batch = random.integer(1, 3);
    c.channels = random.integer(1, 40);
    c.filters = random.integer(1, 75);
    c.bias = random.coin();
    c.residual = random.coin();
    if (random.coin()) c.activation = random.coin() ? Clamp::relu() : Clamp{-0.5F, 0.75F};
    const std::int64_t panel = f32_tiles().panel();
    const auto w =
        without_channels<float>(random, random.tensor(Shape{c.filters, c.channels, 3, 3})->clone(), panel);
    for (const int m : {2, 4}) {
      test::check_winograd(c, random, m, w);
      Registry registry;
      add_winograd(registry, m, {chosen_isa(), true});
      const Conv layer(test::attributes_of(c));
      const ConvNode node(layer, {{random.tensor(Shape{c.batch, c.channels, c.height, c.width})}, {w, true}});
      const double share =
          share_of_kernel(registry.candidates(Conv::kType, DeviceKind::cpu).at(0), node.spec());
      expect_share_of_channels(share, channels_with_weights<float>(*w, panel, 1));
      fewer += share < 0.9 ? 1 : 0;
    }
  }
  EXPECT_TRUE(HasFailure() || fewer >= 16) << fewer;
}

// Enough tiles for several bands, enough weights that all workers share one.
TEST(PrunedWinograd, LargeLayers) {
  Random random;
  for (const auto& [channels, filters, extent] :
       {std::array<std::int64_t, 3>{70, 130, 12}, {33, 67, 31}, {150, 97, 4}}) {
    WinogradCase c;
    c.window.pad_begin = c.window.pad_end = {1, 1, 0};
    c.channels = channels;
    c.filters = filters;
    c.height = extent;
    c.width = extent + 1;
    c.batch = 2;
    c.bias = c.residual = true;
    const auto w = without_channels<float>(random, random.tensor(Shape{filters, channels, 3, 3})->clone(),
                                           f32_tiles().panel());
    for (const int m : {2, 4}) test::check_winograd(c, random, m, w);
  }
}

TEST(PrunedWinograd, BytesHaveTheReferencesBits) {
  if (byte_winograd() == nullptr) GTEST_SKIP() << "this CPU, or PIPIT_ISA, is without AVX2";
  Random random;
  const TileKernels& tiles = *s16_tiles();
  int fewer = 0;
  int taken = 0;
  // The cost model takes about one in six: of small images that keep few channels direct sums are faster.
  for (int i = 0; i < 200 && (taken < 6 || fewer < 5) && !HasFailure(); ++i) {
    const QConvCase c = test::random_winograd_case(random);
    Conformance conformance = conformance_of(c, random);
    const auto w =
        without_channels<std::int8_t>(random, conformance.inputs[1].tensor->clone(), tiles.panel());
    conformance.inputs[1].tensor = w;
    const QConv layer(c.attributes);
    const ConvNode node(layer, conformance.inputs);
    const Candidate& winograd = candidate_of(default_registry(), QConv::kType, "winograd_f4x4");
    const bool refused = winograd.refuse(node.spec()).has_value();
    if (i < 12 || !refused) expect_conformance(layer, conformance);
    if (refused) continue;
    ++taken;
    const double share = share_of_kernel(winograd, node.spec());
    expect_share_of_channels(share, channels_with_weights<std::int8_t>(*w, tiles.panel(), tiles.step));
    fewer += share < 0.9 ? 1 : 0;
  }
  EXPECT_TRUE(HasFailure() || (taken >= 6 && fewer >= 5)) << taken << " " << fewer;
}

TEST(PrunedWinograd, KeepsAChannelForOneTapOfOneOutput) {
  const TileKernels& tiles = f32_tiles();
  const std::int64_t outputs = 2 * tiles.panel() + 1;
  constexpr std::int64_t kChannels = 60;
  std::vector<float> w(static_cast<std::size_t>(outputs * kChannels * kTapsOfChannel), 0);
  const auto at = [&](std::int64_t o, std::int64_t c, std::int64_t tap) -> float& {
    return w[static_cast<std::size_t>((o * kChannels + c) * kTapsOfChannel + tap)];
  };
  at(0, 3, 8) = 1;
  at(tiles.panel() - 1, 59, 0) = std::numeric_limits<float>::denorm_min();
  at(2 * tiles.panel(), 7, 4) = -1;  // the last panel has one output
  at(tiles.panel(), 5, 2) = -0.0F;
  const KeptSteps kept = winograd_kept_steps(tiles, w.data(), outputs, kChannels);
  EXPECT_THAT(kept.steps(0).starts, ElementsAre(3, 59));
  EXPECT_THAT(kept.steps(1).starts, ElementsAre());
  EXPECT_THAT(kept.steps(2).starts, ElementsAre(7));
  EXPECT_NEAR(kept.share(), (2.0 * tiles.panel() + 1) / static_cast<double>(outputs * kChannels), 1e-12);

  std::fill(w.begin(), w.end(), 1.0F);
  EXPECT_EQ(winograd_kept_steps(tiles, w.data(), outputs, kChannels).share(), 1);
  EXPECT_EQ(winograd_kept_steps(tiles, w.data(), outputs, kChannels).run(), kChannels);
}

// What is left out is not multiplied: an infinity there makes no NaN, and in what is kept it does. With nothing left of
// a layer its outputs are the bias.
TEST(PrunedWinograd, DoesNotMultiplyWhatItLeavesOut) {
  Random random;
  constexpr std::int64_t kChannels = 24;
  constexpr std::int64_t kPruned = 7;
  const std::int64_t outputs = f32_tiles().panel() + 5;
  ConvAttributes attributes;
  attributes.window.kernel = {3, 3, 1};
  attributes.window.pad_begin = attributes.window.pad_end = {1, 1, 0};
  const Conv layer(attributes);
  Registry registry;
  add_winograd(registry, 4, {chosen_isa(), true});
  const Tensor bias = random.tensor(Shape{outputs})->clone();
  const auto run = [&](const Tensor& x, const std::shared_ptr<const Tensor>& w) {
    const ConvNode node(
        layer, {{std::make_shared<const Tensor>(x.clone())}, {w, true}, {random.tensor(bias.shape()), true}});
    const auto kernel = registry.candidates(Conv::kType, DeviceKind::cpu).at(0).create(node.spec());
    const HostBuffer scratch(kernel->scratch_bytes());
    std::fill_n(scratch.data(), scratch.bytes(), std::byte{0xFF});
    Tensor y(node.outputs[0]);
    const ConstTensorView operands[] = {x.view(), {w->desc(), nullptr}, bias.view()};
    const TensorView results[] = {y.view()};
    kernel->run(operands, results, {*shared_pool(2), scratch.data()});
    return std::vector<float>(y.values<float>().begin(), y.values<float>().end());
  };
  Tensor weights = random.tensor(Shape{outputs, kChannels, 3, 3})->clone();
  for (std::int64_t o = 0; o < outputs; ++o)
    std::fill_n(weights.values<float>().data() + (o * kChannels + kPruned) * kTapsOfChannel, kTapsOfChannel,
                0.0F);
  const auto w = std::make_shared<const Tensor>(std::move(weights));
  Tensor x = to_layout(random.tensor(Shape{1, kChannels, 9, 11})->view(), Layout::channels_last);
  const std::vector<float> plain = run(x, w);
  const auto with = [&](std::int64_t channel, float value) {
    for (std::int64_t p = 0; p < 99; ++p)
      x.values<float>()[static_cast<std::size_t>(p * kChannels + channel)] = value;
    return run(x, w);
  };
  EXPECT_EQ(with(kPruned, std::numeric_limits<float>::infinity()), plain);
  EXPECT_EQ(with(kPruned, std::numeric_limits<float>::quiet_NaN()), plain);

  Tensor zeros(w->desc());
  std::fill(zeros.values<float>().begin(), zeros.values<float>().end(), 0.0F);
  const std::vector<float> nothing = run(x, std::make_shared<const Tensor>(std::move(zeros)));
  for (std::size_t i = 0; i < nothing.size(); ++i)
    ASSERT_EQ(nothing[i], bias.values<float>()[i % static_cast<std::size_t>(outputs)]);

  const std::vector<float> infinite = with(kPruned + 1, std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::none_of(infinite.begin(), infinite.end(), [](float v) { return std::isfinite(v); }));
}

// Direct sums leave out single rows of K. Where these are many, Winograd, which keeps every channel then, refuses;
// of whole channels it leaves out as much as they.
TEST(PrunedWinograd, GivesWayWhereDirectSumsLeaveOutMuchMore) {
  Random random;
  const auto x = random.tensor(Shape{1, 64, 28, 28});
  ConvAttributes attributes;
  attributes.window.kernel = {3, 3, 1};
  attributes.window.pad_begin = attributes.window.pad_end = {1, 1, 0};
  const Conv layer(attributes);
  const auto ask = [&](const char* name, const auto& keeps, const auto& question) {
    Tensor w = random.tensor(Shape{64, 64, 3, 3}, -0.1, 0.1)->clone();
    for (std::int64_t i = 0; i < w.desc().elements(); ++i) {
      if (!keeps(i / kTapsOfChannel % 64, i % kTapsOfChannel))
        w.values<float>()[static_cast<std::size_t>(i)] = 0;
    }
    const ConvNode node(layer, {{x}, {std::make_shared<const Tensor>(std::move(w)), true}});
    return question(candidate_of(default_registry(), Conv::kType, name), node.spec());
  };
  const auto why = [&](const char* name, const auto& keeps) {
    return ask(name, keeps, [](const Candidate& c, const NodeSpec& spec) { return c.refuse(spec); });
  };
  const auto goes_first = [&](const auto& keeps) {
    return ask("winograd_f4x4", keeps,
               [](const Candidate& c, const NodeSpec& spec) { return c.estimate(spec)->time < 1; });
  };
  const auto rows = [](std::int64_t share) {
    return [share](std::int64_t c, std::int64_t tap) { return (c * kTapsOfChannel + tap) % share == 0; };
  };
  const auto channels = [](std::int64_t share) {
    return [share](std::int64_t c, std::int64_t /*tap*/) { return c % share == 0; };
  };
  EXPECT_EQ(why("winograd_f4x4", rows(1)), std::nullopt);
  EXPECT_EQ(why("winograd_f4x4", rows(2)), std::nullopt) << "not by much, at least";
  ASSERT_NE(why("winograd_f4x4", rows(4)), std::nullopt);
  EXPECT_THAT(*why("winograd_f4x4", rows(4)),
              testing::MatchesRegex(
                  "the direct sums keep 25.0 % of K; Winograd would take at least 1\\.[0-9] times as long"));
  EXPECT_EQ(why("tile", rows(4)), std::nullopt);
  EXPECT_EQ(why("winograd_f4x4", channels(4)), std::nullopt);
  EXPECT_EQ(why("winograd_f4x4", channels(8)), std::nullopt);
  ASSERT_NE(why("winograd_f4x4", channels(16)), std::nullopt) << "transforms take as long for fewer products";
  EXPECT_THAT(*why("winograd_f4x4", channels(16)),
              testing::MatchesRegex(".*Winograd would take at least 1\\.[0-9] times as long"));
  EXPECT_TRUE(goes_first(rows(1)));
  EXPECT_TRUE(goes_first(rows(2)));
  EXPECT_FALSE(goes_first([](std::int64_t c, std::int64_t tap) { return (c + tap) % 7 < 2; }));
  EXPECT_TRUE(goes_first(channels(4)));
  EXPECT_FALSE(goes_first(channels(8)));
}

}  // namespace
}  // namespace pipit::internal
