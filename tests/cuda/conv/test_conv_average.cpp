// Global averages that "implicit_gemm" computes of its own results, in fp16 and INT8, against the CPU reference. The
// integers of a Quantize after them are in test_fusion.cpp.
#include <array>
#include <set>

#include "engine/cuda/runtime.h"
#include "layers/cuda/conv/gemm_args.h"
#include "layers/ops/pool.h"
#include "layers/ops/unary.h"
#include "tests/cuda/conv/conv_cases.h"
#include "tests/cuda/conv/qconv_cases.h"

namespace pipit::internal::test {
namespace {

const Pool kAverage(PoolAttributes{PoolKind::average, {}, true});

// Heights and widths whose positions fill tiles, fill none, are one image of a tile or many, and end between the rows
// that a warp has.
constexpr std::array<std::array<std::int64_t, 2>, 12> kSizes{
    {{7, 7}, {6, 6}, {5, 5}, {4, 4}, {1, 1}, {8, 8}, {3, 11}, {10, 10}, {8, 16}, {1, 63}, {5, 13}, {2, 1}}};

// The sizes of tiles, and whether any depth was shared, among names of variants.
struct Ways {
  std::set<std::string> tiles;
  bool shared = false;
  int refused = 0;  // cases of which some tiles would stay so empty that an average of its own is faster

  void add(const std::string& way) {
    tiles.insert(way.substr(0, way.find_first_not_of("0123456789x")));
    shared |= way.find('/') != std::string::npos;
  }
  void expect_all() const {
    EXPECT_EQ(tiles, (std::set<std::string>{"128x128", "128x64", "64x64", "64x32"}));
    bool clusters = false;
    PIPIT_CUDA(cuda::conv_gemm_has_clusters(clusters));
    EXPECT_EQ(shared, clusters);
    EXPECT_LE(refused, 8);
  }
};

// The test in every variant.
void expect_all_ways(const Layer& layer, GpuCase test, Ways& ways) {
  if (const auto reason = gpu_refusal(layer, "implicit_gemm", test)) {
    ++ways.refused;
    return expect_refused(reason, "is not fused");
  }
  for (const std::string& way : gpu_variants(layer, "implicit_gemm", test)) {
    test.variant = way;
    ways.add(way);
    expect_gpu(layer, "implicit_gemm", test);
    if (::testing::Test::HasFailure()) return;
  }
}

// Results are rounded to half by up to 2^-11 of them, as is their mean; without a bound from below that is smaller than
// they are by up to the root of the number of positions.
constexpr double kHalfTolerance = 4e-3;

TEST(ConvAverage, InHalves) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(gpu_seed() + 60);
  const auto pick = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  const Unary functions[] = {Unary({UnaryKind::silu}), Unary({UnaryKind::hard_swish}),
                             Unary({UnaryKind::leaky_relu, 0.1})};
  Ways ways;
  for (int i = 0; i < 72 && !HasFailure(); ++i) {
    const auto& size = kSizes[static_cast<std::size_t>(i) % kSizes.size()];
    const std::int64_t kernel = i % 5 == 0 ? 3 : 1;
    Geometry g = geometry(pick(1, 9), i % 7 == 0 ? pick(5, 70) : 8 * pick(1, 40), 1,
                          i % 3 == 0 ? pick(1, 200) : 8 * pick(1, 25), kernel, 1, kernel / 2);
    g.height = size[0], g.width = size[1];
    g.bias = pick(0, 3) != 0;
    g.residual = pick(0, 1) == 1;
    g.activation = std::array{Clamp{}, Clamp::relu(), Clamp{0, 6}}[static_cast<std::size_t>(pick(0, 2))];
    const Layout layout = i % 6 == 0 ? Layout::row_major : Layout::channels_last;
    GpuCase test = make_case(g, Precision::fp16, random, layout);
    test.tolerance = kHalfTolerance;
    if (i % 4 == 3) test.followers.push_back(&functions[pick(0, 2)]);
    test.followers.push_back(&kAverage);
    expect_all_ways(Conv(ConvAttributes{g.window, 1, g.activation}), test, ways);
  }
  ways.expect_all();
}

// As networks end: ResNet-50, MobileNet v2, EfficientNet-B0, ResNet-18.
TEST(ConvAverage, InHalvesOfNetworks) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(gpu_seed() + 61);
  const Unary silu({UnaryKind::silu});
  Ways ways;
  for (const std::int64_t batch : {1, 5}) {
    for (Geometry g : {geometry(batch, 512, 7, 2048, 1, 1, 0), geometry(batch, 320, 7, 1280, 1, 1, 0),
                       geometry(batch, 512, 7, 512, 3, 1, 1)}) {
      if (HasFailure()) return;
      const bool wide = g.outputs == 1280;
      g.residual = !wide;
      g.activation = wide ? Clamp{0, 6} : Clamp::relu();
      GpuCase test = make_case(g, Precision::fp16, random);
      test.tolerance = kHalfTolerance;
      test.followers = {&kAverage};
      expect_all_ways(Conv(ConvAttributes{g.window, 1, g.activation}), test, ways);
      if (wide) test.followers = {&silu, &kAverage};
      if (wide) expect_all_ways(Conv(ConvAttributes{g.window, 1, {}}), test, ways);
    }
  }
  EXPECT_EQ(ways.refused, 0);
}

