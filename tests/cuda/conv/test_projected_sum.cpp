// projected_sum on a GPU, as the planner makes it: against the CPU bit for bit in INT8, by norms in fp16.
#include "tests/cuda/conv/chain_graph.h"

namespace pipit::internal::test {
namespace {

constexpr const char* kName = "projected_sum";

struct SumShape {
  int images = 1, height = 1, width = 1;  // of the result
  int stride[2] = {1, 1};                 // of what is added, of the other
  int in_c[2] = {128, 128};
  int out_c = 128;
};

SumShape random_sum(std::mt19937& random, int element_bytes) {
  SumShape s;
  const int unit = 128 / element_bytes;
  s.images = draw(random, 1, 40), s.height = draw(random, 1, 20);
  s.width = draw(random, 0, 4) == 0 ? draw(random, 30, 70) : draw(random, 1, 30);
  for (int& stride : s.stride) stride = draw(random, 1, 2);
  s.in_c[0] = unit * draw(random, 1, 5);
  s.in_c[1] = unit * draw(random, 1, 6 - s.in_c[0] / unit);
  s.out_c = 128 * draw(random, 1, 5);
  return s;
}

// x and a come from convolutions, so that they lie as a network's values do; another one reads the result.
Graph graph_of_sum(const SumShape& s, bool int8, Numbers& numbers, int most) {
  GraphBuilder builder;
  const auto conv = [&](const std::string& name, ValueId x, int in_c, int out_c, int stride,
                        const Clamp& clamp, ValueId residual = kNoValue) {
    ConvAttributes plain;
    set_window(plain.window, 1, stride, 1, 0);
    plain.activation = clamp;
    const Shape shape{out_c, in_c, 1, 1};
    std::vector<ValueId> inputs{x};
    if (int8) {
      inputs.push_back(builder.add_constant(name + ".w", numbers.integers<std::int8_t>(shape, -most, most)));
      inputs.push_back(numbers.coin() ? builder.add_constant(name + ".b", numbers.integers<std::int32_t>(
                                                                              Shape{out_c}, -3000, 3000))
                                      : kNoValue);
    } else {
      const auto bound = static_cast<float>(std::sqrt(3.0 / in_c));
      inputs.push_back(
          builder.add_constant(name + ".w", random_tensor(shape, numbers.random, -bound, bound)));
      inputs.push_back(numbers.coin()
                           ? builder.add_constant(name + ".b", random_tensor(Shape{out_c}, numbers.random))
                           : kNoValue);
    }
    if (residual != kNoValue) inputs.push_back(residual);
    if (!int8) return builder.add1(name, std::make_shared<Conv>(plain), inputs);
    QConvAttributes a;
    a.conv = plain;
    a.x = a.residual = a.y = kI8;
    for (int o = 0; o < out_c; ++o)
      a.weight_scales.push_back(static_cast<float>(0.0508 / most * numbers.pick(10, 40) / std::sqrt(in_c)));
    return builder.add1(name, std::make_shared<QConv>(a), inputs);
  };
  ValueId x[2];
  for (int i = 0; i < 2; ++i) {
    // Rows and columns that no stride meets end the image.
    const auto extent = [&](int out) {
      return (out - 1) * s.stride[i] + draw(numbers.random, 1, s.stride[i]);
    };
    const std::string name = fmt::format("x{}", i);
    x[i] = builder.add_input(name, TensorDesc{Shape{s.images, 64, extent(s.height), extent(s.width)}});
    if (int8) x[i] = builder.add1(name + ".q", std::make_shared<Quantize>(kI8), {x[i]});
    x[i] = conv(name + ".conv", x[i], 64, s.in_c[i], 1, Clamp::relu());
  }
  const Clamp added = int8 && numbers.coin() ? Clamp{-0.4F, 0.7F} : Clamp{};
  const ValueId first = conv("added", x[0], s.in_c[0], s.out_c, s.stride[0], added);
  const ValueId sum = conv("other", x[1], s.in_c[1], s.out_c, s.stride[1],
                           numbers.coin() ? Clamp::relu() : Clamp{0, 0.91F}, first);
  builder.mark_output(conv("reader", sum, s.out_c, 64, 1, Clamp{}));
  return builder.build();
}

TEST(ProjectedSum, IsTheSpecificationInInt8) {
  PIPIT_NEEDS_HOPPER();
  Numbers numbers(530);
  for (int i = 0; i < 24; ++i) {
    SCOPED_TRACE(fmt::format("case {}, seed {}", i, gpu_seed()));
    const Graph graph = graph_of_sum(random_sum(numbers.random, 1), true, numbers, i % 2 == 0 ? 40 : 127);
    ASSERT_EQ(expect_specification(graph, kName, numbers), 1);
  }
}

TEST(ProjectedSum, AgreesInHalves) {
  PIPIT_NEEDS_HOPPER();
  Numbers numbers(531);
  for (int i = 0; i < 24; ++i) {
    SCOPED_TRACE(fmt::format("case {}, seed {}", i, gpu_seed()));
    const Graph graph = graph_of_sum(random_sum(numbers.random, 2), false, numbers, 0);
    // Weights, inputs and five results are rounded, each to 2^-12 of it on average.
    ASSERT_EQ(expect_halves(graph, kName, 1e-3, numbers), 1);
  }
}

}  // namespace
}  // namespace pipit::internal::test
