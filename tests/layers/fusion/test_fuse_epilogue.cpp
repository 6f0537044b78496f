// Kernels that compute the element-wise layers that follow them (Candidate::fuses_epilogue): fewer steps, the same
// outputs.
#include <gtest/gtest.h>

#include <functional>

#include "layers/ops/binary.h"
#include "layers/ops/conv.h"
#include "layers/ops/matmul.h"
#include "layers/ops/normalization.h"
#include "layers/ops/pool.h"
#include "layers/ops/quantize.h"
#include "layers/ops/reshaping.h"
#include "layers/ops/slicing.h"
#include "layers/ops/unary.h"
#include "layers/passes/passes.h"
#include "layers/registry.h"
#include "tests/support/run_graph.h"

namespace pipit::internal {
namespace {

struct Builder {
  GraphBuilder graph;
  std::mt19937 random;
  int names = 0;

  std::string name() { return "n" + std::to_string(++names); }
  ValueId constant(const Shape& shape, float low = -1) {
    return graph.add_constant(name(),
                              std::make_shared<const Tensor>(test::random_tensor(shape, random, low)));
  }
  template <typename L>
  ValueId add(L layer, const std::vector<ValueId>& inputs) {
    return graph.add1(name(), std::make_shared<L>(std::move(layer)), inputs);
  }
  ValueId conv(ValueId x, std::int64_t filters, std::int64_t groups, std::int64_t kernel) {
    ConvAttributes a;
    a.groups = groups;
    for (std::size_t d = 0; d < 2; ++d) {
      a.window.kernel[d] = kernel;
      a.window.pad_begin[d] = a.window.pad_end[d] = kernel / 2;
    }
    const std::int64_t channels = graph.value(x).desc.shape[1];
    return add(Conv(a), {x, constant(Shape{filters, channels / groups, kernel, kernel})});
  }
  ValueId unary(UnaryKind kind, ValueId x) { return add(Unary({kind, 0, 0}), {x}); }
  ValueId binary(BinaryKind kind, ValueId a, ValueId b) { return add(Binary({.kind = kind}), {a, b}); }
  ValueId batch_norm(ValueId x) {
    const Shape c{graph.value(x).desc.shape[1]};
    return add(BatchNorm(BatchNormAttributes{}),
               {x, constant(c), constant(c), constant(c), constant(c, 0.5F)});
  }
};

std::shared_ptr<const ExecutionPlan> plan_of(const Graph& graph, bool keep, Precision precision) {
  PlanOptions options;
  options.threads = 2;
  options.keep_every_value = keep;
  options.precision = precision;
  return ExecutionPlan::build(graph, default_registry(), options);
}

std::vector<float> run(const std::shared_ptr<const ExecutionPlan>& plan, const Tensor& input) {
  Session session(plan);
  const ConstTensorView view = input.view();
  const Tensor result = to_layout(session.run({&view, 1})[0], Layout::row_major);
  return {result.values<float>().begin(), result.values<float>().end()};
}

// `make` adds a chain to the input; `steps` are left of it when kernels absorb what they can. Layouts are assigned,
// nothing is fused in the graph. fp16 rounds every value that is stored: the tolerance is that of a few layers.
void check(const Shape& shape, int steps, const std::function<ValueId(Builder&, ValueId)>& make) {
  const unsigned seed = test::test_seed();
  SCOPED_TRACE(testing::Message() << "PIPIT_TEST_SEED=" << seed);
  Builder b{.graph = {}, .random = std::mt19937(seed)};
  b.graph.mark_output(make(b, b.graph.add_input("x", TensorDesc{shape})));
  const Graph graph = assign_layouts(b.graph.build()).graph;
  const Tensor input = test::random_tensor(shape, b.random);
  const auto kept = plan_of(graph, true, Precision::fp32);
  const auto absorbed = plan_of(graph, false, Precision::fp32);
  EXPECT_EQ(static_cast<int>(absorbed->steps().size()), steps);
  EXPECT_GT(kept->steps().size(), absorbed->steps().size());
  const std::vector<float> want = run(kept, input);
  EXPECT_LE(test::relative_error(run(absorbed, input), want), 1e-6);
  const Graph half = assign_precision(graph, Precision::fp16).graph;
  EXPECT_LE(test::relative_error(run(plan_of(half, false, Precision::fp16), input), want), 4e-3);
}

// Kernels for NHWC data do not read the user's row-major input: a first layer is in between, and the last step brings
// the output back.
TEST(FuseEpilogue, DepthwiseTakesActivationsAndChannelArithmetic) {
  check(Shape{2, 37, 11, 9}, 4, [](Builder& b, ValueId x) {
    const ValueId image = b.unary(UnaryKind::abs, x);
    const ValueId y = b.binary(BinaryKind::mul, b.constant(Shape{37, 1, 1}), b.conv(image, 37, 37, 3));
    return b.unary(UnaryKind::silu, b.binary(BinaryKind::add, y, b.constant(Shape{1, 37, 1, 1})));
  });
  check(Shape{1, 16, 5, 9}, 4, [](Builder& b, ValueId x) {  // two outputs per channel
    x = b.unary(UnaryKind::abs, x);
    return b.unary(UnaryKind::hard_swish,
                   b.binary(BinaryKind::sub, b.constant(Shape{}), b.conv(x, 32, 16, 3)));
  });
}

// On few channels, and on blocks of many, whose rows are taken in one call.
TEST(FuseEpilogue, DepthwiseTakesSeveralLayers) {
  for (const std::int64_t channels : {16, 64}) {
    check(Shape{1, channels, 24, 160}, 4, [&](Builder& b, ValueId x) {
      ValueId y = b.conv(b.unary(UnaryKind::abs, x), channels, channels, 3);
      y = b.binary(BinaryKind::mul, b.unary(UnaryKind::hard_swish, y), b.constant(Shape{1}));
      return b.binary(BinaryKind::add, y, b.constant(Shape{1, channels, 1, 1}));
    });
  }
}

TEST(FuseEpilogue, ConvolutionsTakeActivations) {
  for (const std::int64_t kernel : {1, 3}) {
    check(Shape{2, 19, 13, 7}, 2, [&](Builder& b, ValueId x) {
      return b.unary(UnaryKind::gelu, b.batch_norm(b.conv(x, 45, 1, kernel)));
    });
  }
}

// What a transposed convolution is lowered to. Rows of whole groups of pixels, and rows that end in an overlap.
TEST(FuseEpilogue, ConvolutionsWriteWhereDepthToSpaceWants) {
  for (const std::int64_t kernel : {1, 3}) {
    for (const std::int64_t width : {7, 28, 45}) {
      check(Shape{2, 19, 13, width}, 2, [&](Builder& b, ValueId x) {
        return b.add(DepthToSpace({.block = 2}), {b.conv(x, 256, 1, kernel)});
      });
    }
  }
  // Panels of weights would hold outputs of two rows: then it is copied.
  Builder b{.graph = {}, .random = std::mt19937(1)};
  const ValueId x = b.graph.add_input("x", TensorDesc{Shape{1, 8, 4, 4}});
  b.graph.mark_output(b.add(DepthToSpace({.block = 3}), {b.conv(x, 18, 1, 1)}));
  EXPECT_EQ(plan_of(assign_layouts(b.graph.build()).graph, false, Precision::fp32)->steps().size(), 3U);
}

TEST(FuseEpilogue, BatchNormTakesRelu) {
  check(Shape{2, 19, 13, 7}, 4, [](Builder& b, ValueId x) {
    const ValueId pooled = b.add(Pool({.kind = PoolKind::average, .window = {.kernel = {2, 2, 1}}}), {x});
    return b.unary(UnaryKind::relu, b.batch_norm(pooled));
  });
}

TEST(FuseEpilogue, ConcatTakesBatchNormAndRelu) {
  check(Shape{2, 19, 13, 7}, 4, [](Builder& b, ValueId x) {
    const ValueId parts = b.add(Concat({1}), {b.conv(x, 24, 1, 1), b.conv(x, 33, 1, 3)});
    return b.unary(UnaryKind::relu, b.batch_norm(parts));
  });
}

// What a batch normalization becomes in a graph that is optimized (fold_scale_shift).
TEST(FuseEpilogue, ConcatTakesAConvolutionOfOneWeightAChannel) {
  for (const bool bias : {false, true}) {
    check(Shape{2, 8, 9, 7}, 4, [&](Builder& b, ValueId x) {
      const ValueId parts = b.add(Concat({1}), {b.conv(x, 24, 1, 1), b.conv(x, 33, 1, 3)});
      ConvAttributes a;
      a.groups = 57;
      a.activation = Clamp::relu();
      std::vector<ValueId> inputs{parts, b.constant(Shape{57, 1, 1, 1})};
      if (bias) inputs.push_back(b.constant(Shape{57}));
      return b.add(Conv(a), inputs);
    });
  }
}

// Stride and padding may leave the extents as they are.
TEST(FuseEpilogue, NotAConvolutionOfOneWeightAChannelThatMovesPixels) {
  check(Shape{2, 8, 3, 3}, 5, [&](Builder& b, ValueId x) {
    const ValueId parts = b.add(Concat({1}), {b.conv(x, 24, 1, 1), b.conv(x, 33, 1, 3)});
    ConvAttributes a;
    a.groups = 57;
    for (std::size_t d = 0; d < 2; ++d)
      a.window.stride[d] = 2, a.window.pad_begin[d] = a.window.pad_end[d] = 1;
    return b.unary(UnaryKind::relu, b.add(Conv(a), {parts, b.constant(Shape{57, 1, 1, 1})}));
  });
}

// What stays in floating point between integers is not written as such, and has the same bits.
TEST(FuseEpilogue, DequantizeTakesChannelArithmeticAndQuantize) {
  const Quantization x{0.02F, 100, DType::u8, false}, y{0.05F, -3, DType::i8, false};
  for (const Shape& shape : {Shape{2, 7, 5, 3}, Shape{1, 300, 9, 8}, Shape{3, 40}}) {
    Builder b{.graph = {}, .random = std::mt19937(test::test_seed())};
    ValueId v = b.graph.add_input("x", TensorDesc{shape});
    const bool image = shape.rank() == 4;
    if (image) v = b.add(Pool({.kind = PoolKind::max}), {v});  // leaves the order of channels_last
    v = b.add(Dequantize(x), {b.add(Quantize(x), {v})});
    v = b.binary(BinaryKind::mul, v, b.constant(image ? Shape{shape[1], 1, 1} : Shape{shape[1]}));
    v = b.add(Quantize(y), {b.unary(UnaryKind::relu, v)});
    b.graph.mark_output(b.add(Dequantize(y), {v}));
    const Graph graph = assign_layouts(b.graph.build()).graph;
    const Tensor input = test::random_tensor(shape, b.random);
    const auto kept = plan_of(graph, true, Precision::fp32);
    const auto absorbed = plan_of(graph, false, Precision::fp32);
    EXPECT_EQ(kept->steps().size(), absorbed->steps().size() + 3);
    EXPECT_EQ(run(absorbed, input), run(kept, input));
  }
}

// In row_major order only what is the same for every channel.
TEST(FuseEpilogue, DequantizeTakesFunctionsInAnyOrder) {
  const Quantization x{0.02F, 100, DType::u8, false}, y{0.05F, -3, DType::i8, false};
  for (const bool per_channel : {false, true}) {
    const Shape shape{2, 7, 5, 300};
    Builder b{.graph = {}, .random = std::mt19937(test::test_seed())};
    ValueId v = b.graph.add_input("x", TensorDesc{shape});
    v = b.add(Dequantize(x), {b.add(Quantize(x), {v})});
    v = b.unary(UnaryKind::sigmoid, b.binary(BinaryKind::mul, v, b.constant(Shape{1})));
    if (per_channel) v = b.binary(BinaryKind::add, v, b.constant(Shape{7, 1, 1}));
    b.graph.mark_output(b.add(Dequantize(y), {b.add(Quantize(y), {v})}));
    const Graph graph = b.graph.build();
    const Tensor input = test::random_tensor(shape, b.random);
    const auto kept = plan_of(graph, true, Precision::fp32);
    const auto absorbed = plan_of(graph, false, Precision::fp32);
    EXPECT_EQ(kept->steps().size(), absorbed->steps().size() + (per_channel ? 2 : 3));
    EXPECT_EQ(run(absorbed, input), run(kept, input));
  }
}

TEST(FuseEpilogue, MatrixProductsTakeBiasAndGelu) {
  check(Shape{3, 20, 24}, 1, [](Builder& b, ValueId x) {
    const ValueId product = b.add(MatMul(), {x, b.constant(Shape{24, 50})});
    return b.unary(UnaryKind::gelu, b.binary(BinaryKind::add, b.constant(Shape{50}), product));
  });
}

TEST(FuseEpilogue, NotWhatIsReadTwiceIsAnOutputOrVariesOverPixels) {
  const auto steps = [](const std::function<ValueId(Builder&, ValueId)>& make) {
    Builder b{.graph = {}, .random = std::mt19937(1)};
    b.graph.mark_output(make(b, b.graph.add_input("x", TensorDesc{Shape{1, 8, 4, 4}})));
    return plan_of(b.graph.build(), false, Precision::fp32)->steps().size();
  };
  EXPECT_EQ(steps([](Builder& b, ValueId x) {
              const ValueId y = b.conv(x, 8, 1, 1);
              return b.binary(BinaryKind::mul, b.unary(UnaryKind::sigmoid, y), y);
            }),
            3U);
  EXPECT_EQ(steps([](Builder& b, ValueId x) {
              const ValueId y = b.conv(x, 8, 1, 1);
              b.graph.mark_output(y);
              return b.unary(UnaryKind::silu, y);
            }),
            2U);
  EXPECT_EQ(steps([](Builder& b, ValueId x) {
              return b.binary(BinaryKind::mul, b.conv(x, 8, 1, 1), b.constant(Shape{8, 4, 4}));
            }),
            2U);
}

}  // namespace
}  // namespace pipit::internal