// Results in f32 have the reference's bits, so that only the sums of up to 128 of them round, each by up to 2^-24 of
// what it is, which is at most the sum of all magnitudes: 128 * 2^-24 of their mean, which without a bound from below
// is up to the root of 128 times that of the results themselves.
constexpr double kFloatTolerance = 1e-4;

void expect_average_int8(ConvCase& c, Numbers& numbers, Layout layout, Precision precision, Ways& ways) {
  c.attributes.y = kReal;
  GpuCase test = make_case(c, numbers, layout, precision);
  test.exact = false;
  test.tolerance = precision == Precision::fp16 ? kHalfTolerance : kFloatTolerance;
  test.followers = {&kAverage};
  expect_all_ways(QConv(c.attributes), test, ways);
}

TEST(ConvAverage, InInt8) {
  PIPIT_NEEDS_GPU();
  Numbers numbers(262);
  Ways ways;
  for (int i = 0; i < 72 && !HasFailure(); ++i) {
    const auto& size = kSizes[static_cast<std::size_t>(i) % kSizes.size()];
    const std::int64_t kernel = i % 5 == 0 ? 3 : 1;
    const std::int64_t channels = i % 7 == 0 ? numbers.pick(1, 70) : 16 * numbers.pick(1, 40);
    const std::int64_t filters = i % 3 == 0 ? numbers.pick(1, 200) : 8 * numbers.pick(1, 25);
    ConvCase c = random_case(numbers, channels, filters, 1);
    set_window(c.attributes.conv.window, kernel, 1, 1, kernel / 2);
    c.x = Shape{numbers.pick(1, 9), channels, size[0], size[1]};
    c.weights = Shape{filters, channels, kernel, kernel};
    // Sums below and beyond what floats hold without a conversion.
    c.largest_weight = i % 2 == 0 ? 20 : 127;
    c.attributes.conv.activation =
        std::array{Clamp{}, Clamp::relu(), Clamp{0, 6}}[static_cast<std::size_t>(numbers.pick(0, 2))];
    const Layout layout = i % 6 == 0 ? Layout::row_major : kLast;
    expect_average_int8(c, numbers, layout, i % 4 == 3 ? Precision::fp16 : Precision::fp32, ways);
  }
  ways.expect_all();
}

TEST(ConvAverage, InInt8OfNetworks) {
  PIPIT_NEEDS_GPU();
  Numbers numbers(263);
  Ways ways;
  for (const std::int64_t batch : {1, 5}) {
    for (const auto& [channels, filters, kernel] :
         {std::array<std::int64_t, 3>{512, 2048, 1}, {320, 1280, 1}, {512, 512, 3}}) {
      if (HasFailure()) return;
      ConvCase c;
      set_window(c.attributes.conv.window, kernel, 1, 1, kernel / 2);
      c.x = Shape{batch, channels, 7, 7};
      c.weights = Shape{filters, channels, kernel, kernel};
      c.attributes.x = c.attributes.residual = kI8;
      c.attributes.weight_scales = {0.02F};
      c.residual = filters != 1280;
      c.attributes.conv.activation = c.residual ? Clamp::relu() : Clamp{0, 6};
      expect_average_int8(c, numbers, kLast, Precision::fp32, ways);
    }
  }
  EXPECT_EQ(ways.refused, 0);
}

TEST(ConvAverage, OnlyWhereATileHoldsAnImage) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(gpu_seed() + 64);
  const auto refusal = [&](const Geometry& g, const Layer& follower, Precision precision) {
    GpuCase test = make_case(g, precision, random);
    test.followers = {&follower};
    return gpu_refusal(Conv(ConvAttributes{g.window, 1, g.activation}), "implicit_gemm", test);
  };
  const Geometry g = geometry(2, 64, 7, 128, 1, 1, 0);
  EXPECT_EQ(refusal(g, kAverage, Precision::fp16), std::nullopt);
  Geometry large = g;
  large.height = 12, large.width = 11;
  expect_refused(refusal(large, kAverage, Precision::fp16), "is not fused");
  expect_refused(refusal(geometry(2, 3, 7, 128, 1, 1, 0), kAverage, Precision::fp16), "is not fused");
  expect_refused(refusal(g, Pool(PoolAttributes{PoolKind::max, {}, true}), Precision::fp16), "is not fused");
  Window window;
  set_window(window, 7, 1, 1, 0);
  expect_refused(refusal(g, Pool(PoolAttributes{PoolKind::average, window, false}), Precision::fp16),
                 "is not fused");
}

}  // namespace
}  // namespace pipit::internal::test
