// Unary, Binary, Where and Cast on the GPU against the CPU reference.
#include "layers/ops/binary.h"
#include "layers/ops/cast.h"
#include "layers/ops/unary.h"
#include "tests/cuda/conformance.h"

namespace pipit::internal {
namespace {

using test::expect_gpu;
using test::GpuCase;
using test::GpuOperand;
using test::shared_random;

constexpr const char* kName = "elementwise";
constexpr Layout kBoth[] = {Layout::row_major, Layout::channels_last};
constexpr Precision kPrecisions[] = {Precision::fp32, Precision::fp16};

template <typename T>
std::shared_ptr<const Tensor> integers(const Shape& shape, std::mt19937& random, int low, int high) {
  Tensor tensor(TensorDesc{shape, DTypeOf<T>::value, Layout::row_major});
  for (T& x : tensor.values<T>()) x = static_cast<T>(std::uniform_int_distribution<int>(low, high)(random));
  return std::make_shared<const Tensor>(std::move(tensor));
}

TEST(GpuElementwise, UnaryFunctions) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(test::gpu_seed());
  for (int k = 0; k < static_cast<int>(UnaryKind::logical_not); ++k) {
    const auto kind = static_cast<UnaryKind>(k);
    UnaryAttributes a{kind, 0.3, 0.7};
    if (kind == UnaryKind::selu) a = {kind, 1.67, 1.05};
    const bool positive = kind == UnaryKind::log || kind == UnaryKind::sqrt ||
                          kind == UnaryKind::reciprocal || kind == UnaryKind::pow;
    const Unary layer(a);
    for (const Precision precision : kPrecisions) {
      // The first shape takes 16 bytes a thread, the second has a tail.
      for (const Shape& shape : {Shape{2, 16, 5, 4}, Shape{3, 7, 5}}) {
        const auto x = shared_random(shape, random, positive ? 0.5F : -4.0F, 4.0F);
        for (const Layout layout : kBoth) expect_gpu(layer, kName, {{{x, layout}}, precision, layout});
        if (HasFailure()) return;
      }
    }
  }
}

TEST(GpuElementwise, Powers) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(test::gpu_seed());
  for (const double exponent : {2.0, 3.0, 4.0, 0.5, -0.5, -1.0, 1.75, 0.0}) {
    const bool whole = exponent == 2 || exponent == 3 || exponent == 4 || exponent == 0;
    const auto x = shared_random(Shape{2, 16, 5, 4}, random, whole ? -3.0F : 0.25F, 3.0F);
    for (const Precision precision : kPrecisions) {
      expect_gpu(Unary({UnaryKind::pow, exponent}), kName, {{{x, Layout::channels_last}}, precision});
    }
  }
}

TEST(GpuElementwise, UnaryOnIntegersAndBool) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(test::gpu_seed());
  for (const UnaryKind kind : {UnaryKind::relu, UnaryKind::clip, UnaryKind::neg, UnaryKind::abs,
                               UnaryKind::sign, UnaryKind::floor, UnaryKind::round}) {
    const Unary layer({kind, -20.5, 1000});
    expect_gpu(layer, kName, {{{integers<std::int32_t>({3, 37}, random, -100, 100)}}});
    expect_gpu(layer, kName, {{{integers<std::int8_t>({5, 11}, random, -128, 127)}}});
    expect_gpu(layer, kName, {{{integers<std::int64_t>({41}, random, -100000, 100000)}}});
  }
  expect_gpu(Unary({UnaryKind::logical_not}), kName, {{{integers<bool>({3, 5, 7}, random, 0, 1)}}});
}

TEST(GpuElementwise, UnaryPropagatesNanAndTakesEmptyTensors) {
  PIPIT_NEEDS_GPU();
  std::vector<float> values{NAN, -INFINITY, INFINITY, -0.0F, 3, -3, 1, 2};
  const auto x = std::make_shared<const Tensor>(Tensor::from<float>({8}, values));
  const auto empty = std::make_shared<const Tensor>(TensorDesc{Shape{2, 0, 3}});
  for (const Precision precision : kPrecisions) {
    for (const UnaryKind kind : {UnaryKind::relu, UnaryKind::clip, UnaryKind::silu, UnaryKind::sign}) {
      expect_gpu(Unary({kind, -1, 2}), kName, {{{x}}, precision});
      expect_gpu(Unary({kind, -1, 2}), kName, {{{empty}}, precision});
    }
  }
}

