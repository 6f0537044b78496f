// Depthwise convolutions that compute their input as well (Candidate::fuses_producer): one step instead of two, the
// same outputs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "layers/cpu/conv/group_windows.h"
#include "layers/cpu/tile/tile_kernel.h"
#include "layers/ops/conv.h"
#include "layers/ops/unary.h"
#include "layers/passes/passes.h"
#include "layers/registry.h"
#include "tests/support/run_graph.h"

namespace pipit::internal {
namespace {

// A pointwise convolution, an activation, a depthwise convolution and another activation.
struct Chain {
  std::int64_t images, inputs, channels, height, width;
  ConvAttributes depthwise;
  bool biases;
  UnaryKind activation;
  Clamp clamp;

  std::string text() const {
    const Window& w = depthwise.window;
    return fmt::format(
        "{}x{}x{}x{} to {} channels, kernel {}x{} stride {},{} dilation {},{} padding {},{},{},{}", images,
        inputs, height, width, channels, w.kernel[0], w.kernel[1], w.stride[0], w.stride[1], w.dilation[0],
        w.dilation[1], w.pad_begin[0], w.pad_begin[1], w.pad_end[0], w.pad_end[1]);
  }
};

Chain random_chain(std::mt19937& random) {
  const auto pick = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  Chain chain{};
  chain.images = pick(1, 3);
  chain.inputs = 2 * pick(1, 20);  // an odd number of halves is copied, and then nothing is taken over
  chain.channels = pick(2, 140);
  chain.width = pick(0, 2) == 0 ? pick(3, 12) : pick(13, 120);
  // 1 MiB of halves at least.
  const std::int64_t pixels = (1 << 19) / (chain.images * chain.channels) + 1;
  chain.height = pixels / chain.width + pick(1, 9);
  chain.depthwise.groups = chain.channels;
  for (std::size_t d = 0; d < 2; ++d) {
    Window& w = chain.depthwise.window;
    w.kernel[d] = pick(1, 3) == 1 ? pick(1, 4) : 2 * pick(1, 3) + 1;
    w.stride[d] = pick(1, 3) == 1 ? pick(1, 3) : pick(1, 2);
    w.dilation[d] = pick(1, 4) == 1 ? 2 : 1;
    w.pad_begin[d] = pick(0, w.kernel[d]);
    w.pad_end[d] = pick(0, w.kernel[d]);
    const std::int64_t reach = (w.kernel[d] - 1) * w.dilation[d] + 1;
    (d == 0 ? chain.height : chain.width) =
        std::max(d == 0 ? chain.height : chain.width, reach - w.pad_begin[d] - w.pad_end[d]);
  }
  chain.biases = pick(0, 1) == 1;
  chain.activation = pick(0, 1) == 1 ? UnaryKind::silu : UnaryKind::hard_swish;
  if (pick(0, 1) == 1) chain.clamp = {0, 6};
  return chain;
}

Graph graph_of(const Chain& chain, std::mt19937& random, bool activations) {
  GraphBuilder builder;
  const auto constant = [&](const char* name, const Shape& shape) {
    return builder.add_constant(name, std::make_shared<const Tensor>(test::random_tensor(shape, random)));
  };
  const auto unary = [&](const char* name, ValueId x) {
    return activations
               ? builder.add1(name, std::make_shared<Unary>(UnaryAttributes{chain.activation, 0, 0}), {x})
               : x;
  };
  const ValueId x =
      builder.add_input("x", TensorDesc{Shape{chain.images, chain.inputs, chain.height, chain.width}});
  ConvAttributes pointwise;
  pointwise.window.kernel = {1, 1, 1};
  // The user's image is row-major, which tiles of halves copy: a layer in between.
  const ValueId image = builder.add1("first", std::make_shared<Conv>(pointwise),
                                     {x, constant("w0", Shape{chain.inputs, chain.inputs, 1, 1})});
  if (!activations) pointwise.activation = chain.clamp;
  std::vector<ValueId> operands{image, constant("w1", Shape{chain.channels, chain.inputs, 1, 1})};
  if (chain.biases) operands.push_back(constant("b1", Shape{chain.channels}));
  const ValueId between = unary("a1", builder.add1("expand", std::make_shared<Conv>(pointwise), operands));
  ConvAttributes depthwise = chain.depthwise;
  if (!activations) depthwise.activation = chain.clamp;
  const Window& w = depthwise.window;
  operands = {between, constant("w2", Shape{chain.channels, 1, w.kernel[0], w.kernel[1]})};
  if (chain.biases) operands.push_back(constant("b2", Shape{chain.channels}));
  builder.mark_output(unary("a2", builder.add1("spread", std::make_shared<Conv>(depthwise), operands)));
  return assign_layouts(builder.build()).graph;
}

std::shared_ptr<const ExecutionPlan> plan_of(const Graph& graph, bool keep, int threads,
                                             Precision precision = Precision::fp32) {
  PlanOptions options;
  options.threads = threads;
  options.keep_every_value = keep;
  options.precision = precision;
  return ExecutionPlan::build(graph, default_registry(), options);
}

int chained_steps(const ExecutionPlan& plan) {
  int count = 0;
  for (const Step& step : plan.steps())
    count += step.kernel_name == "tile + depthwise" || step.kernel_name == "tile + small_groups";
  return count;
}

std::vector<float> run(Session& session, const Tensor& input) {
  const ConstTensorView view = input.view();
  const Tensor result = to_layout(session.run({&view, 1})[0], Layout::row_major);
  return {result.values<float>().begin(), result.values<float>().end()};
}

// The session has computed NaN before, everywhere: nothing of that may be left.
std::vector<float> run_behind_nan(const std::shared_ptr<const ExecutionPlan>& plan, const Tensor& input) {
  Session session(plan);
  Tensor nan{TensorDesc{input.shape()}};
  for (float& v : nan.values<float>()) v = std::numeric_limits<float>::quiet_NaN();
  run(session, nan);
  return run(session, input);
}

bool has_own_code(const Window& window) {
  return window.kernel[1] % 2 == 1 && window.kernel[1] > 1 && window.stride[1] <= 2 &&
         window.dilation[1] == 1;
}

// Whether a window without code of its own is chained: channels fill registers, the ring stays in a cache, and chains
// of taps lie along the rows.
bool is_chained(const Chain& chain) {
  const Shape x{chain.images, chain.channels, chain.height, chain.width};
  const Window& window = chain.depthwise.window;
  return has_own_code(window) ||
         GroupWindows::takes_pieces(
             {window, x, window_output_shape(window, x, chain.channels), chain.channels});
}

TEST(FuseProducer, DepthwiseComputesItsInput) {
  const unsigned seed = test::test_seed();
  SCOPED_TRACE(testing::Message() << "PIPIT_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  int of_any_window = 0;
  for (int i = 0; i < 26; ++i) {
    Chain chain = random_chain(random);
    if (i >= 24) {  // taps further apart than the image is high
      Window& w = chain.depthwise.window;
      w.kernel[0] = 3;
      w.dilation[0] = chain.height + i - 24;
      w.pad_begin[0] = w.pad_end[0] = w.dilation[0] + 1;
    }
    SCOPED_TRACE(fmt::format("case {}: {}", i, chain.text()));
    const Graph graph = graph_of(chain, random, i % 2 == 1);
    const Tensor input = test::random_tensor(graph.value(graph.inputs()[0]).desc.shape, random);
    const std::vector<float> want = [&] {
      Session session(plan_of(graph, true, 1));
      return run(session, input);
    }();
    const auto plan = plan_of(graph, false, 3);
    const int chained = is_chained(chain) ? 1 : 0;
    ASSERT_EQ(chained_steps(*plan), chained);
    of_any_window += has_own_code(chain.depthwise.window) ? 0 : chained;
    const std::vector<float> got = run_behind_nan(plan, input);
    EXPECT_LE(test::relative_error(got, want), 1e-6);
    EXPECT_LE(plan->arena_bytes(), std::size_t{64} << 20);
    // How the work is cut changes no bit.
    EXPECT_EQ(run_behind_nan(plan_of(graph, false, 1), input), got);
    const Graph half = assign_precision(graph, Precision::fp16).graph;
    const auto half_plan = plan_of(half, false, 2, Precision::fp16);
    EXPECT_EQ(chained_steps(*half_plan), f16_tiles() != nullptr ? chained : 0);
    EXPECT_LE(test::relative_error(run_behind_nan(half_plan, input), want), 4e-3);
  }
  EXPECT_GE(of_any_window, 1);
}

// What lies between is small, read twice, an output, or not what a register tile computes in pieces.
TEST(FuseProducer, NotEverything) {
  const auto chained = [](std::int64_t side, const std::function<void(GraphBuilder&, ValueId, ValueId)>& also,
                          std::int64_t multiplier = 1, bool residual = false, std::int64_t kernel = 1) {
    std::mt19937 random(1);
    GraphBuilder builder;
    const auto constant = [&](const char* name, const Shape& shape) {
      return builder.add_constant(name, std::make_shared<const Tensor>(test::random_tensor(shape, random)));
    };
    const ValueId x = builder.add_input("x", TensorDesc{Shape{1, 16, side, side}});
    ConvAttributes first;
    first.window.kernel = {kernel, kernel, 1};
    first.window.pad_begin = first.window.pad_end = {kernel / 2, kernel / 2, 0};
    std::vector<ValueId> operands{x, constant("w1", Shape{32, 16, kernel, kernel})};
    if (residual) {
      operands.push_back(kNoValue);
      operands.push_back(builder.add1("r", std::make_shared<Conv>(first), operands));
    }
    const ValueId between = builder.add1("first", std::make_shared<Conv>(first), operands);
    ConvAttributes second;
    second.groups = 32;
    second.window.kernel = {3, 3, 1};
    const ValueId y = builder.add1("second", std::make_shared<Conv>(second),
                                   {between, constant("w2", Shape{32 * multiplier, 1, 3, 3})});
    builder.mark_output(y);
    also(builder, between, y);
    return chained_steps(*plan_of(assign_layouts(builder.build()).graph, false, 2));
  };
  const auto nothing = [](GraphBuilder&, ValueId, ValueId) {};
  EXPECT_EQ(chained(96, nothing), 1);
  EXPECT_EQ(chained(64, nothing), 0);
  EXPECT_EQ(chained(96, [](GraphBuilder& b, ValueId between, ValueId) { b.mark_output(between); }), 0);
  EXPECT_EQ(chained(96,
                    [](GraphBuilder& b, ValueId between, ValueId) {
                      b.mark_output(b.add1(
                          "abs", std::make_shared<Unary>(UnaryAttributes{UnaryKind::abs, 0, 0}), {between}));
                    }),
            0);
  EXPECT_EQ(chained(96, nothing, 2), 0);
  EXPECT_EQ(chained(96, nothing, 1, true), 0);
  EXPECT_EQ(chained(96, nothing, 1, false, 3), 0);  // its input is copied into borders
}

}  // namespace
}  // namespace pipit::internal
