// Functions of their results that fp16 convolutions compute as well: which are taken (on the CPU), and the results of
// every kernel that takes them against the CPU reference.
#include <cmath>
#include <limits>
#include <set>

#include "layers/cuda/conv/gemm_problem.h"
#include "layers/ops/unary.h"
#include "layers/registry.h"
#include "tests/cuda/conv/conv_cases.h"
#include "tests/cuda/conv/resident_cases.h"
#include "tests/cuda/conv/stem_cases.h"

namespace pipit::internal::test {
namespace {

const std::vector<UnaryAttributes> kFunctions{{UnaryKind::silu},
                                              swish(1.702),
                                              swish(-0.5),
                                              {UnaryKind::sigmoid},
                                              {UnaryKind::hard_sigmoid, 0.2, 0.5},
                                              {UnaryKind::hard_swish},
                                              {UnaryKind::leaky_relu, 0.1}};

// A convolution as the planner describes it, with its weights, and a node that follows.
struct Described {
  Conv conv;
  Unary unary;
  TensorDesc x, y;
  std::array<const TensorDesc*, 2> inputs{&x, nullptr};
  std::array<const TensorDesc*, 1> follower_inputs{&y};
  std::array<std::shared_ptr<const Tensor>, 2> constants;
  std::array<std::shared_ptr<const Tensor>, 1> no_constants;
  NodeSpec spec, next;
  std::array<const NodeSpec*, 1> follower{&next};

  Described(const Geometry& g, const UnaryAttributes& function, DType type = DType::f16)
      : conv(ConvAttributes{g.window, g.groups, g.activation}),
        unary(function),
        x{Shape{g.batch, g.channels, g.height, g.width}, type, Layout::channels_last},
        y{window_output_shape(g.window, x.shape, g.outputs), type, Layout::channels_last},
        spec{conv, inputs, {&y, 1}, constants, Precision::fp16},
        next{unary, follower_inputs, {&y, 1}, no_constants, Precision::fp16} {
    std::mt19937 random(3);
    constants[1] = shared_random(weight_shape(g), random);
    inputs[1] = &constants[1]->desc();
  }
  Described(const Described&) = delete;
  Described& operator=(const Described&) = delete;
};

TEST(HalfFollower, IsOneFunctionOfHalves) {
  const Geometry g = geometry(1, 64, 14, 64, 1, 1, 0);
  for (const UnaryAttributes& function : kFunctions) {
    Described d(g, function);
    EXPECT_TRUE(cuda::fuses_function(d.spec, d.next)) << d.unary.summary();
    d.spec.fusion.followers = d.follower;
    EXPECT_NE(cuda::follower_function(d.spec).gate, cuda::HalfGate::none) << d.unary.summary();
    EXPECT_FALSE(cuda::fuses_function(d.spec, d.next)) << "a second " << d.unary.summary();
  }
  const Described none(g, {UnaryKind::silu});
  EXPECT_EQ(cuda::follower_function(none.spec).gate, cuda::HalfGate::none);
  EXPECT_FALSE(cuda::fuses_function(none.spec, none.spec)) << "another convolution";
  const double infinity = std::numeric_limits<double>::infinity();
  for (const UnaryAttributes& function :
       {UnaryAttributes{UnaryKind::gelu}, UnaryAttributes{UnaryKind::tanh}, UnaryAttributes{UnaryKind::exp},
        swish(1e6), swish(infinity), UnaryAttributes{UnaryKind::leaky_relu, std::nan("")},
        UnaryAttributes{UnaryKind::hard_sigmoid, 0.2, infinity}}) {
    const Described d(g, function);
    EXPECT_FALSE(cuda::fuses_function(d.spec, d.next)) << d.unary.summary();
  }
  const Described floats(g, {UnaryKind::silu}, DType::f32);
  EXPECT_FALSE(cuda::fuses_function(floats.spec, floats.next));
}

TEST(HalfFollower, FiveCandidatesTakeIt) {
  const Described d(geometry(1, 64, 14, 64, 1, 1, 0), {UnaryKind::silu});
  std::set<std::string> takers;
  for (const Candidate& c : default_registry().candidates(Conv::kType, DeviceKind::cuda)) {
    if (c.fusions.epilogue && c.fusions.epilogue(d.spec, d.next)) takers.insert(c.name);
  }
  EXPECT_EQ(takers, (std::set<std::string>{"depthwise_quads", "stem", "spread_gemm", "resident_gemm",
                                           "implicit_gemm"}));
}

// The results are rounded once, by up to 2^-11 of them, where the function's own kernel would round twice; sums, of
// products of halves in f32, and the function (layers/cuda/conv/half_function.cuh) are off by much less.
constexpr double kTolerance = 0x1p-11 + 1e-4;

// Every function in turn.
class Functions {
 public:
  void expect(const Geometry& g, const std::string& name, GpuCase& test) {
    const Unary function(kFunctions[next_++ % kFunctions.size()]);
    test.followers = {&function};
    test.tolerance = kTolerance;
    expect_gpu(Conv(ConvAttributes{g.window, g.groups, g.activation}), name, test);
    test.followers.clear();
  }