TEST(GpuElementwise, BinaryFunctionsBroadcast) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(test::gpu_seed());
  struct Shapes {
    Shape a, b;
  };
  const Shapes shapes[] = {{{2, 16, 5, 4}, {2, 16, 5, 4}},
                           {{2, 16, 5, 4}, {2, 16, 1, 1}},
                           {{2, 5, 7, 3}, {5, 1, 1}},
                           {{3, 1, 4}, {2, 1}},
                           {{1, 8, 3, 3}, {}},
                           {{1, 3, 1, 5}, {4, 1, 6, 1}}};
  for (int k = 0; k < static_cast<int>(BinaryKind::logical_and); ++k) {
    const auto kind = static_cast<BinaryKind>(k);
    const bool positive = kind == BinaryKind::pow || kind == BinaryKind::div;
    // Remainders jump at multiples of the divisor: halves would jump elsewhere than their rounded quotients.
    const bool jumps = kind == BinaryKind::mod || kind == BinaryKind::fmod;
    const Clamp activation = is_comparison(kind) || jumps ? Clamp{} : Clamp{0.0F, 1.5F};
    const Binary layer({kind, activation});
    for (const Precision precision : kPrecisions) {
      for (const Shapes& s : shapes) {
        if (kind == BinaryKind::prelu && s.a.rank() == 4 && s.b.rank() == 4 && s.b[2] == 6) continue;
        if (kind == BinaryKind::prelu && s.a.rank() == 3) continue;  // the slope does not broadcast to x
        const auto a = shared_random(s.a, random, positive ? 0.5F : -2.0F, 2.0F);
        const auto b = shared_random(s.b, random, positive || jumps ? 0.5F : -2.0F, 2.0F);
        for (const Layout x : kBoth) {
          for (const Layout y : kBoth) expect_gpu(layer, kName, {{{a, x}, {b, y}}, precision, x});
        }
        // A constant stays f32 beside f16 activations.
        expect_gpu(
            layer, kName,
            {{{a, Layout::channels_last}, {b, Layout::row_major, true}}, precision, Layout::channels_last});
        if (HasFailure()) return;
      }
    }
  }
}

TEST(GpuElementwise, BinaryOnIntegersAndBool) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(test::gpu_seed());
  const auto a = integers<std::int64_t>({3, 1, 5}, random, -50, 50);
  const auto b = integers<std::int64_t>({4, 1}, random, -50, 50);
  for (const BinaryKind kind :
       {BinaryKind::add, BinaryKind::sub, BinaryKind::mul, BinaryKind::min, BinaryKind::max,
        BinaryKind::equal, BinaryKind::less, BinaryKind::greater_equal}) {
    expect_gpu(Binary({kind}), kName, {{{a}, {b}}});
    expect_gpu(
        Binary({kind}), kName,
        {{{integers<std::uint8_t>({77}, random, 0, 255)}, {integers<std::uint8_t>({77}, random, 0, 255)}}});
  }
  for (const BinaryKind kind : {BinaryKind::logical_and, BinaryKind::logical_or, BinaryKind::logical_xor}) {
    expect_gpu(Binary({kind}), kName,
               {{{integers<bool>({3, 9}, random, 0, 1)}, {integers<bool>({9}, random, 0, 1)}}});
  }
  EXPECT_TRUE(test::gpu_refusal(Binary({BinaryKind::div}), kName, {{{a}, {b}}}).has_value());
}

TEST(GpuElementwise, Divisions) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(test::gpu_seed());
  constexpr auto kLeast = std::numeric_limits<std::int64_t>::min();
  const std::int64_t edges[] = {kLeast, kLeast, -7, -7, 7, 7, 0, 5},
                     divisors[] = {-1, 3, 2, -2, -2, 7, -9, 1};
  const auto a = std::make_shared<const Tensor>(Tensor::from<std::int64_t>({8}, edges));
  const auto b = std::make_shared<const Tensor>(Tensor::from<std::int64_t>({8}, divisors));
  const auto c = integers<std::int32_t>({3, 1, 5}, random, -50, 50);
  const auto d = integers<std::int32_t>({4, 1}, random, 1, 9);
  const auto exponents = integers<std::int64_t>({4, 1}, random, 0, 40);
  for (const BinaryKind kind : {BinaryKind::div, BinaryKind::mod, BinaryKind::fmod, BinaryKind::pow}) {
    if (kind != BinaryKind::pow) expect_gpu(Binary({kind}), "divisions", {{{a}, {b}}});
    expect_gpu(Binary({kind}), "divisions", {{{c}, {d}}});
    expect_gpu(
        Binary({kind}), "divisions",
        {{{integers<std::uint8_t>({77}, random, 0, 255)}, {integers<std::uint8_t>({77}, random, 1, 255)}}});
  }
  expect_gpu(Binary({BinaryKind::pow}), "divisions", {{{c}, {exponents}}});
  const std::int64_t bases[] = {1, -1, -1, 2, -3}, negative[] = {-3, -3, -4, -1, -2};
  expect_gpu(Binary({BinaryKind::pow}), "divisions",
             {{{std::make_shared<const Tensor>(Tensor::from<std::int64_t>({5}, bases))},
               {std::make_shared<const Tensor>(Tensor::from<std::int64_t>({5}, negative))}}});
}

