// Whole networks are planned, chains of layers included, and their kernels made, without a GPU.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "compile/compile.h"
#include "layers/ops/binary.h"
#include "layers/ops/gemm.h"
#include "layers/ops/pool.h"
#include "layers/ops/quantize.h"
#include "layers/ops/reshaping.h"
#include "layers/ops/slicing.h"
#include "layers/ops/unary.h"
#include "tests/cuda/planning/made_up_gpu.h"
#include "tests/cuda/planning/random_node.h"
#include "tests/support/seed.h"

namespace pipit::internal::test {
namespace {

constexpr int kNetworks = PIPIT_SANITIZED ? 60 : 200, kMaxNetworks = 5000;
constexpr Quantization kI8{0.05F, 0, DType::i8};
constexpr const char* kChains[] = {"row_chain", "resident_block", "projected_sum", "pooled_stem",
                                   "squeeze_excite"};

// A random sequence of layers of one rank, in floating point or INT8.
class RandomNetwork {
 public:
  RandomNetwork(Draw& draw, bool int8) : draw_(draw), int8_(int8) {
    constexpr std::int64_t kBatches[] = {1, 1, 1, 2, 7, 32, 128};
    constexpr std::int64_t kExtents[] = {1, 2, 3, 7, 7, 13, 14, 14, 28, 31, 56, 112};
    constexpr std::int64_t kInputs[] = {1, 2, 3, 3, 4, 8, 16, 64, 64, 256, 512, 1024};
    rank_ = draw.one_in(4) ? 1 + draw.below(3) : 2;
    std::vector<std::int64_t> x{draw.of(kBatches), draw.of(kInputs)};
    const std::int64_t most = rank_ == 3 ? 14 : 112, extent = std::min(draw.of(kExtents), most);
    for (int i = 0; i < rank_; ++i) x.push_back(draw.one_in(6) ? std::min(draw.of(kExtents), most) : extent);
    constexpr std::int64_t kInside[] = {64, 128, 128, 256};
    inside_ = draw.of(kInside);
    value_ = builder_.add_input("x", TensorDesc{Shape(x)});
    if (int8_) value_ = add(std::make_shared<Quantize>(kI8), {value_});
  }

  Graph build() {
    for (int left = 1 + draw_.below(5); left > 0; --left) block();
    builder_.mark_output(value_);
    return builder_.build();
  }

 private:
  std::string name() { return fmt::format("n{}", ++count_); }
  ValueId add(LayerPtr layer, std::vector<ValueId> inputs) {
    return builder_.add1(name(), std::move(layer), std::move(inputs));
  }
  std::int64_t channels_of(ValueId id) { return builder_.value(id).desc.shape[1]; }

  ValueId conv(ValueId x, std::int64_t outputs, std::int64_t size, std::int64_t stride, Clamp clamp,
               ValueId residual = kNoValue, bool depthwise = false) {
    ConvAttributes a;
    a.window.rank = rank_;
    for (std::size_t i = 0; i < static_cast<std::size_t>(rank_); ++i) {
      a.window.kernel[i] = size, a.window.stride[i] = stride;
      a.window.pad_begin[i] = a.window.pad_end[i] = size / 2;
    }
    a.activation = clamp;
    const std::int64_t channels = channels_of(x);
    if (depthwise) a.groups = channels;
    std::vector<std::int64_t> w{outputs, channels / a.groups};
    w.insert(w.end(), static_cast<std::size_t>(rank_), size);
    Tensor weights(TensorDesc{Shape(w), int8_ ? DType::i8 : DType::f32});
    Tensor bias(TensorDesc{Shape{outputs}, int8_ ? DType::i32 : DType::f32});
    const std::int64_t depth = Shape(w).elements() / outputs;
    const double range = std::sqrt(static_cast<double>(depth));
    if (int8_) {
      for (std::int8_t& v : weights.values<std::int8_t>()) v = static_cast<std::int8_t>(draw_.below(9) - 4);
      for (std::int32_t& v : bias.values<std::int32_t>()) v = draw_.below(200) - 100;
    } else {
      for (float& v : weights.values<float>())
        v = static_cast<float>((draw_.below(201) - 100) / (60 * range));
      for (float& v : bias.values<float>()) v = 0.01F * static_cast<float>(draw_.below(100));
    }
    std::vector<ValueId> inputs{x, builder_.add_constant(name(), std::move(weights)),
                                builder_.add_constant(name(), std::move(bias))};
    if (residual != kNoValue && int8_) inputs.push_back(residual);
    if (int8_) {
      QConvAttributes q;
      q.conv = a, q.x = q.y = kI8;
      if (residual != kNoValue) q.residual = kI8;
      q.weight_scales = {static_cast<float>(0.2 / range)};
      return add(std::make_shared<QConv>(q), inputs);
    }
    if (residual == kNoValue) return add(std::make_shared<Conv>(a), inputs);
    a.activation = {};
    return add(std::make_shared<Binary>(BinaryAttributes{BinaryKind::add, clamp}),
               {add(std::make_shared<Conv>(a), inputs), residual});
  }

