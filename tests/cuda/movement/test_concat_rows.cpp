// "rows" of Concat on the GPU: every element type and unit, many inputs; what a channel is scaled by after it.
#include <algorithm>

#include "compile/compile.h"
#include "layers/ops/qconv.h"
#include "layers/ops/quantize.h"
#include "layers/ops/slicing.h"
#include "tests/cuda/conformance.h"
#include "tests/cuda/quantized_cases.h"
#include "tests/support/test_graph.h"

namespace pipit::internal::test {
namespace {

constexpr const char* kRows = "rows";

// More inputs than a launch takes, empty ones, widths that no unit of 16 bytes divides, more and fewer rows than a
// thread copies at once.
TEST(ConcatRows, AsManyInputsAsThereAre) {
  PIPIT_NEEDS_GPU();
  Numbers numbers(240);
  for (const int count : {1, 2, 7, 64, 65, 130}) {
    for (const std::int64_t width : {16, 4, 1}) {
      const int axis = static_cast<int>(numbers.pick(1, 3));
      const Shape whole{numbers.pick(1, 3), numbers.pick(1, 9), numbers.pick(1, 9), 8 * numbers.pick(1, 3)};
      for (const bool bytes : {false, true}) {
        GpuCase test;
        test.output_layout = numbers.coin() ? Layout::row_major : kLast;
        test.precision = numbers.coin() ? Precision::fp16 : Precision::fp32;
        test.exact = !bytes;
        for (int i = 0; i < count; ++i) {
          const Shape shape = whole.with(axis, width * numbers.pick(i == 1 ? 0 : 1, 4));
          test.inputs.push_back(
              {bytes ? numbers.integers<std::uint8_t>(shape, 0, 255) : shared_random(shape, numbers.random),
               test.output_layout});
        }
        expect_gpu(Concat({axis}), kRows, test);
        if (HasFailure()) return;
      }
    }
  }
}

TEST(ConcatRows, Refuses) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(gpu_seed());
  const auto x = shared_random({2, 3, 4, 5}, random), constant = shared_random({2, 3, 4, 5}, random);
  const auto refusal = [&](Layout first, Layout output, Precision precision) {
    GpuCase test;
    test.inputs = {{x, first}, {constant, Layout::row_major, true}};
    test.output_layout = output, test.precision = precision;
    return gpu_refusal(Concat({1}), kRows, test);
  };
  EXPECT_EQ(refusal(Layout::row_major, Layout::row_major, Precision::fp32), std::nullopt);
  EXPECT_TRUE(refusal(kLast, kLast, Precision::fp32).has_value()) << "layouts";
  EXPECT_TRUE(refusal(Layout::row_major, Layout::row_major, Precision::fp16).has_value()) << "f32 and f16";
}

// Their sum is a multiple of 8: of other sums widen_channels may make a ChannelShuffle.
std::vector<std::int64_t> random_widths(Numbers& numbers) {
  std::vector<std::int64_t> widths(static_cast<std::size_t>(numbers.pick(2, numbers.coin() ? 5 : 70)));
  const std::int64_t unit = numbers.coin() ? 8 : 1;
  std::int64_t sum = 0;
  for (std::int64_t& width : widths) sum += width = unit * numbers.pick(1, 6);
  widths.back() += (8 - sum % 8) % 8;
  return widths;
}

struct Computed {
  std::vector<Tensor> outputs;
  std::size_t steps = 0;
  std::string last;  // kernel
};

Computed run_on(DeviceKind device, Precision precision, const Graph& graph,
                const std::vector<Tensor>& inputs) {
  CompileOptions options;
  options.planning.device = device;
  options.planning.precision = precision;
  Computed result;
  const auto plan = compile(graph, options).plans[0];
  for (const Step& step : plan->steps()) {
    if (plan->graph().nodes()[static_cast<std::size_t>(step.node)].layer->type() == Concat::kType) {
      result.steps += step.fused.size();
      result.last = step.kernel_name;
    }
  }
  Session session(plan);
  std::vector<ConstTensorView> views;
  for (const Tensor& x : inputs) views.push_back(x.view());
  for (const ConstTensorView& y : session.run(views))
    result.outputs.push_back(to_layout(y, Layout::row_major));
  return result;
}

// What a DenseNet is made of. A convolution before and after, so that all of it is channels_last.
TEST(ConcatRows, ABatchNormIsComputedOnTheWay) {
  PIPIT_NEEDS_GPU();
  Numbers numbers(241);
  for (int round = 0; round < 8 && !HasFailure(); ++round) {
    TestGraph b;
    b.random = numbers.random;
    const ValueId x = b.input(Shape{numbers.pick(1, 3), 8, numbers.pick(1, 12), numbers.pick(1, 12)});
    std::vector<ValueId> parts;
    for (const std::int64_t width : random_widths(numbers))
      parts.push_back(b.conv("part" + std::to_string(parts.size()), x, width, 1));
    ValueId y = b.batch_norm("bn", b.add("concat", Concat({1}), parts));
    const bool twice = round % 4 == 3;  // the second one is a step of its own
    if (twice || numbers.coin()) y = b.unary("relu", UnaryKind::relu, y);
    if (twice) y = b.unary("relu2", UnaryKind::relu, b.batch_norm("bn2", y));
    y = b.conv("last", y, 8, 1);
    const Graph graph = b.build({y});
    const std::vector<Tensor> inputs = random_inputs(graph, numbers.random);
    const Computed expected = run_on(DeviceKind::cpu, Precision::fp32, graph, inputs);
    for (const Precision precision : {Precision::fp32, Precision::fp16}) {
      const Computed got = run_on(DeviceKind::cuda, precision, graph, inputs);
      EXPECT_EQ(got.last, kRows);
      EXPECT_EQ(got.steps, 1U) << "the batch normalization is a step of its own";
      // In fp16 three layers round what they write, and all their weights, by up to 2^-11 at random.
      EXPECT_LT(relative_error(got.outputs[0].values<float>(), expected.outputs[0].values<float>()),
                precision == Precision::fp16 ? 5 * 0x1p-11 : 1e-5)
          << parts.size() << " parts, seed " << gpu_seed();
    }
  }
}

TEST(ConcatRows, AndRequantizedBitForBit) {
  PIPIT_NEEDS_GPU();
  Numbers numbers(242);
  for (int round = 0; round < 8 && !HasFailure(); ++round) {
    GraphBuilder builder;
    const ValueId image = builder.add_input(
        "x", TensorDesc{Shape{numbers.pick(1, 3), 8, numbers.pick(1, 12), numbers.pick(1, 12)}});
    const ValueId x = builder.add1("x.q", std::make_shared<Quantize>(kI8), {image});
    const auto product = [&](const std::string& name, ValueId from, std::int64_t inputs,
                             std::int64_t outputs) {
      QConvAttributes to;
      to.x = to.y = kI8;
      to.weight_scales = {0.02F};
      const auto w = numbers.integers<std::int8_t>(Shape{outputs, inputs, 1, 1}, -127, 127);
      return builder.add1(name, std::make_shared<QConv>(to), {from, builder.add_constant(name + ".w", w)});
    };
    std::int64_t channels = 0;
    std::vector<ValueId> parts;
    for (const std::int64_t width : random_widths(numbers)) {
      parts.push_back(product("part" + std::to_string(parts.size()), x, 8, width));
      channels += width;
    }
    QConvAttributes a;
    a.conv.groups = channels;
    a.x = a.y = kI8;
    a.y.scale = 0.07F;
    if (numbers.coin()) a.conv.activation = numbers.coin() ? Clamp::relu() : Clamp{-1.5F, 2.25F};
    for (std::int64_t c = 0; c < channels; ++c)
      a.weight_scales.push_back(0.001F * static_cast<float>(numbers.pick(1, 20)));
    std::vector<ValueId> operands{
        builder.add1("concat", std::make_shared<Concat>(ConcatAttributes{1}), parts),
        builder.add_constant("w", numbers.integers<std::int8_t>(Shape{channels, 1, 1, 1}, -127, 127))};
    if (numbers.coin())
      operands.push_back(
          builder.add_constant("b", numbers.integers<std::int32_t>(Shape{channels}, -30000, 30000)));
    const ValueId scaled = builder.add1("scale", std::make_shared<QConv>(a), operands);
    builder.mark_output(product("last", scaled, channels, 8));
    const Graph graph = builder.build();
    const std::vector<Tensor> inputs = random_inputs(graph, numbers.random);
    const Computed expected = run_on(DeviceKind::cpu, Precision::fp32, graph, inputs);
    const Computed got = run_on(DeviceKind::cuda, Precision::fp32, graph, inputs);
    EXPECT_EQ(got.last, kRows);
    EXPECT_EQ(got.steps, 1U);
    const auto bytes = [](const Tensor& t) { return std::span(t.view().data, t.desc().bytes()); };
    EXPECT_TRUE(std::ranges::equal(bytes(got.outputs[0]), bytes(expected.outputs[0])))
        << channels << " channels of " << parts.size() << " inputs, seed " << gpu_seed();
  }
}

TEST(ConcatRows, ScaleImagesAlone) {
  PIPIT_NEEDS_GPU();
  Numbers numbers(243);
  for (int round = 0; round < 24 && !HasFailure(); ++round) {
    const std::int64_t channels = round % 2 == 0 ? 8 * numbers.pick(1, 40) : numbers.pick(2, 40);
    const Shape shape{numbers.pick(1, 3), channels, numbers.pick(1, 20), numbers.pick(1, 20)};
    const Shape weights{channels, 1, 1, 1};
    const Clamp activation = numbers.coin() ? Clamp::relu() : Clamp{};
    GpuCase real;
    real.output_layout = kLast;
    real.precision = numbers.coin() ? Precision::fp16 : Precision::fp32;
    real.inputs = {{shared_random(shape, numbers.random), kLast},
                   {shared_random(weights, numbers.random), Layout::row_major, true}};
    if (numbers.coin())
      real.inputs.push_back({shared_random(Shape{channels}, numbers.random), Layout::row_major, true});
    ConvAttributes conv;
    conv.groups = channels, conv.activation = activation;
    expect_gpu(Conv(conv), kRows, real);

    QConvAttributes a;
    a.conv = conv;
    a.x = a.y = kI8;
    a.y.scale = 0.07F;
    a.weight_scales = {0.01F};
    GpuCase bytes = real;
    bytes.precision = Precision::fp32;
    bytes.inputs = {
        {numbers.quantized(shape, kI8), kLast},
        {numbers.integers<std::int8_t>(weights, -127, 127), Layout::row_major, true},
        {numbers.integers<std::int32_t>(Shape{channels}, -30000, 30000), Layout::row_major, true}};
    expect_gpu(QConv(a), kRows, bytes);
  }
}

}  // namespace
}  // namespace pipit::internal::test
