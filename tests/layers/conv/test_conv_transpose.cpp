// Transposed convolution: its reference against the sum over inputs that defines it, and what it is lowered to.
#include "layers/ops/conv_transpose.h"

#include <gmock/gmock.h>

#include "layers/ops/gemm.h"
#include "layers/ops/reshaping.h"
#include "layers/passes/pipeline.h"
#include "layers/passes/rewriter.h"
#include "tests/layers/conformance.h"
#include "tests/layers/values.h"
#include "tests/support/test_graph.h"

namespace pipit::internal {
namespace {

using test::count_type;
using test::expect_same_outputs;
using test::Random;
using test::TestGraph;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct TransposeCase {
  ConvTransposeAttributes attributes;
  std::int64_t batch = 1;
  std::int64_t channels = 1;  // per group
  std::int64_t filters = 1;   // per group
  std::array<std::int64_t, 3> extent{1, 1, 1};

  Shape shape(std::int64_t first, std::int64_t second, const std::array<std::int64_t, 3>& rest) const {
    std::array<std::int64_t, 5> dims{first, second};
    std::copy_n(rest.begin(), attributes.window.rank, dims.begin() + 2);
    return Shape(
        std::span<const std::int64_t>(dims.data(), static_cast<std::size_t>(attributes.window.rank + 2)));
  }
  Shape x() const { return shape(batch, channels * attributes.groups, extent); }
  Shape weights() const { return shape(channels * attributes.groups, filters, attributes.window.kernel); }
  Shape bias() const { return Shape{filters * attributes.groups}; }
};

// Uneven on purpose; pads may cut off whole taps, and strides may leave phases without any.
TransposeCase random_transpose_case(Random& random, int rank) {
  TransposeCase c;
  c.attributes.window.rank = rank;
  c.attributes.groups = random.coin() ? 1 : random.integer(1, 3);
  c.batch = random.integer(1, 2);
  c.channels = random.integer(1, 9);
  c.filters = random.integer(1, 9);
  for (std::size_t axis = 0; axis < static_cast<std::size_t>(rank); ++axis) {
    Window& w = c.attributes.window;
    w.kernel[axis] = random.integer(1, rank == 3 ? 3 : 5);
    w.stride[axis] = random.integer(1, 3);
    w.dilation[axis] = random.integer(1, 2);
    c.extent[axis] = random.integer(1, 6);
    c.attributes.output_padding[axis] = random.integer(0, 2);
    const std::int64_t all = (c.extent[axis] - 1) * w.stride[axis] + w.span(static_cast<int>(axis)) +
                             c.attributes.output_padding[axis];
    w.pad_begin[axis] = random.integer(0, std::min<std::int64_t>(3, all - 1));
    w.pad_end[axis] = random.integer(0, std::min<std::int64_t>(3, all - 1 - w.pad_begin[axis]));
  }
  return c;
}

TransposeCase square(std::int64_t channels, std::int64_t filters, std::int64_t side, std::int64_t kernel,
                     std::int64_t stride, std::int64_t pad, std::int64_t output_padding = 0) {
  TransposeCase c;
  c.channels = channels;
  c.filters = filters;
  c.extent = {side, side, 1};
  Window& w = c.attributes.window;
  w.kernel = {kernel, kernel, 1};
  w.stride = {stride, stride, 1};
  w.pad_begin = w.pad_end = {pad, pad, 0};
  c.attributes.output_padding = {output_padding, output_padding, 0};
  return c;
}

Graph graph_of(const TransposeCase& c, TestGraph& b, bool bias = true) {
  std::vector<ValueId> inputs = {b.input(c.x()), b.constant(c.weights())};
  if (bias) inputs.push_back(b.constant(c.bias()));
  return b.build({b.add("up", ConvTranspose(c.attributes), inputs)});
}

// y by its definition: every input adds its products to the output, one after the other.
std::vector<double> scattered(const TransposeCase& c, const Tensor& x, const Tensor& w, const Tensor& bias,
                              const Shape& y) {
  const Window window = as_3d(c.attributes.window);
  const auto extents = [](const Shape& shape) {
    std::array<std::int64_t, 3> e{1, 1, 1};
    for (int d = 2; d < shape.rank(); ++d) e[static_cast<std::size_t>(3 - shape.rank() + d)] = shape[d];
    return e;
  };
  const auto xe = extents(x.shape()), ke = extents(w.shape()), ye = extents(y);
  const std::int64_t area = ye[0] * ye[1] * ye[2];
  std::vector<double> sums(static_cast<std::size_t>(y.elements()));
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const std::int64_t channel = static_cast<std::int64_t>(i) / area % y[1];
    sums[i] = bias.values<float>()[static_cast<std::size_t>(channel)];
  }
  const float* value = x.values<float>().data();
  for (std::int64_t n = 0; n < y[0]; ++n) {
    for (std::int64_t channel = 0; channel < x.shape()[1]; ++channel) {
      for (std::int64_t i = 0; i < xe[0] * xe[1] * xe[2]; ++i, ++value) {
        const std::array<std::int64_t, 3> at{i / xe[2] / xe[1], i / xe[2] % xe[1], i % xe[2]};
        for (std::int64_t f = 0; f < c.filters; ++f) {
          const std::int64_t o = channel / c.channels * c.filters + f;
          for (std::int64_t k = 0; k < ke[0] * ke[1] * ke[2]; ++k) {
            const std::array<std::int64_t, 3> tap{k / ke[2] / ke[1], k / ke[2] % ke[1], k % ke[2]};
            std::int64_t to = n * y[1] + o;
            bool inside = true;
            for (std::size_t a = 0; a < 3; ++a) {
              const std::int64_t p =
                  at[a] * window.stride[a] + tap[a] * window.dilation[a] - window.pad_begin[a];
              inside = inside && p >= 0 && p < ye[a];
              to = to * ye[a] + p;
            }
            const std::int64_t weight = (channel * c.filters + f) * (ke[0] * ke[1] * ke[2]) + k;
            if (inside)
              sums[static_cast<std::size_t>(to)] +=
                  static_cast<double>(*value) * w.values<float>()[static_cast<std::size_t>(weight)];
          }
        }
      }
    }
  }
  return sums;
}

TEST(ConvTranspose, ReferenceIsTheSumOverInputs) {
  Random random;
  for (int i = 0; i < 60; ++i) {
    const TransposeCase c = random_transpose_case(random, 1 + i % 3);
    SCOPED_TRACE(ConvTranspose(c.attributes).summary() + " of " + c.x().str());
    const auto x = random.tensor(c.x()), w = random.tensor(c.weights()), bias = random.tensor(c.bias());
    const Tensor y =
        std::move(test::run_reference(ConvTranspose(c.attributes), {{x}, {w, true}, {bias, true}})[0]);
    const std::vector<double> expected = scattered(c, *x, *w, *bias, y.shape());
    // Summed up in double, rounded once; sums stay below the number of terms.
    for (std::size_t e = 0; e < expected.size(); ++e)
      ASSERT_NEAR(y.values<float>()[e], expected[e], 0x1p-24 * (std::abs(expected[e]) + 1))
          << "element " << e;
  }
}

TEST(ConvTranspose, CandidatesMatchTheReference) {
  Random random;
  const TransposeCase c = random_transpose_case(random, 2);
  test::Conformance conformance{
      {{random.tensor(c.x())}, {random.tensor(c.weights())}, {random.tensor(c.bias())}},
      {std::string(kReference)}};
  test::expect_conformance(ConvTranspose(c.attributes), conformance);
}

TEST(LowerConvTranspose, KeepsTheAnswerOfEveryGeometry) {
  Random random;
  int lowered = 0;
  constexpr int kCases = 90;
  for (int i = 0; i < kCases; ++i) {
    TransposeCase c = random_transpose_case(random, 1 + i % 3);
    if (random.coin()) c.attributes.activation = Clamp::relu();
    SCOPED_TRACE(ConvTranspose(c.attributes).summary() + " of " + c.x().str());
    TestGraph b;
    const Graph before = graph_of(c, b, random.coin());
    const Rewritten after = lower_conv_transpose(before);
    lowered += after.changes;
    EXPECT_EQ(count_type(after.graph, ConvTranspose::kType), 1 - after.changes);
    EXPECT_EQ(after.notes.size(), static_cast<std::size_t>(1 - after.changes));
    expect_same_outputs(before, after.graph);
    expect_same_outputs(before, assign_layouts(after.graph).graph);
  }
  EXPECT_GT(lowered, kCases * 9 / 10);  // the others: pads that cut off nearly everything
}

std::vector<std::string> lowered_types(const TransposeCase& c) {
  TestGraph b;
  std::vector<std::string> types;
  const Graph after = lower_conv_transpose(graph_of(c, b)).graph;
  for (const Node& node : after.nodes()) types.emplace_back(node.layer->type());
  EXPECT_EQ(after.value(after.outputs()[0]).name, "up");
  return types;
}

TEST(LowerConvTranspose, TakesAsFewConvolutionsAsPhasesDiffer) {
  // Kernel and stride alike: all phases read the same pixel.
  EXPECT_THAT(lowered_types(square(8, 4, 5, 2, 2, 0)), ElementsAre("Conv", "DepthToSpace"));
  EXPECT_THAT(lowered_types(square(8, 4, 5, 4, 2, 0)), ElementsAre("Conv", "DepthToSpace"));
  EXPECT_THAT(lowered_types(square(8, 4, 5, 4, 2, 1)),
              ElementsAre("Conv", "Conv", "Conv", "Conv", "Concat", "DepthToSpace"));
  EXPECT_THAT(lowered_types(square(8, 4, 5, 3, 1, 1)), ElementsAre("Conv"));
  EXPECT_THAT(lowered_types(square(8, 4, 5, 3, 2, 1)),
              ElementsAre("Conv", "Conv", "Conv", "Conv", "Concat", "DepthToSpace", "Slice"));
}

TEST(LowerConvTranspose, MultipliesByNoZeros) {
  for (const TransposeCase& c : {square(8, 4, 6, 2, 2, 0), square(8, 4, 6, 3, 2, 1, 1),
                                 square(8, 4, 6, 4, 2, 1), square(8, 4, 6, 5, 3, 1, 0)}) {
    TestGraph b;
    const Graph before = graph_of(c, b);
    const auto macs = [](const Graph& graph) {
      std::int64_t sum = 0;
      for (const Node& node : graph.nodes())
        sum += node.layer->work(graph.input_descs(node), graph.output_descs(node)).macs;
      return sum;
    };
    // Pads are multiplied, as everywhere: at most one position in six along either axis.
    const Graph after = lower_conv_transpose(before).graph;
    EXPECT_LE(static_cast<double>(macs(after)), 1.4 * static_cast<double>(macs(before)))
        << ConvTranspose(c.attributes).summary();
  }
}

TEST(LowerConvTranspose, TakesBatchNormAndReluAlong) {
  for (const std::int64_t groups : {1, 2, 4}) {
    TransposeCase c = square(4 / groups, 8 / groups, 5, 2, 2, 0);
    c.attributes.groups = groups;
    TestGraph b;
    const ValueId up = b.add("up", ConvTranspose(c.attributes), {b.input(c.x()), b.constant(c.weights())});
    const Graph before = b.build({b.unary("relu", UnaryKind::relu, b.batch_norm("bn", up))});
    const Graph after = optimize(before);
    EXPECT_EQ(
        count_type(after, "BatchNorm") + count_type(after, "Unary") + count_type(after, "ConvTranspose"), 0);
    expect_same_outputs(before, after);
  }
}

TEST(LowerConvTranspose, LeavesWeightsOfTheRunAndSaysSo) {
  TestGraph b;
  const TransposeCase c = square(2, 2, 3, 2, 2, 0);
  const ValueId w = b.graph.add_input("w", TensorDesc{c.weights()});
  const Graph before = b.build({b.add("up", ConvTranspose(c.attributes), {b.input(c.x()), w})});
  const Rewritten after = lower_conv_transpose(before);
  EXPECT_EQ(after.changes, 0);
  EXPECT_THAT(after.notes, ElementsAre(HasSubstr("up: ")));
  expect_same_outputs(before, optimize(before));
}

// What a hostile model may ask for ends in a refusal, not in a loop or an allocation.
TEST(ConvTranspose, RefusesWhatMakesNoSense) {
  const auto infer = [](TransposeCase c, const Shape& weights) {
    return test::infer(ConvTranspose(c.attributes), {{c.x()}, {weights}});
  };
  const TransposeCase good = square(4, 2, 3, 2, 2, 0);
  EXPECT_EQ(infer(good, good.weights())[0].shape, (Shape{1, 2, 6, 6}));
  EXPECT_THROW(infer(good, Shape{4, 2, 3, 2}), Error);
  EXPECT_THROW(infer(good, Shape{3, 2, 2, 2}), Error);
  EXPECT_THROW(infer(good, Shape{4, 2, 2}), Error);
  EXPECT_THROW(infer(square(4, 2, 3, 2, 2, 3), good.weights()), Error) << "no output is left";
  TransposeCase c = good;
  c.attributes.groups = 3;
  EXPECT_THROW(infer(c, good.weights()), Error);
  c = good;
  c.attributes.output_padding[0] = -1;
  EXPECT_THROW(ConvTranspose{c.attributes}, Error);
  c = good;
  c.attributes.window.stride = {1 << 30, 1, 1};
  EXPECT_EQ(infer(c, good.weights())[0].shape[2], (std::int64_t{1} << 31) + 2);
  c.attributes.window.stride = {1 << 30, 1 << 30, 1};
  EXPECT_THROW(infer(c, good.weights()), Error);
  TestGraph b;
  const Graph graph = graph_of(square(4, 2, 1, 2, 40, 0), b);
  EXPECT_THAT(lower_conv_transpose(graph).notes, ElementsAre(HasSubstr("1024 phases")));
}

}  // namespace
}  // namespace pipit::internal
