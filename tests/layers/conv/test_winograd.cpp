// Winograd's transforms, the convolution built on them and the test of its accuracy.
#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "layers/cpu/conv/conv_winograd.h"
#include "layers/cpu/conv/winograd.h"
#include "layers/ops/conv.h"
#include "tests/layers/conv/winograd_case.h"

namespace pipit::internal {
namespace {

using test::attributes_of;
using test::check_winograd;
using test::Matrices;
using test::Operand;
using test::Random;
using test::WinogradCase;

TEST(Winograd, MatricesOfTheDerivationCorrelate) {
  for (const int m : {2, 4}) {
    const Matrices a(m);
    for (std::size_t tap = 0; tap < 3; ++tap) {
      for (std::size_t position = 0; position < static_cast<std::size_t>(m + 2); ++position) {
        for (std::size_t y = 0; y < static_cast<std::size_t>(m); ++y) {
          double sum = 0;
          for (std::size_t i = 0; i < static_cast<std::size_t>(m + 2); ++i) {
            sum += a.output[y][i] * a.filter[i][tap] * a.input[i][position];
          }
          EXPECT_NEAR(sum, y + tap == position ? 1 : 0, 1e-14) << m << " " << tap << " " << position;
        }
      }
    }
  }
}

// One channel, unit impulses: all arithmetic of the transforms but the filter's is exact.
TEST(Winograd, TransformsOfImpulsesAreTheMatrices) {
  for (const int m : {2, 4}) {
    const WinogradTransforms& t = winograd_transforms(m);
    const Matrices a(m);
    const auto n = static_cast<std::size_t>(m + 2);
    for (std::size_t at = 0; at < n * n; ++at) {
      std::vector<float> image(n * n);
      image[at] = 1;
      std::vector<float> v(n * n * 16);
      t.input({image.data(), m + 2, m + 2, 1}, 0, 0, v.data(), 16);
      std::vector<float> products(n * n * 16);
      products[at * 16] = 1;
      std::vector<float> y(static_cast<std::size_t>(m * m));
      t.output(products.data(), 16, {y.data(), nullptr, nullptr, m, 1, m, m, 1, {}});
      for (std::size_t i = 0; i < n * n; ++i) {
        EXPECT_EQ(v[i * 16], a.input[i / n][at / n] * a.input[i % n][at % n]);
      }
      for (std::size_t i = 0; i < y.size(); ++i) {
        const auto columns = static_cast<std::size_t>(m);
        EXPECT_EQ(y[i], a.output[i / columns][at / n] * a.output[i % columns][at % n]);
      }
    }
    for (std::size_t tap = 0; tap < 9; ++tap) {
      std::vector<float> g(9);
      g[tap] = 1;
      std::vector<float> u(n * n);
      t.filters(g.data(), 1, u.data(), 1);
      for (std::size_t i = 0; i < n * n; ++i) {
        EXPECT_FLOAT_EQ(u[i], static_cast<float>(a.filter[i / n][tap / 3] * a.filter[i % n][tap % 3]));
      }
    }
  }
}

TEST(Winograd, RandomCasesMatchTheReference) {
  Random random;
  for (int i = 0; i < 30 && !HasFailure(); ++i) {
    WinogradCase c;
    for (std::size_t axis = 0; axis < 2; ++axis) {
      c.window.pad_begin[axis] = random.integer(0, 3);
      c.window.pad_end[axis] = random.integer(0, 3);
    }
    c.height = random.integer(std::max<std::int64_t>(1, 3 - c.window.pad_begin[0] - c.window.pad_end[0]), 14);
    c.width = random.integer(std::max<std::int64_t>(1, 3 - c.window.pad_begin[1] - c.window.pad_end[1]), 14);
    c.batch = random.integer(1, 3);
    c.channels = random.integer(1, random.coin() ? 8 : 40);
    c.filters = random.integer(1, random.coin() ? 8 : 70);
    c.bias = random.coin();
    c.residual = random.coin();
    if (random.coin()) c.activation = random.coin() ? Clamp::relu() : Clamp{-0.5F, 0.75F};
    for (const int m : {2, 4}) check_winograd(c, random, m);
  }
}

// Enough weights that all workers share the tiles of a band, and enough tiles for several bands.
TEST(Winograd, LargeLayers) {
  Random random;
  for (const auto& [channels, filters, extent, batch] :
       {std::array<std::int64_t, 4>{70, 130, 12, 2}, {33, 67, 31, 2}, {150, 97, 4, 1}, {16, 48, 9, 0}}) {
    WinogradCase c;
    c.window.pad_begin = c.window.pad_end = {1, 1, 0};
    c.channels = channels;
    c.filters = filters;
    c.height = extent;
    c.width = extent + 1;
    c.batch = batch;
    c.bias = c.residual = true;
    c.activation = Clamp::relu();
    for (const int m : {2, 4}) check_winograd(c, random, m);
  }
}

std::optional<std::string> refusal_of(int m, const ConvAttributes& attributes, const Shape& x,
                                      Tensor weights) {
  Random random;
  const std::vector<Operand> inputs{{random.tensor(x)},
                                    {std::make_shared<const Tensor>(std::move(weights)), true}};
  TensorDesc input = inputs[0].tensor->desc();
  input.layout = Layout::channels_last;
  const TensorDesc* descs[] = {&input, &inputs[1].tensor->desc()};
  std::vector<TensorDesc> outputs = Conv(attributes).infer(descs);
  outputs[0].layout = Layout::channels_last;
  const std::vector<std::shared_ptr<const Tensor>> constants{nullptr, inputs[1].tensor};
  Registry registry;
  add_winograd(registry, m, {});
  return registry.candidates(Conv::kType, DeviceKind::cpu)
      .at(0)
      .refuse({Conv(attributes), descs, outputs, constants, Precision::fp32, 1});
}

TEST(Winograd, RefusesWhatItCannotOrShouldNotDo) {
  Random random;
  const WinogradCase plain;
  const Shape x{1, 20, 40, 40};
  const auto refused = [&](const ConvAttributes& attributes, const Shape& input, const Shape& weights) {
    return refusal_of(4, attributes, input, random.tensor(weights)->clone()).value_or("accepted");
  };
  EXPECT_EQ(refused(attributes_of(plain), x, Shape{32, 20, 3, 3}), "accepted");
  WinogradCase c = plain;
  c.window.stride = {1, 2, 1};
  EXPECT_EQ(refused(attributes_of(c), x, Shape{32, 20, 3, 3}), "stride or dilation is not 1");
  c = plain;
  c.window.dilation = {2, 1, 1};
  EXPECT_EQ(refused(attributes_of(c), x, Shape{32, 20, 3, 3}), "stride or dilation is not 1");
  c = plain;
  c.window.kernel = {3, 5, 1};
  EXPECT_EQ(refused(attributes_of(c), x, Shape{32, 20, 3, 5}), "not a 3x3 kernel");
  ConvAttributes grouped = attributes_of(plain);
  grouped.groups = 2;
  EXPECT_EQ(refused(grouped, x, Shape{32, 10, 3, 3}), "more than one group");
  EXPECT_EQ(refused(attributes_of(plain), Shape{1, 20, 8, 8}, Shape{32, 20, 3, 3}),
            "4 tiles are too few for transformed weights to pay");
  EXPECT_EQ(refused(attributes_of(plain), Shape{1, 12, 40, 40}, Shape{12, 12, 3, 3}), "accepted");
  EXPECT_EQ(refused(attributes_of(plain), Shape{1, 3, 40, 40}, Shape{32, 3, 3, 3}),
            "too few channels for the transforms to pay");
}

// y = relu(conv(x, w)) of a 3 x 3 kernel without padding on NHWC data.
std::vector<float> run(int m, const Tensor& x, const std::shared_ptr<const Tensor>& w) {
  ConvAttributes attributes = attributes_of(WinogradCase());
  attributes.activation = Clamp::relu();
  const Conv conv(attributes);
  const TensorDesc* inputs[] = {&x.desc(), &w->desc()};
  std::vector<TensorDesc> outputs = conv.infer(inputs);
  outputs[0].layout = Layout::channels_last;
  const std::vector<std::shared_ptr<const Tensor>> constants{nullptr, w};
  Registry registry;
  add_winograd(registry, m, {chosen_isa(), true});
  const auto kernel = registry.candidates(Conv::kType, DeviceKind::cpu)
                          .at(0)
                          .create({conv, inputs, outputs, constants, Precision::fp32, 1});
  const HostBuffer scratch(kernel->scratch_bytes());
  Tensor y(outputs[0]);
  const ConstTensorView operands[] = {x.view(), {w->desc(), nullptr}};
  const TensorView results[] = {y.view()};
  ThreadPool pool(1);
  kernel->run(operands, results, {pool, scratch.data()});
  return {y.values<float>().begin(), y.values<float>().end()};
}

TEST(Winograd, NanReachesWhatDependsOnItAndNoOtherTile) {
  Random random;
  for (const int m : {2, 4}) {
    const auto w = random.tensor(Shape{17, 16, 3, 3});
    Tensor x = to_layout(random.tensor(Shape{1, 16, 14, 14})->view(), Layout::channels_last);
    const std::vector<float> clean = run(m, x, w);
    const std::int64_t row = random.integer(0, 13);
    const std::int64_t column = random.integer(0, 13);
    x.values<float>()[static_cast<std::size_t>((row * 14 + column) * 16 + random.integer(0, 15))] =
        std::nanf("");
    const std::vector<float> dirty = run(m, x, w);
    const auto reads = [](std::int64_t first, std::int64_t inputs, std::int64_t at) {
      return at >= first && at < first + inputs;
    };
    for (std::int64_t i = 0; i < 12 * 12; ++i) {
      const bool depends = reads(i / 12, 3, row) && reads(i % 12, 3, column);
      const bool same_tile = reads(i / 12 / m * m, m + 2, row) && reads(i % 12 / m * m, m + 2, column);
      for (std::int64_t o = 0; o < 17; ++o) {
        const auto at = static_cast<std::size_t>(i * 17 + o);
        if (depends) {
          EXPECT_TRUE(std::isnan(dirty[at])) << m << " " << i << " seed " << test::test_seed();
        } else if (!same_tile) {
          EXPECT_EQ(dirty[at], clean[at]) << m << " " << i << " seed " << test::test_seed();
        }
      }
    }
  }
}

// Weights that one cannot transform in f32 without losing them, in one filter of many.
TEST(Winograd, RefusesWeightsThatItWouldComputeInexactly) {
  Random random;
  for (const int m : {2, 4}) {
    for (const auto& [scale, name] : {std::pair{1e38F, "overflow"}, {1e-43F, "underflow"}, {1.0F, "plain"}}) {
      Tensor weights = random.tensor(Shape{64, 32, 3, 3})->clone();
      for (float& w : weights.values<float>().subspan(41 * 32 * 9, 32 * 9)) w *= scale;
      const auto reason =
          refusal_of(m, attributes_of(WinogradCase()), Shape{1, 32, 40, 40}, std::move(weights));
      if (scale == 1) {
        EXPECT_EQ(reason, std::nullopt) << m;
      } else {
        EXPECT_THAT(reason.value_or("accepted"), testing::HasSubstr("inexact with these weights"))
            << m << name;
      }
    }
  }
}

// A tap that is much larger than the others, and meets dark pixels, leaves its rounding errors in their place.
TEST(Winograd, RefusesFiltersOfHugeDynamicRange) {
  Random random;
  Tensor weights = random.tensor(Shape{16, 16, 3, 3})->clone();
  for (std::size_t f = 0; f < 16 * 16; ++f) weights.values<float>()[f * 9 + 4] *= 1e6F;
  EXPECT_THAT(refusal_of(4, attributes_of(WinogradCase()), Shape{1, 16, 40, 40}, std::move(weights))
                  .value_or("accepted"),
              testing::HasSubstr("inexact with these weights"));
}

TEST(Winograd, OrdinaryWeightsAreFarFromTheLimit) {
  Random random;
  for (const std::int64_t channels : {16, 64, 512}) {
    const auto w = random.tensor(Shape{64, channels, 3, 3});
    const double f4 = winograd_error(winograd_transforms(4), w->values<float>().data(), 64, channels);
    const double f2 = winograd_error(winograd_transforms(2), w->values<float>().data(), 64, channels);
    EXPECT_LT(f4, kMaxWinogradError / 1.2) << channels << " seed " << test::test_seed();
    EXPECT_LT(f2, f4) << channels;
    EXPECT_GT(f2, 0);
  }
}

}  // namespace
}  // namespace pipit::internal
