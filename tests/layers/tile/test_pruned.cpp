// Rows of K whose weights are zero for a whole panel: found, left out, and nothing else changed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "layers/cpu/tile/tile_convolution.h"
#include "layers/ops/conv.h"
#include "layers/ops/gemm.h"
#include "layers/ops/matmul.h"
#include "layers/ops/qconv.h"
#include "layers/registry.h"
#include "tests/layers/quantized_operands.h"
#include "tests/support/window_cases.h"

namespace pipit::internal {
namespace {

using test::Conformance;
using test::expect_conformance;
using test::Operand;
using test::Random;

// Which rows of K a panel of outputs keeps: [taps][channels].
std::vector<bool> random_rows(Random& random, std::int64_t taps, std::int64_t channels) {
  std::vector<bool> keep(static_cast<std::size_t>(taps * channels), true);
  const auto each = [&](const auto& rule) {
    for (std::int64_t t = 0; t < taps; ++t) {
      for (std::int64_t c = 0; c < channels; ++c)
        keep[static_cast<std::size_t>(t * channels + c)] = rule(t, c);
    }
  };
  const double share = random.real(0, 1);
  const std::int64_t some = random.integer(0, taps * channels - 1);
  switch (random.integer(0, 6)) {
    case 0:  // nothing
      each([](auto, auto) { return false; });
      break;
    case 1:  // one row
      each([&](auto t, auto c) { return t * channels + c == some; });
      break;
    case 2:  // all
      break;
    case 3:  // whole taps
      each([&](auto t, auto) { return (t + some) % 3 == 0; });
      break;
    case 4:  // the first channels
      each([&](auto, auto c) { return static_cast<double>(c) < share * static_cast<double>(channels); });
      break;
    case 5:  // blocks of eight channels
      each([&](auto t, auto c) { return (t + c / 8 + some) % 3 == 0; });
      break;
    default:
      each([&](auto, auto) { return random.real(0, 1) < share; });
  }
  return keep;
}

// Zeros, of either sign where there is one, in the rows that `panel` neighbouring outputs do not keep. Weights
// [O, C / groups, taps]. `same`: one list for all.
template <typename T>
void prune(Random& random, Tensor& weights, std::int64_t groups, std::int64_t panel, bool same) {
  const std::int64_t outputs = weights.shape()[0] / groups;
  const std::int64_t channels = weights.shape()[1];
  const std::int64_t taps = weights.desc().elements() / (weights.shape()[0] * channels);
  const auto values = weights.values<T>();
  std::vector<bool> keep = random_rows(random, taps, channels);
  for (std::int64_t o = 0; o < weights.shape()[0]; ++o) {
    if (!same && o % outputs % panel == 0) keep = random_rows(random, taps, channels);
    for (std::int64_t c = 0; c < channels; ++c) {
      for (std::int64_t t = 0; t < taps; ++t) {
        if (keep[static_cast<std::size_t>(t * channels + c)]) continue;
        T& w = values[static_cast<std::size_t>((o * channels + c) * taps + t)];
        w = std::is_same_v<T, float> && random.coin() ? static_cast<T>(-0.0F) : T{0};
      }
    }
  }
}

template <typename T>
std::shared_ptr<const Tensor> pruned(Random& random, const Tensor& dense, std::int64_t groups,
                                     std::int64_t panel, bool same = false) {
  Tensor weights = dense.clone();
  prune<T>(random, weights, groups, panel, same);
  return std::make_shared<const Tensor>(std::move(weights));
}

// The share of rows of `step` neighbouring channels that have a weight, by the definition.
template <typename T>
double rows_with_weights(const Tensor& weights, std::int64_t groups, std::int64_t panel, std::int64_t step) {
  const std::int64_t outputs = weights.shape()[0] / groups;
  const std::int64_t channels = weights.shape()[1];
  const std::int64_t taps = weights.desc().elements() / (weights.shape()[0] * channels);
  const auto values = weights.values<T>();
  std::int64_t kept = 0;
  std::int64_t all = 0;
  for (std::int64_t g = 0; g < groups; ++g) {
    for (std::int64_t first = 0; first < outputs; first += panel) {
      const std::int64_t columns = std::min(panel, outputs - first);
      for (std::int64_t t = 0; t < taps; ++t) {
        for (std::int64_t c = 0; c < channels; c += step) {
          bool any = false;
          for (std::int64_t o = g * outputs + first; o < g * outputs + first + columns; ++o) {
            for (std::int64_t i = c; i < std::min(c + step, channels); ++i)
              any = any || values[static_cast<std::size_t>((o * channels + i) * taps + t)] != T{0};
          }
          kept += any ? columns : 0;
          all += columns;
        }
      }
    }
  }
  return static_cast<double>(kept) / static_cast<double>(all);
}

// Where whole segments or all of them are kept instead, the list of single rows would have left out next to nothing.
void expect_share(double got, double of_rows) {
  EXPECT_GE(got, of_rows - 1e-9);
  EXPECT_LE(got, std::max(of_rows * 1.021, of_rows + 1e-9));
}

std::unique_ptr<Kernel> tile_kernel(const Layer& layer, const std::vector<Operand>& inputs, Layout layout) {
  std::vector<TensorDesc> descs;
  std::vector<std::shared_ptr<const Tensor>> constants;
  for (const Operand& input : inputs) {
    descs.push_back(input.tensor ? input.tensor->desc() : TensorDesc{});
    constants.push_back(input.constant ? input.tensor : nullptr);
  }
  for (const std::size_t i : {0, 3}) {
    if (i < descs.size()) descs[i].layout = layout;
  }
  std::vector<const TensorDesc*> present;
  for (std::size_t i = 0; i < inputs.size(); ++i) present.push_back(inputs[i].tensor ? &descs[i] : nullptr);
  std::vector<TensorDesc> outputs = layer.infer(present);
  outputs[0].layout = layout;
  const NodeSpec spec{layer, present, outputs, constants};
  for (const Candidate& candidate : default_registry().candidates(layer.type(), DeviceKind::cpu)) {
    if (candidate.name != "tile") continue;
    if (const Refusal reason = candidate.refuse(spec)) {
      ADD_FAILURE() << *reason;
      return nullptr;
    }
    std::unique_ptr<Kernel> kernel = candidate.create(spec);
    EXPECT_EQ(candidate.kept_share(spec), kernel->kept_share());
    return kernel;
  }
  return nullptr;
}

struct PrunedCase {
  ConvAttributes attributes;
  Shape x, w;
};

PrunedCase random_pruned_case(Random& random, std::int64_t least_channels) {
  PrunedCase c;
  Window& window = c.attributes.window;
  const auto extent = test::random_window(
      window, [&](std::int64_t low, std::int64_t high) { return random.integer(low, high); }, 17);
  const std::int64_t groups = random.coin() ? 1 : random.integer(2, 3);
  const std::int64_t channels = random.integer(least_channels, 40);
  const std::int64_t filters = random.integer(8, 75);
  c.attributes.groups = groups;
  if (random.coin()) c.attributes.activation = random.coin() ? Clamp::relu() : Clamp{-0.5F, 0.5F};
  c.x = Shape{random.integer(1, 2), channels * groups, extent[0], extent[1]};
  c.w = Shape{filters * groups, channels, window.kernel[0], window.kernel[1]};
  return c;
}

TEST(PrunedTile, FloatConvolutionsMatchTheReference) {
  Random random;
  int fewer = 0;
  int of_one_vector = 0;
  for (int i = 0; i < 40 && !HasFailure(); ++i) {
    const PrunedCase c = random_pruned_case(random, 8);
    const std::int64_t groups = c.attributes.groups;
    const std::int64_t panel = random.coin() ? f32_tiles().panel() : 16;
    const auto w = pruned<float>(random, *random.tensor(c.w), groups, panel, random.integer(0, 3) == 0);
    std::vector<Operand> inputs{{random.tensor(c.x)}, {w, true}, {}, {}};
    if (random.coin()) inputs[2] = {random.tensor(Shape{c.w[0]}), true};
    if (random.coin()) inputs[3] = {random.tensor(window_output_shape(c.attributes.window, c.x, c.w[0]))};
    ConvAttributes linear = c.attributes;
    linear.activation = Clamp{};
    std::vector<Operand> magnitudes = inputs;
    for (Operand& operand : magnitudes) {
      if (operand.tensor) operand.tensor = test::absolute_values(*operand.tensor);
    }
    Conformance conformance{inputs, {"tile", "reference"}};
    // As for dense convolutions: roundings of K products, a bias and a residual.
    conformance.scale = static_cast<double>(c.w[1] * c.attributes.window.taps() + 3) * FLT_EPSILON;
    conformance.magnitude = test::doubles(test::run_reference(Conv(linear), magnitudes)[0]);
    expect_conformance(Conv(c.attributes), conformance);

    const auto kernel = tile_kernel(Conv(c.attributes), inputs, Layout::channels_last);
    ASSERT_NE(kernel, nullptr);
    const double of_panels = rows_with_weights<float>(*w, groups, f32_tiles().panel(), 1);
    const double of_vectors = rows_with_weights<float>(*w, groups, f32_tiles().lanes, 1);
    const bool narrow = kernel->kept_share() < of_panels - 1e-9;
    expect_share(kernel->kept_share(), narrow ? of_vectors : of_panels);
    // A panel of one vector takes longer for as many products, which a tenth fewer of them do not make up for.
    const bool may = f32_tiles().lanes >= 16;
    EXPECT_TRUE(!narrow || (may && of_vectors < of_panels / 1.1));
    EXPECT_TRUE(narrow || !may || of_vectors >= of_panels / 1.15) << of_vectors << " of " << of_panels;
    fewer += kernel->kept_share() < 0.9 ? 1 : 0;
    of_one_vector += narrow ? 1 : 0;
  }
  EXPECT_TRUE(HasFailure() || fewer >= 15) << fewer;
  EXPECT_TRUE(HasFailure() || f32_tiles().lanes < 16 || of_one_vector >= 2) << of_one_vector;
}

TEST(PrunedTile, BytesHaveTheReferencesBits) {
  Random random;
  int fewer = 0;
  const std::int64_t step = u8s8_tiles().step;
  for (int i = 0; i < 40 && !HasFailure(); ++i) {
    const PrunedCase c = random_pruned_case(random, 1);
    const std::int64_t groups = c.attributes.groups;
    QConvAttributes attributes;
    attributes.conv = c.attributes;
    const Quantization types[] = {test::kI8, test::kU8, test::kOdd};
    attributes.x = types[random.integer(0, 2)];
    attributes.residual = types[random.integer(0, 2)];
    attributes.y = random.integer(0, 3) == 0 ? test::kReal : types[random.integer(0, 2)];
    const auto depth = static_cast<float>(c.w[1] * c.attributes.window.taps());
    if (attributes.y.quantized()) attributes.y.scale = 0.05F * std::sqrt(depth) * attributes.x.scale * 70;
    attributes.weight_scales = {0.02F};
    const auto w = pruned<std::int8_t>(random, *random.tensor(c.w, -127, 127.999, DType::i8), groups,
                                       u8s8_tiles().panel(), random.integer(0, 3) == 0);
    std::vector<Operand> inputs{test::integers(random, c.x, attributes.x), {w, true}, {}, {}};
    if (random.coin()) inputs[2] = {random.tensor(Shape{c.w[0]}, -3000, 3000, DType::i32), true};
    if (random.coin())
      inputs[3] =
          test::integers(random, window_output_shape(c.attributes.window, c.x, c.w[0]), attributes.residual);
    expect_conformance(QConv(attributes), {inputs, {"tile", "reference"}});

    const auto kernel = tile_kernel(QConv(attributes), inputs, Layout::channels_last);
    ASSERT_NE(kernel, nullptr);
    const double share = rows_with_weights<std::int8_t>(*w, groups, u8s8_tiles().panel(), step);
    // AMX goes on with what is not quite empty; channels that fill no step share one with the next tap.
    if (c.w[1] % step == 0 && u8s8_tiles().isa != Isa::amx) {
      expect_share(kernel->kept_share(), share);
      fewer += kernel->kept_share() < 0.9 ? 1 : 0;
    }
  }
  EXPECT_TRUE(HasFailure() || u8s8_tiles().isa == Isa::amx || fewer >= 3) << fewer;
}

TEST(PrunedTile, MatrixProducts) {
  Random random;
  for (int i = 0; i < 12 && !HasFailure(); ++i) {
    const std::int64_t rows = random.integer(1, 20);
    const std::int64_t depth = random.integer(1, 60);
    const std::int64_t outputs = random.integer(1, 70);
    const auto w = pruned<float>(random, *random.tensor(Shape{outputs, depth}), 1, f32_tiles().panel());
    const auto x = random.tensor(Shape{rows, depth});
    const std::vector<Operand> inputs{{x}, {w, true}, {random.tensor(Shape{outputs}), true}};
    std::vector<Operand> magnitudes = inputs;
    for (Operand& operand : magnitudes) operand.tensor = test::absolute_values(*operand.tensor);
    GemmAttributes attributes;
    attributes.transpose_b = true;
    Conformance conformance{inputs, {"tile", "reference"}};
    conformance.scale = static_cast<double>(depth + 2) * FLT_EPSILON;
    conformance.magnitude = test::doubles(test::run_reference(Gemm(attributes), magnitudes)[0]);
    expect_conformance(Gemm(attributes), conformance);
    const auto kernel = tile_kernel(Gemm(attributes), inputs, Layout::row_major);
    ASSERT_NE(kernel, nullptr);
    expect_share(kernel->kept_share(), rows_with_weights<float>(*w, 1, f32_tiles().panel(), 1));
  }
}

// Weights that TileConvolution does not look into: it multiplies all of K, zeros as well.
class UnseenWeights final : public StoredPanels {
 public:
  UnseenWeights(const TilePanels& panels, const WeightView& weights) : panels_(panels), weights_(weights) {}
  void widen(std::int64_t panel, std::byte* to) const override {
    pack_f32_panel(panels_, panel, weights_, KeptSteps(panels_, 1, panels_.steps).steps(panel), to);
  }
  std::span<const std::byte> kept(std::int64_t /*panel*/) const override { return {}; }
  std::size_t bytes() const override { return 0; }