  ValueId pool(ValueId x, PoolKind kind, bool global) {
    PoolAttributes a;
    a.kind = kind, a.global = global, a.window.rank = rank_;
    for (std::size_t i = 0; i < static_cast<std::size_t>(rank_) && !global; ++i)
      a.window.kernel[i] = 3, a.window.stride[i] = 2, a.window.pad_begin[i] = a.window.pad_end[i] = 1;
    return add(std::make_shared<Pool>(a), {x});
  }

  void block() {
    constexpr std::int64_t kWidths[] = {8, 16, 24, 32, 64, 64, 96, 128, 256};
    const Clamp relu = Clamp::relu();
    const std::int64_t channels = channels_of(value_);
    switch (draw_.below(9)) {
      case 0:
        value_ = conv(value_, 64, 7, 2, relu);
        value_ = pool(value_, PoolKind::max, false);
        break;
      case 1:
      case 2: {  // a bottleneck, with a projection where the width changes
        const std::int64_t outside = channels % 128 == 0 && !draw_.one_in(4) ? channels : 4 * inside_;
        ValueId y = conv(value_, inside_, 1, 1, relu);
        y = conv(y, inside_, 3, 1, relu);
        const ValueId shortcut = outside == channels ? value_ : conv(value_, outside, 1, 1, {});
        value_ = conv(y, outside, 1, 1, relu, shortcut);
        break;
      }
      case 3: {
        const ValueId y = conv(value_, channels, 3, 1, relu);
        value_ = conv(y, channels, 3, 1, relu, value_);
        break;
      }
      case 4:
        value_ = conv(value_, draw_.of(kWidths), draw_.one_in(2) ? 1 : 3, draw_.one_in(3) ? 2 : 1,
                      draw_.one_in(2) ? relu : Clamp{});
        break;
      case 5:
        value_ =
            conv(value_, channels, draw_.one_in(2) ? 3 : 5, draw_.one_in(3) ? 2 : 1, relu, kNoValue, true);
        break;
      case 6:
        if (!int8_) value_ = squeeze_excite(value_);
        break;
      case 7: {
        const ValueId a = conv(value_, draw_.of(kWidths), 1, 1, relu),
                      b = conv(value_, draw_.of(kWidths), 3, 1, relu);
        if (!int8_) value_ = add(std::make_shared<Concat>(ConcatAttributes{1}), {a, b});
        break;
      }
      default:
        if (!int8_) value_ = add(std::make_shared<Unary>(UnaryAttributes{UnaryKind::silu}), {value_});
    }
  }

  ValueId squeeze_excite(ValueId x) {
    const std::int64_t channels = channels_of(x);
    ValueId y = pool(x, PoolKind::average, true);
    y = conv(y, 8, 1, 1, Clamp::relu());
    y = conv(y, channels, 1, 1, {});
    y = add(std::make_shared<Unary>(UnaryAttributes{UnaryKind::sigmoid}), {y});
    return add(std::make_shared<Binary>(BinaryAttributes{BinaryKind::mul, {}}), {x, y});
  }

