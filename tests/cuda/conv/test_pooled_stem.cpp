// pooled_stem on a GPU, as the planner makes it: against the CPU bit for bit in INT8, by norms in fp16.
#include "layers/ops/pool.h"
#include "layers/passes/byte_image.h"
#include "tests/cuda/conv/chain_graph.h"

namespace pipit::internal::test {
namespace {

constexpr const char* kName = "pooled_stem";

// An image, a convolution of 7 rows to 64 channels, a maximum of 3x3 and stride 2, and a 1x1 that reads it.
Graph random_stem(Numbers& numbers, bool int8) {
  std::mt19937& random = numbers.random;
  GraphBuilder builder;
  const int channels = draw(random, 1, 4), images = draw(random, 1, 30);
  ValueId x =
      builder.add_input("x", TensorDesc{Shape{images, channels, draw(random, 16, 90), draw(random, 16, 90)}});
  if (int8) x = builder.add1("x.q", std::make_shared<Quantize>(kI8), {x});
  const auto conv = [&](const std::string& name, ValueId from, const ConvAttributes& plain,
                        const Shape& shape) {
    const auto depth = static_cast<double>(shape[1] * shape[2] * shape[3]);
    const auto bound = static_cast<float>(std::sqrt(3 / depth));
    const ValueId weights =
        int8 ? builder.add_constant(name + ".w", numbers.integers<std::int8_t>(shape, -100, 100))
             : builder.add_constant(name + ".w", random_tensor(shape, random, -bound, bound));
    ValueId bias = kNoValue;
    if (numbers.coin()) {
      const Shape outputs{shape[0]};
      bias = int8 ? builder.add_constant(name + ".b", numbers.integers<std::int32_t>(outputs, -3000, 3000))
                  : builder.add_constant(name + ".b", random_tensor(outputs, random));
    }
    if (!int8) return builder.add1(name, std::make_shared<Conv>(plain), {from, weights, bias});
    QConvAttributes a;
    a.conv = plain;
    a.x = a.y = kI8;
    for (int o = 0; o < shape[0]; ++o)
      a.weight_scales.push_back(static_cast<float>(0.0005 * numbers.pick(10, 40) / std::sqrt(depth)));
    return builder.add1(name, std::make_shared<QConv>(a), {from, weights, bias});
  };
  ConvAttributes first;
  const int width = draw(random, 3, 8);
  set_window(first.window, 7, draw(random, 1, 3), 1, draw(random, 0, 3));
  first.window.kernel[1] = width;
  if (int8 || numbers.coin()) first.activation = numbers.coin() ? Clamp::relu() : Clamp{0, 0.91F};
  const ValueId mid = conv("first", x, first, Shape{64, channels, 7, width});
  PoolAttributes pool;
  set_window(pool.window, 3, 2, 1, draw(random, 0, 1));
  pool.window.ceil_mode = numbers.coin();
  const ValueId pooled = builder.add1("pool", std::make_shared<Pool>(pool), {mid});
  ConvAttributes last;
  set_window(last.window, 1, 1, 1, 0);
  builder.mark_output(conv("last", pooled, last, Shape{64, 64, 1, 1}));
  return builder.build();
}

TEST(PooledStem, IsTheSpecificationInInt8) {
  PIPIT_NEEDS_HOPPER();
  Numbers numbers(430);
  for (int i = 0; i < 20; ++i) {
    SCOPED_TRACE(fmt::format("case {}, seed {}", i, gpu_seed()));
    ASSERT_EQ(expect_specification(random_stem(numbers, true), kName, numbers), 1);
  }
}

TEST(PooledStem, AgreesInHalves) {
  PIPIT_NEEDS_HOPPER();
  Numbers numbers(431);
  for (int i = 0; i < 20; ++i) {
    SCOPED_TRACE(fmt::format("case {}, seed {}", i, gpu_seed()));
    // Weights, x and two results are rounded, each to 2^-12 of it on average.
    ASSERT_EQ(expect_halves(random_stem(numbers, false), kName, 1e-3, numbers), 1);
  }
}

// The graph that begins with bytes, whose kernel reads them itself, gives the bits that floats give.
void expect_same_of_bytes(Precision precision, unsigned test) {
  const bool int8 = precision == Precision::fp32;
  Numbers numbers(test);
  for (int i = 0; i < 20; ++i) {
    SCOPED_TRACE(fmt::format("case {}, seed {}", i, gpu_seed()));
    const Graph graph = random_stem(numbers, int8);
    const Shape x = graph.value(graph.inputs()[0]).desc.shape;
    const std::int64_t channels = x[1], pixels = x[2] * x[3];
    const bool reversed = numbers.coin();
    Tensor table = random_tensor(Shape{channels, 256}, numbers.random, -2, 2);
    Tensor bytes(TensorDesc{Shape{x[0], x[2], x[3], channels}, DType::u8}), floats(TensorDesc{x});
    for (std::int64_t k = 0; k < x.elements(); ++k) {
      const int byte = draw(numbers.random, 0, 255);
      bytes.values<std::uint8_t>()[static_cast<std::size_t>(k)] = static_cast<std::uint8_t>(byte);
      const std::int64_t c = reversed ? channels - 1 - k % channels : k % channels;
      const std::int64_t pixel = k / channels;
      floats.values<float>()[static_cast<std::size_t>((pixel / pixels * channels + c) * pixels +
                                                      pixel % pixels)] =
          table.values<float>()[static_cast<std::size_t>(c * 256 + byte)];
    }
    const auto plan = plan_for(with_byte_image(graph, {.reverse_channels = reversed}, std::move(table)),
                               DeviceKind::cuda, precision, kName);
    Session of_bytes(plan), of_floats(plan_for(graph, DeviceKind::cuda, precision, kName));
    std::vector<Tensor> given, wanted;
    given.push_back(std::move(bytes)), wanted.push_back(std::move(floats));
    for (int run = 0; run < 3; ++run)
      EXPECT_EQ(bytes_of(results(of_bytes, given)[0]), bytes_of(results(of_floats, wanted)[0]));
    EXPECT_EQ(chains_in(*plan, kName), 1);
    EXPECT_EQ(plan->steps()[0].kernel_name, kName);
  }
}

TEST(PooledStem, ReadsBytesAsFloatsInInt8) {
  PIPIT_NEEDS_HOPPER();
  expect_same_of_bytes(Precision::fp32, 432);
}

TEST(PooledStem, ReadsBytesAsFloatsInHalves) {
  PIPIT_NEEDS_HOPPER();
  expect_same_of_bytes(Precision::fp16, 433);
}

TEST(PooledStem, ReadsBytesAsFloatsInBf16) {
  PIPIT_NEEDS_HOPPER();
  expect_same_of_bytes(Precision::bf16, 434);
}

}  // namespace
}  // namespace pipit::internal::test