 private:
  TilePanels panels_;
  WeightView weights_;
};

// f32, one group, channels_last.
struct Layer3x3 {
  TileConvolution::Geometry geometry;
  Tensor x;
  Tensor bias;

  Layer3x3(Random& random, std::int64_t channels, std::int64_t outputs) {
    const Shape shape{1, channels, 9, 11};
    geometry.input = {shape, DType::f32, Layout::channels_last};
    geometry.output = Shape{1, outputs, 9, 11};
    geometry.window.kernel = {3, 3, 1};
    geometry.window.pad_begin = geometry.window.pad_end = {1, 1, 0};
    x = to_layout(random.tensor(shape)->view(), Layout::channels_last);
    bias = random.tensor(Shape{outputs})->clone();
  }

  std::vector<float> run(const TileConvolution& convolution) const {
    std::vector<float> y(static_cast<std::size_t>(geometry.output.elements()),
                         std::numeric_limits<float>::quiet_NaN());
    const HostBuffer scratch(convolution.scratch_bytes());
    std::fill_n(scratch.data(), scratch.bytes(), std::byte{0xFF});
    convolution.run(x.view().data, bias.values<float>().data(), nullptr,
                    reinterpret_cast<std::byte*>(y.data()), RunContext{*shared_pool(2), scratch.data()});
    return y;
  }
};

TEST(PrunedTile, HasTheBitsOfTheDenseTile) {
  Random random;
  for (int i = 0; i < 20 && !HasFailure(); ++i) {
    const std::int64_t channels = random.integer(1, 40);
    const std::int64_t outputs = random.integer(1, 70);
    Layer3x3 layer(random, channels, outputs);
    const auto w =
        pruned<float>(random, *random.tensor(Shape{outputs, channels, 3, 3}), 1, f32_tiles().panel());
    const float* weights = w->values<float>().data();
    const TileConvolution found(layer.geometry, weights, 2);

    const TilePanels panels(f32_tiles(), channels * 9, outputs);
    layer.geometry.stored = true;
    const TileConvolution dense(
        layer.geometry,
        std::make_unique<UnseenWeights>(panels, WeightView{weights, channels * 9, 9, 1, channels, 9}), 2);
    EXPECT_EQ(dense.kept_share(), 1);
    EXPECT_EQ(layer.run(found), layer.run(dense))
        << "seed " << test::test_seed();  // zeros of both signs are equal
  }
}

// What is left out is not read: an infinity there makes no NaN, and in what is kept it does.
TEST(PrunedTile, DoesNotReadWhatItLeavesOut) {
  Random random;
  constexpr std::int64_t kChannels = 24;
  constexpr std::int64_t kOutputs = 40;
  constexpr std::int64_t kPruned = 7;
  Layer3x3 layer(random, kChannels, kOutputs);
  Tensor w = random.tensor(Shape{kOutputs, kChannels, 3, 3})->clone();
  for (std::int64_t o = 0; o < kOutputs; ++o)
    std::fill_n(w.values<float>().data() + (o * kChannels + kPruned) * 9, 9, 0.0F);
  const TileConvolution convolution(layer.geometry, w.values<float>().data(), 2);
  EXPECT_NEAR(convolution.kept_share(), 23.0 / 24, 1e-9);
  const std::vector<float> plain = layer.run(convolution);
  const auto with = [&](std::int64_t channel, float value) {
    for (std::int64_t p = 0; p < 99; ++p)
      layer.x.values<float>()[static_cast<std::size_t>(p * kChannels + channel)] = value;
    return layer.run(convolution);
  };
  EXPECT_EQ(with(kPruned, std::numeric_limits<float>::infinity()), plain);
  EXPECT_EQ(with(kPruned, std::numeric_limits<float>::quiet_NaN()), plain);
  const std::vector<float> infinite = with(kPruned + 1, std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::none_of(infinite.begin(), infinite.end(), [](float v) { return std::isfinite(v); }));
}

TEST(PrunedTile, NothingIsLeftOfALayer) {
  Random random;
  Layer3x3 layer(random, 8, 33);
  const Tensor w = [] {
    Tensor zeros(TensorDesc{Shape{33, 8, 3, 3}});
    std::fill(zeros.values<float>().begin(), zeros.values<float>().end(), 0.0F);
    return zeros;
  }();
  const TileConvolution convolution(layer.geometry, w.values<float>().data(), 2);
  EXPECT_EQ(convolution.kept_share(), 0);
  const std::vector<float> y = layer.run(convolution);
  for (std::size_t i = 0; i < y.size(); ++i) ASSERT_EQ(y[i], layer.bias.values<float>()[i % 33]);
}

}  // namespace
}  // namespace pipit::internal
