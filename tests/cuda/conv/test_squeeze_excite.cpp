// squeeze_excite on a GPU, as the planner makes it: against the CPU bit for bit in INT8, by norms in fp16.
#include "layers/ops/pool.h"
#include "layers/ops/qelementwise.h"
#include "layers/ops/qunary.h"
#include "layers/ops/reduce.h"
#include "layers/ops/unary.h"
#include "tests/cuda/conv/chain_graph.h"

namespace pipit::internal::test {
namespace {

constexpr const char* kName = "squeeze_excite";

struct GateShape {
  int images = 1, height = 1, width = 1, channels = 8, squeezed = 1, gates = 8;
};

// Small images and large, one wide network's and many narrow ones.
GateShape random_gates(std::mt19937& random, int number) {
  GateShape s;
  s.images = number % 3 == 0 ? draw(random, 1, 200) : draw(random, 1, 3);
  const bool large = number % 3 != 0 && draw(random, 0, 2) == 0;
  s.height = draw(random, 1, large ? 112 : 14), s.width = draw(random, 1, large ? 112 : 20);
  s.channels = 8 * (number % 4 == 0 ? draw(random, 40, 160) : draw(random, 1, 40));
  s.squeezed = draw(random, 1, 90);
  s.gates = draw(random, 0, 2) == 0 ? draw(random, 1, 300) : s.channels;
  return s;
}

Graph graph_of_gates(const GateShape& s, bool int8, Numbers& numbers) {
  GraphBuilder builder;
  ValueId x = kNoValue;
  const auto add_input = [&](int channels) {
    return builder.add_input("x", TensorDesc{Shape{s.images, channels, s.height, s.width}});
  };
  const Quantization average{0.002F, 0, DType::i8};  // of values of both signs: close to zero
  if (int8) {
    x = builder.add1("x.q", std::make_shared<Quantize>(kI8), {add_input(s.channels)});
    QAveragePoolAttributes a{.pool = {.kind = PoolKind::average, .global = true}, .x = kI8, .y = average};
    x = builder.add1("average", std::make_shared<QAveragePool>(a), {x});
  } else {
    // Exporters write either.
    if (numbers.coin()) {
      PoolAttributes pool{.kind = PoolKind::average, .global = true};
      x = builder.add1("average", std::make_shared<Pool>(pool), {add_input(s.channels)});
    } else {
      ConvAttributes plain;
      set_window(plain.window, 1, 1, 1, 0);
      const ValueId weights = builder.add_constant(
          "before.w", random_tensor(Shape{s.channels, 8, 1, 1}, numbers.random, -0.6F, 0.6F));
      x = builder.add1("before", std::make_shared<Conv>(plain), {add_input(8), weights});
      ReduceAttributes mean{.kind = ReduceKind::mean, .axes = {2, 3}};
      x = builder.add1("average", std::make_shared<Reduce>(mean), {x});
    }
  }
  constexpr UnaryKind kFunctions[] = {UnaryKind::silu, UnaryKind::sigmoid, UnaryKind::hard_sigmoid};
  const int sizes[] = {s.channels, s.squeezed, s.gates};
  for (int l = 0; l < 2; ++l) {
    const int in_c = sizes[l], out_c = sizes[l + 1];
    const std::string name = fmt::format("layer{}", l);
    ConvAttributes plain;
    set_window(plain.window, 1, 1, 1, 0);
    if (numbers.coin()) plain.activation = numbers.coin() ? Clamp::relu() : Clamp{-1.5F, 2.25F};
    const Shape shape{out_c, in_c, 1, 1};
    std::vector<ValueId> inputs{x};
    if (int8) {
      inputs.push_back(builder.add_constant(name + ".w", numbers.integers<std::int8_t>(shape, -127, 127)));
      inputs.push_back(numbers.coin() ? builder.add_constant(name + ".b", numbers.integers<std::int32_t>(
                                                                              Shape{out_c}, -3000, 3000))
                                      : kNoValue);
      QConvAttributes a;
      a.conv = plain, a.x = l == 0 ? average : kI8, a.y = kI8;
      for (int o = 0; o < out_c; ++o)
        a.weight_scales.push_back(
            static_cast<float>(kI8.scale / a.x.scale / 127 * numbers.pick(10, 40) / 20 / std::sqrt(in_c)));
      x = builder.add1(name, std::make_shared<QConv>(a), inputs);
    } else {
      // Means of many values are small.
      const double gain = l == 0 ? std::sqrt(s.height * s.width) : 1;
      const auto bound = static_cast<float>(gain * std::sqrt(3.0 / in_c));
      inputs.push_back(
          builder.add_constant(name + ".w", random_tensor(shape, numbers.random, -bound, bound)));
      inputs.push_back(numbers.coin()
                           ? builder.add_constant(name + ".b", random_tensor(Shape{out_c}, numbers.random))
                           : kNoValue);
      x = builder.add1(name, std::make_shared<Conv>(plain), inputs);
    }
    if (!numbers.coin()) continue;
    UnaryAttributes function{.kind = kFunctions[numbers.pick(0, 2)]};
    if (function.kind == UnaryKind::hard_sigmoid) function.alpha = 1.0 / 6, function.beta = 0.5;
    if (int8) {
      x = builder.add1(name + ".f", std::make_shared<QUnary>(QUnaryAttributes{function, kI8, kI8}), {x});
    } else {
      x = builder.add1(name + ".f", std::make_shared<Unary>(function), {x});
    }
  }
  builder.mark_output(x);
  return builder.build();
}

void expect_gates(bool int8, unsigned seed) {
  Numbers numbers(seed);
  for (int i = 0; i < 48; ++i) {
    const GateShape s = random_gates(numbers.random, i);
    SCOPED_TRACE(fmt::format("case {}: {} images of {} x {} x {} to {} to {}, seed {}", i, s.images, s.height,
                             s.width, s.channels, s.squeezed, s.gates, gpu_seed()));
    const Graph graph = graph_of_gates(s, int8, numbers);
    // In halves x, weights and three results are rounded, each to 2^-12 of it on average; a mean's errors are smaller.
    ASSERT_EQ(int8 ? expect_specification(graph, kName, numbers) : expect_halves(graph, kName, 1e-3, numbers),
              1);
  }
}

TEST(SqueezeExcite, IsTheSpecificationInInt8) {
  PIPIT_NEEDS_HOPPER();
  expect_gates(true, 560);
}
TEST(SqueezeExcite, AgreesInHalves) {
  PIPIT_NEEDS_HOPPER();
  expect_gates(false, 561);
}

// What is almost such a block stays as many launches, with the same answers.
enum class Almost { mean_is_read, pad, groups, mean_of_rows, adds };

Graph graph_of_almost(Almost what, Numbers& numbers) {
  GraphBuilder builder;
  ValueId x = builder.add_input("x", TensorDesc{Shape{2, 32, 9, 9}});
  if (what == Almost::mean_of_rows) {
    ReduceAttributes mean{.kind = ReduceKind::mean, .axes = {2}};
    x = builder.add1("average", std::make_shared<Reduce>(mean), {x});
  } else {
    PoolAttributes pool{.kind = PoolKind::average, .global = true};
    x = builder.add1("average", std::make_shared<Pool>(pool), {x});
  }
  const ValueId mean = x;
  for (int l = 0; l < 2; ++l) {
    ConvAttributes a;
    const std::int64_t groups = what == Almost::groups && l == 0 ? 4 : 1;
    const bool pads = what == Almost::pad && l == 1;
    set_window(a.window, 1, pads ? 3 : 1, 1, pads ? 1 : 0);
    a.groups = groups;
    const ValueId weights = builder.add_constant(
        fmt::format("w{}", l), random_tensor(Shape{32, 32 / groups, 1, 1}, numbers.random, -0.3F, 0.3F));
    std::vector<ValueId> inputs{x, weights};
    if (pads) inputs.push_back(builder.add_constant("b", random_tensor(Shape{32}, numbers.random)));
    if (what == Almost::adds && l == 1) inputs.insert(inputs.end(), {kNoValue, mean});
    x = builder.add1(fmt::format("layer{}", l), std::make_shared<Conv>(a), inputs);
  }
  builder.mark_output(x);
  if (what == Almost::mean_is_read) builder.mark_output(mean);
  return builder.build();
}

TEST(SqueezeExcite, LeavesOtherLayersAlone) {
  PIPIT_NEEDS_HOPPER();
  Numbers numbers(562);
  for (const Almost what :
       {Almost::mean_is_read, Almost::pad, Almost::groups, Almost::mean_of_rows, Almost::adds}) {
    SCOPED_TRACE(fmt::format("{}, seed {}", static_cast<int>(what), gpu_seed()));
    EXPECT_EQ(expect_halves(graph_of_almost(what, numbers), kName, 2e-3, numbers), 0);
  }
}

}  // namespace
}  // namespace pipit::internal::test