TEST(GpuElementwise, PowersOfMixedTypes) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(test::gpu_seed());
  const Binary power({BinaryKind::pow});
  const auto floats = shared_random({3, 1, 5}, random, 0.5F, 2);
  for (const Precision precision : kPrecisions) {
    expect_gpu(power, "mixed_powers",
               {{{floats}, {integers<std::int64_t>({4, 1}, random, -6, 6)}}, precision});
    expect_gpu(
        power, "mixed_powers",
        {{{floats}, {integers<std::int32_t>({5}, random, -6, 6), Layout::row_major, true}}, precision});
  }
  const float exponents[] = {0, 1, 2, 0.5F, 3, 40};
  const auto b = std::make_shared<const Tensor>(Tensor::from<float>({6}, exponents));
  expect_gpu(power, "mixed_powers", {{{integers<std::int32_t>({7, 1}, random, -9, 9)}, {b}}});
  expect_gpu(power, "mixed_powers", {{{integers<std::int8_t>({7, 1}, random, -9, 9)}, {b}}});
  expect_gpu(power, "mixed_powers", {{{integers<std::uint8_t>({7, 1}, random, 0, 9)}, {b}}});
}

TEST(GpuElementwise, Where) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(test::gpu_seed());
  const auto condition = integers<bool>({2, 1, 5, 3}, random, 0, 1);
  for (const Precision precision : kPrecisions) {
    const auto a = shared_random({4, 1, 3}, random);
    const auto b = shared_random({2, 4, 5, 3}, random);
    for (const Layout layout : kBoth) {
      expect_gpu(Where(), kName, {{{condition}, {a, layout}, {b, layout}}, precision, layout});
      expect_gpu(Where(), kName, {{{condition}, {a, layout, true}, {b, layout}}, precision, layout});
    }
  }
  const auto n = integers<std::int32_t>({2, 1, 5, 3}, random, -9, 9);
  expect_gpu(Where(), kName, {{{condition}, {n}, {n}}});
}

TEST(GpuElementwise, CastBetweenAllTypes) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(test::gpu_seed());
  const auto f = shared_random({3, 5, 7}, random, -300.0F, 300.0F);
  const auto i8 = integers<std::int8_t>({3, 5, 7}, random, -128, 127);
  const auto u8 = integers<std::uint8_t>({3, 5, 7}, random, 0, 255);
  const auto i32 = integers<std::int32_t>({3, 5, 7}, random, -100000, 100000);
  const auto i64 = integers<std::int64_t>({3, 5, 7}, random, -100000, 100000);
  const auto flags = integers<bool>({3, 5, 7}, random, 0, 1);
  for (const auto& x : {f, i8, u8, i32, i64, flags}) {
    for (const DType to :
         {DType::f32, DType::f64, DType::i8, DType::u8, DType::i32, DType::i64, DType::boolean}) {
      for (const Layout layout : kBoth)
        expect_gpu(Cast({to}), kName, {{{x, layout}}, Precision::fp32, layout});
    }
  }
}

// The borders of an fp16 graph: f32 in, f16 out, and back.
TEST(GpuElementwise, CastToAndFromHalf) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(test::gpu_seed());
  const Cast same({DType::f32});
  for (const Shape& shape : {Shape{2, 3, 9, 7}, Shape{1, 8, 4, 4}}) {
    const auto x = shared_random(shape, random, -3, 3);
    for (const Layout from : kBoth) {
      GpuCase in{{{x, from}}, Precision::fp16, from};
      in.reference = &same;
      in.keep_input_f32 = true;
      expect_gpu(Cast({DType::f16}), kName, in);
      GpuCase out{{{x, from}}, Precision::fp16, from};
      out.keep_output_f32 = true;
      out.tolerance = 1e-9;  // widening is exact
      expect_gpu(same, kName, out);
    }
  }
}

}  // namespace
}  // namespace pipit::internal