 private:
  std::size_t next_ = 0;
};

// Every tile, whole depths and shared ones, narrow pixels; residuals, bounds, odd outputs.
TEST(ConvFunction, ImplicitGemm) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(gpu_seed() + 40);
  Functions functions;
  std::set<std::string> tiles;
  const auto check = [&](const Geometry& g, Layout layout) {
    GpuCase test = make_case(g, Precision::fp16, random, layout);
    const Conv layer(ConvAttributes{g.window, 1, g.activation});
    for (const std::string& way : gpu_variants(layer, "implicit_gemm", test)) {
      test.variant = way;
      tiles.insert(way.substr(0, way.find_first_not_of("0123456789x")));
      functions.expect(g, "implicit_gemm", test);
      if (::testing::Test::HasFailure()) return;
    }
  };
  for (int i = 0; i < 60 && !HasFailure(); ++i) {
    Geometry g = random_geometry(random);
    if (i % 4 == 0) g.channels = 1 + i / 4 % 7;
    check(g, i % 5 == 0 ? Layout::row_major : Layout::channels_last);
  }
  for (Geometry g : {geometry(1, 512, 7, 136, 3, 1, 1), geometry(2, 200, 9, 101, 3, 1, 1),
                     geometry(4, 96, 29, 264, 1, 1, 0), geometry(32, 1152, 1, 48, 1, 1, 0)}) {
    if (HasFailure()) return;
    g.residual = g.outputs > 128;
    check(g, Layout::channels_last);
  }
  EXPECT_GE(tiles.size(), 4U);
}

TEST(ConvFunction, DepthwiseQuads) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(gpu_seed() + 41);
  Functions functions;
  const auto pick = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  for (int i = 0; i < 56 && !HasFailure(); ++i) {
    const std::int64_t window = 3 + i % 2 * 2;
    Geometry g = geometry(i % 3 == 0 ? pick(16, 40) : pick(1, 3), 4 * pick(1, 40), 1, 1, window,
                          1 + i / 2 % 2, window / 2);
    g.height = pick(1, 40), g.width = pick(1, 40);
    g.outputs = g.groups = g.channels;
    g.bias = pick(0, 3) != 0;
    if (pick(0, 1) == 1) g.activation = Clamp{-0.5F, 0.7F};
    GpuCase test = make_case(g, Precision::fp16, random);
    functions.expect(g, "depthwise_quads", test);
  }
}

TEST(ConvFunction, Stem) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(gpu_seed() + 42);
  Functions functions;
  std::set<std::string> ways;
  for (int i = 0; i < 48 && !HasFailure(); ++i) {
    Geometry g = random_geometry(random);
    g.channels = i % 3 == 0 ? 8 * (1 + i / 3 % 4) : 1 + i % 32;
    g.outputs = std::array{3, 8, 13, 16, 24, 32, 64, 72}[static_cast<std::size_t>(i % 8)];
    GpuCase test =
        make_case(g, Precision::fp16, random, i % 2 == 0 ? Layout::row_major : Layout::channels_last);
    const Conv layer(ConvAttributes{g.window, 1, g.activation});
    for (const std::string& way : gpu_variants(layer, "stem", test)) {
      test.variant = way;
      ways.insert(way.substr(0, way.find('+')));
      functions.expect(g, "stem", test);
      if (HasFailure()) return;
    }
  }
  EXPECT_EQ(ways, kStemTiles);
  const Geometry image = geometry(2, 3, 77, 40, 3, 2, 1);
  GpuCase test = make_case(image, Precision::fp16, random, Layout::row_major);
  test.keep_input_f32 = true;
  functions.expect(image, "stem", test);
}

TEST(ConvFunction, ResidentGemm) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(gpu_seed() + 43);
  Functions functions;
  int accepted = 0;
  for (int i = 0; i < 50 && !HasFailure(); ++i) {
    const Geometry g = i < 4 ? geometry(40, 16, 56, i % 2 == 0 ? 96 : 144, i < 2 ? 1 : 3, 1, i < 2 ? 0 : 1)
                             : random_geometry(random);
    const auto reason =
        check_resident(g, i % 3 == 2, random, [&](const Geometry& taken, const Conv&, GpuCase& test) {
          functions.expect(taken, "resident_gemm", test);
        });
    if (reason && reason->find("Hopper") != std::string::npos) GTEST_SKIP() << *reason;
    accepted += reason ? 0 : 1;
  }
  EXPECT_GT(accepted, 15);
}