  Draw& draw_;
  bool int8_;
  int rank_ = 2, count_ = 0;
  std::int64_t inside_ = 64;  // channels of bottlenecks
  GraphBuilder builder_;
  ValueId value_ = kNoValue;
};

// Nothing where the layers cannot follow each other (no window fits, sums overflow), or where all kernels refuse.
std::shared_ptr<const ExecutionPlan> plan_of(Draw& draw, bool int8, const CompileOptions& options) {
  std::optional<Graph> graph;
  try {
    graph.emplace(RandomNetwork(draw, int8).build());
  } catch (const Error&) {
    return nullptr;
  }
  try {
    return compile(std::move(*graph), options).plans[0];
  } catch (const UnsupportedError&) {
    return nullptr;
  }
}

// A step's kernel, of which resident_block has three forms.
std::string kernel_of(const ExecutionPlan& plan, const Step& step) {
  if (step.kernel_name != "resident_block") return step.kernel_name;
  if (step.fused.size() == 1) return "resident_block of two windows";
  const Graph& graph = plan.graph();
  const Node& second = graph.nodes()[static_cast<std::size_t>(step.fused[0])];
  return fmt::format("resident_block of {} channels", graph.value(second.outputs[0]).desc.shape[1]);
}

// Plans at least `kNetworks` networks, and goes on until all `wanted` kernels have been planned: a chain may be rare.
std::set<std::string> plan_networks(const MadeUpGpu& gpu, unsigned seed,
                                    const std::set<std::string>& wanted = {}) {
  make_up(gpu);
  Draw draw(seed);
  int drawn = 0, planned = 0;
  std::set<std::string> kernels;
  for (; drawn < kNetworks || (drawn < kMaxNetworks && !std::ranges::includes(kernels, wanted)); ++drawn) {
    SCOPED_TRACE(fmt::format("seed {}, network {}", seed, drawn));
    CompileOptions options;
    PlanOptions& planning = options.planning;
    planning.device = DeviceKind::cuda;
    planning.threads = 1;
    const std::string chain =
        draw.one_in(4) ? "" : kChains[static_cast<std::size_t>(draw.below(std::size(kChains)))];
    planning.prefer_kernels = {{chain}};
    const bool int8 = draw.one_in(2);
    planning.precision = int8 || draw.one_in(4) ? Precision::fp32 : Precision::fp16;
    if (planning.precision == Precision::fp16 && draw.one_in(2)) planning.precision = Precision::bf16;
    const auto plan = plan_of(draw, int8, options);
    if (!plan) continue;
    ++planned;
    for (const Step& step : plan->steps()) kernels.insert(kernel_of(*plan, step));
  }
  make_up({});
  EXPECT_GT(planned, drawn / 2);
  return kernels;
}

TEST(PlannedNetworks, TakeChainsOnAMadeUpGpu) {
  std::set<std::string> wanted{std::begin(kChains), std::end(kChains)};
  wanted.erase("resident_block");
  wanted.merge(std::set<std::string>{"resident_block of two windows", "resident_block of 64 channels",
                                     "resident_block of 128 channels"});
  EXPECT_THAT(plan_networks({}, test_seed(), wanted), testing::IsSupersetOf(wanted));
}

TEST(PlannedNetworks, TakeNoneBeforeHopper) {
  const std::set<std::string> kernels = plan_networks({.processors = 108, .major = 8}, test_seed() + 1);
  for (const std::string& kernel : kernels) {
    for (const char* name : kChains) EXPECT_THAT(kernel, testing::Not(testing::StartsWith(name)));
  }
  EXPECT_TRUE(kernels.contains("implicit_gemm"));
}

// A 3x3, two 1x1 of which the second is added to the first and has a function after it, and a classifier.
// constant_residual: a constant is added to it instead.
Graph small_network(Draw& draw, bool constant_residual = false) {
  GraphBuilder builder;
  int count = 0;
  const auto constant = [&](const Shape& shape) {
    Tensor tensor{TensorDesc{shape}};
    for (float& v : tensor.values<float>()) v = static_cast<float>(draw.below(201) - 100) * 0.001F;
    return builder.add_constant(fmt::format("c{}", ++count), std::move(tensor));
  };
  const auto conv = [&](ValueId x, std::int64_t outputs, std::int64_t size) {
    ConvAttributes a;
    a.window.rank = 2;
    a.window.kernel = {size, size, 1};
    const std::int64_t inputs = builder.value(x).desc.shape[1];
    return builder.add1(fmt::format("n{}", ++count), std::make_shared<Conv>(a),
                        {x, constant(Shape{outputs, inputs, size, size}), constant(Shape{outputs})});
  };
  const ValueId image = builder.add_input("x", TensorDesc{Shape{1, 3, 16, 16}});
  const ValueId first = conv(conv(image, 96, 3), 96, 1);
  const ValueId sum =
      builder.add1("sum", std::make_shared<Binary>(BinaryAttributes{BinaryKind::add, {}}),
                   {conv(first, 96, 1), constant_residual ? constant(Shape{1, 96, 14, 14}) : first});
  const ValueId silu = builder.add1("silu", std::make_shared<Unary>(UnaryAttributes{UnaryKind::silu}), {sum});
  const ValueId flat =
      builder.add1("flat", std::make_shared<Reshape>(ReshapeAttributes{Shape{1, 96 * 14 * 14}}), {silu});
  GemmAttributes gemm;
  gemm.transpose_b = true;
  builder.mark_output(builder.add1("scores", std::make_shared<Gemm>(gemm),
                                   {flat, constant(Shape{40, 96 * 14 * 14}), constant(Shape{40})}));
  return builder.build();
}

// In w8 and w4 no kernel holds a second copy of the weights, activations are halves, and scores are f32.
TEST(PlannedNetworks, KeepStoredWeightsInTheirBits) {
  make_up({});
  Draw draw(test_seed());
  const Graph graph = small_network(draw);
  for (const Precision precision : {Precision::w8, Precision::w4}) {
    SCOPED_TRACE(precision_name(precision));
    CompileOptions options;
    options.planning.device = DeviceKind::cuda;
    options.planning.precision = precision;
    const auto plan = compile(graph, options).plans[0];
    int products = 0, functions = 0;
    for (const Step& step : plan->steps()) {
      const Node& node = plan->graph().nodes()[static_cast<std::size_t>(step.node)];
      EXPECT_FALSE(step.on_host) << node.name;
      if (node.layer->type() != "WConv" && node.layer->type() != "WLinear") continue;
      ++products;
      EXPECT_THAT(step.kernel_name, testing::AnyOf("packed_gemm", "unpacked_gemm"));
      functions += static_cast<int>(step.fused.size());
      const auto size = [&](std::size_t input) {
        return static_cast<double>(plan->graph().value(node.inputs[input]).desc.bytes());
      };
      EXPECT_LE(static_cast<double>(step.kernel->packed_bytes()), 1.25 * (size(1) + size(2)) + 512)
          << node.name;
      EXPECT_FALSE(step.kernel->reads_constant(1) || step.kernel->reads_constant(2));
      EXPECT_EQ(plan->graph().value(node.inputs[0]).desc.dtype, DType::f16);
    }
    EXPECT_EQ(products, 3);
    EXPECT_EQ(functions, 1);
    EXPECT_EQ(plan->graph().nodes().back().layer->type(), "WLinear") << "it writes f32 itself";
    EXPECT_EQ(plan->graph().value(plan->graph().outputs()[0]).desc.dtype, DType::f32);
  }
}

// Convolutions that add a constant stay in fp16, which has kernels for them.
TEST(PlannedNetworks, KeepConvolutionsThatAddAConstant) {
  make_up({});
  Draw draw(test_seed());
  const Graph graph = small_network(draw, true);
  for (const Precision precision : {Precision::w8, Precision::w4, Precision::int8_dynamic}) {
    SCOPED_TRACE(precision_name(precision));
    CompileOptions options;
    options.planning.device = DeviceKind::cuda;
    options.planning.precision = precision;
    const auto plan = compile(graph, options).plans[0];
    int constant = 0;
    for (const Step& step : plan->steps()) {
      const Node& node = plan->graph().nodes()[static_cast<std::size_t>(step.node)];
      EXPECT_FALSE(step.on_host) << node.name;
      if (node.layer->type() == "Conv" && node.inputs.size() > 3) ++constant;
    }
    EXPECT_EQ(constant, 1);
  }
}

// In int8_dynamic scales stay on the GPU: no layer runs on the host, and scales are f32 beside halves.
TEST(PlannedNetworks, FindScalesOnTheGpu) {
  make_up({});
  Draw draw(test_seed());
  for (const bool per_sample : {true, false}) {
    CompileOptions options;
    options.planning.device = DeviceKind::cuda;
    options.planning.precision = Precision::int8_dynamic;
    options.per_sample_scales = per_sample;
    const auto plan = compile(small_network(draw), options).plans[0];
    int products = 0;
    for (const Step& step : plan->steps()) {
      const Graph& graph = plan->graph();
      const Node& node = graph.nodes()[static_cast<std::size_t>(step.node)];
      EXPECT_FALSE(step.on_host) << node.name;
      const auto type_of = [&](ValueId id) { return graph.value(id).desc.dtype; };
      if (node.layer->type() == "DynamicQuantize") {
        EXPECT_EQ(type_of(node.outputs[0]), DType::i8);
        EXPECT_EQ(type_of(node.outputs[1]), DType::f32);
        EXPECT_EQ(type_of(node.inputs[0]), products == 0 ? DType::f32 : DType::f16)
            << "the image is not rounded twice";
      }
      if (node.layer->type() != "DynamicQConv") continue;
      ++products;
      EXPECT_EQ(step.kernel_name, "implicit_gemm");
      EXPECT_EQ(type_of(node.outputs[0]), DType::f16);
    }
    EXPECT_EQ(products, 4);
    EXPECT_EQ(plan->graph().value(plan->graph().outputs()[0]).desc.dtype, DType::f32);
  }
}

TEST(PlannedNetworks, OfViewsHaveNoStep) {
  GraphBuilder builder;
  const ValueId x = builder.add_input("x", TensorDesc{Shape{1, 2, 2, 2}});
  builder.mark_output(builder.add1("flat", std::make_shared<Reshape>(ReshapeAttributes{Shape{1, 8}}), {x}));
  CompileOptions options;
  options.planning.device = DeviceKind::cuda;
  EXPECT_TRUE(compile(builder.build(), options).plans[0]->steps().empty());
}

}  // namespace
}  // namespace pipit::internal::test