TEST(ConvFunction, SpreadGemm) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(gpu_seed() + 45);
  Functions functions;
  int accepted = 0;
  for (int i = 0; i < 40 && !HasFailure(); ++i) {
    const Geometry g = i < 4 ? geometry(1, 48 << i, 7, 320 >> i, 1, 1, 0) : random_geometry(random);
    GpuCase test = make_case(g, Precision::fp16, random);
    const Conv layer(ConvAttributes{g.window, 1, g.activation});
    if (const auto reason = gpu_refusal(layer, "spread_gemm", test)) {
      if (reason->find("Hopper") != std::string::npos) GTEST_SKIP() << *reason;
      continue;
    }
    ++accepted;
    for (const std::string& way : gpu_variants(layer, "spread_gemm", test)) {
      test.variant = way;
      functions.expect(g, "spread_gemm", test);
      if (HasFailure()) break;
    }
  }
  EXPECT_GT(accepted, 30);
}

// Arguments at which exponentials overflow or vanish, and NaN, each in the channel or pixel that alone has a weight.
TEST(ConvFunction, EveryArgument) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(gpu_seed() + 44);
  const float nan = std::numeric_limits<float>::quiet_NaN(),
              infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> arguments{0,      -0.0F, 6e-8F, -6e-8F, 1,     -1,   3,        -3,
                                     -9.5F,  -17,   -20,   -87.5F, -89,   -104, -150,     -1000,
                                     -65504, 88.5F, 104,   1000,   65504, nan,  infinity, 2.5F};
  const auto count = static_cast<std::int64_t>(arguments.size());
  ASSERT_EQ(count % 4, 0);
  const auto check = [&](Geometry g, const std::string& name, const Shape& x, bool by_channel) {
    g.bias = false;
    g.height = x[2], g.width = x[3];
    GpuCase test = make_case(g, Precision::fp16, random);
    Tensor image{TensorDesc{x}}, weights{TensorDesc{weight_shape(g)}};
    std::ranges::fill(image.values<float>(), 0.0F);
    std::ranges::fill(weights.values<float>(), 0.0F);
    std::ranges::copy(arguments,
                      image.values<float>().begin());  // row-major: channels, or pixels of channel 0
    const auto taps = static_cast<std::size_t>(g.window.taps());
    const std::size_t step = by_channel ? taps : taps * static_cast<std::size_t>(g.channels);
    for (std::size_t i = taps / 2; i < weights.values<float>().size(); i += step)
      weights.values<float>()[i] = 1;
    test.inputs[0].tensor = std::make_shared<const Tensor>(std::move(image));
    test.inputs[1].tensor = std::make_shared<const Tensor>(std::move(weights));
    const Conv layer(ConvAttributes{g.window, g.groups, g.activation});
    if (const auto reason = gpu_refusal(layer, name, test)) {
      EXPECT_NE(reason->find("Hopper"), std::string::npos) << *reason;
      return;
    }
    for (const UnaryAttributes& a : kFunctions) {
      const Unary function(a);
      test.followers = {&function};
      expect_gpu(layer, name, test);
    }
  };
  for (const char* name : {"implicit_gemm", "stem", "spread_gemm", "resident_gemm"})
    check(geometry(1, 8, 1, 16, 1, 1, 0), name, Shape{1, 8, 1, count}, false);
  Geometry depthwise = geometry(1, count, 1, count, 3, 1, 1);
  depthwise.groups = count;
  check(depthwise, "depthwise_quads", Shape{1, count, 1, 1}, true);
}

// Kernels for lists of blocks have no function.
TEST(ConvFunction, NotWhereZerosAreLeftOut) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(gpu_seed() + 45);
  const Geometry g = geometry(8, 512, 14, 128, 3, 1, 1);
  const Conv layer(ConvAttributes{g.window, 1, {}});
  const Unary function({UnaryKind::silu});
  GpuCase test = make_case(g, Precision::fp16, random);
  test.followers = {&function};
  EXPECT_EQ(gpu_refusal(layer, "implicit_gemm", test), std::nullopt);
  Tensor weights = test.inputs[1].tensor->clone();
  for (std::size_t i = 0; i < weights.values<float>().size(); ++i) {
    if (i / 9 % 512 >= 64) weights.values<float>()[i] = 0;
  }
  test.inputs[1].tensor = std::make_shared<const Tensor>(std::move(weights));
  expect_refused(gpu_refusal(layer, "implicit_gemm", test), "is not fused");
  test.followers.clear();
  EXPECT_EQ(gpu_refusal(layer, "implicit_gemm", test), std::nullopt);
}

}  // namespace
}  // namespace pipit::internal::test
