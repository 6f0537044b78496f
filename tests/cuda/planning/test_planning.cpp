// Every candidate of the GPU's convolutions is asked everything that planning asks, about shapes of all kinds, without
// a GPU: nothing may be divided by zero, overflow, or read what is not there.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "engine/plan/candidate_order.h"
#include "layers/gpu_kernels.h"
#include "layers/ops/pool.h"
#include "layers/ops/qelementwise.h"
#include "layers/ops/weight_only.h"
#include "layers/passes/stored_weights.h"
#include "tests/cuda/planning/made_up_gpu.h"
#include "tests/cuda/planning/random_node.h"
#include "tests/support/seed.h"

namespace pipit::internal::test {
namespace {

constexpr int kNodes = PIPIT_SANITIZED ? 3000 : 8000;
constexpr int kCreated = 4;                    // one in this many becomes a kernel
constexpr std::int64_t kMaxCreated = 1 << 20;  // elements of an output

const Registry& registry() {
  static const Registry all = [] {
    Registry made;
    register_cuda(made);
    return made;
  }();
  return all;
}

// What planning asks of a candidate that accepts.
void ask_accepting(const Candidate& candidate, const NodeSpec& spec, const NodeSpec* next, bool creates) {
  std::vector<std::string> variants{""};
  if (candidate.variants) {
    for (std::string& variant : candidate.variants(spec)) variants.push_back(std::move(variant));
  }
  if (candidate.kept_share) {
    const double share = candidate.kept_share(spec);
    EXPECT_GE(share, 0);
    EXPECT_LE(share, 1);
  }
  if (candidate.estimate) {
    for (const std::string& variant : variants) {
      NodeSpec named = spec;
      named.variant = variant;
      const std::optional<Estimate> estimate = candidate.estimate(named);
      ASSERT_TRUE(estimate.has_value()) << "an accepted node has an estimate";
      // Kernels without constants would silently come last.
      EXPECT_TRUE(std::isfinite(estimate->time) && estimate->time > 0)
          << estimate->kernel << " " << estimate->time;
    }
  }
  if (candidate.fusions.computes_pieces) candidate.fusions.computes_pieces(spec);
  if (candidate.fusions.writes_strided_rows) candidate.fusions.writes_strided_rows(spec);
  NodeSpec fused = spec;
  const NodeSpec* const followers[] = {next};
  if (next != nullptr && candidate.fusions.epilogue && candidate.fusions.epilogue(spec, *next))
    fused.fusion.followers = followers;
  if (!creates || !candidate.create) return;
  for (const std::string& variant : variants) {
    NodeSpec named = spec;
    named.variant = variant;
    const std::unique_ptr<Kernel> kernel = candidate.create(named);
    (void)kernel->scratch_bytes(), (void)kernel->packed_bytes(), (void)kernel->kept_share(),
        (void)kernel->work();
  }
  if (!fused.fusion.followers.empty()) (void)candidate.create(fused)->scratch_bytes();
}

// By name of the candidate, how many nodes it accepted.
using Accepted = std::map<std::string, int>;

void ask_everything(const RandomNode& node, const RandomNode* follower, bool creates, Accepted& accepted) {
  const auto& candidates = registry().candidates(node.layer->type(), DeviceKind::cuda);
  NodeSpec spec = node.spec();
  std::optional<NodeSpec> next;
  std::vector<const NodeSpec*> followers;
  if (follower != nullptr) next.emplace(follower->spec()), followers.push_back(&*next);
  EXPECT_EQ(candidate_order(registry(), DeviceKind::cuda, spec, followers).size(), candidates.size());
  for (const Candidate& candidate : candidates) {
    SCOPED_TRACE(candidate.name + " of " + node.str());
    if (candidate.fusions.chain && candidate.fusions.chain(spec, {}) && next) {
      const ChainLink link{&*next, {{LinkSource::Kind::node, 0}}};
      candidate.fusions.chain(spec, {&link, 1});
    }
    // Asked about any node. Kernels without constants would silently come last; the library is not there to accept.
    if (const auto estimate = candidate.estimate ? candidate.estimate(spec) : std::nullopt) {
      EXPECT_TRUE(std::isfinite(estimate->time) && estimate->time > 0) << estimate->kernel;
    }
    if (candidate.refuse(spec)) continue;
    ++accepted[node.layer->type() == Conv::kType ? candidate.name : "q:" + candidate.name];
    ask_accepting(candidate, spec, next ? &*next : nullptr, creates);
  }
}

void ask_about(std::optional<RandomNode> (*random_node)(Draw&), int count, const MadeUpGpu& gpu,
               unsigned seed, Accepted& accepted) {
  make_up(gpu);
  Draw draw(seed);
  int nodes = 0;
  for (int i = 0; nodes < count; ++i) {
    ASSERT_LT(i, 20 * count) << "hardly a node was made";
    const std::optional<RandomNode> node = random_node(draw);
    if (!node) continue;
    ++nodes;
    const std::optional<RandomNode> follower = random_follower(draw, *node);
    const bool creates = draw.one_in(kCreated) && node->outputs[0].elements() <= kMaxCreated;
    ASSERT_NO_THROW(ask_everything(*node, follower ? &*follower : nullptr, creates, accepted)) << node->str();
    if (testing::Test::HasFailure()) FAIL() << "seed " << seed << ", node " << i << ": " << node->str();
  }
}

TEST(Planning, AsksEveryConvolutionAboutAnyShape) {
  // The shapes must reach what they are drawn for. Some kernels take one node in a thousand.
  const char* const names[] = {"rows",
                               "depthwise_quads",
                               "depthwise",
                               "stem",
                               "spread_gemm",
                               "resident_gemm",
                               "implicit_gemm",
                               "im2col_gemm",
                               "direct",
                               "q:stem",
                               "q:spread_gemm",
                               "q:resident_gemm",
                               "q:implicit_gemm",
                               "q:pipelined_gemm",
                               "q:direct",
                               "q:depthwise_quads"};
  Accepted accepted;
  const auto is_reached = [&](const char* name) { return accepted[name] > 0; };
  for (unsigned round = 0; round < 8 && !std::ranges::all_of(names, is_reached); ++round)
    ask_about(random_conv, kNodes, {}, test_seed() + 1000 * round, accepted);
  for (const char* name : names) EXPECT_GT(accepted[name], 0) << name;
}

TEST(Planning, AsksConvolutionsWithDynamicScalesAboutAnyShape) {
  Accepted accepted;
  ask_about(random_dynamic_conv, kNodes / 4, {}, test_seed() + 4, accepted);
  EXPECT_GT(accepted["q:implicit_gemm"], kNodes / 100);
}

TEST(Planning, AsksProductsWithStoredWeightsAboutAnyShape) {
  Accepted accepted;
  ask_about(random_stored_product, kNodes / 4, {}, test_seed() + 3, accepted);
  EXPECT_GT(accepted["q:packed_gemm"], kNodes / 40);
  EXPECT_GT(accepted["q:unpacked_gemm"], kNodes / 40);
}

// Three quarters of the input's channels have no weights.
TEST(Planning, LeavesOutZeroBlocks) {
  make_up({});
  ConvAttributes attributes;
  attributes.window.rank = 2;
  const Conv layer(attributes);
  const TensorDesc x{Shape{8, 1024, 14, 14}, DType::f16, Layout::channels_last};
  const TensorDesc y{Shape{8, 128, 14, 14}, DType::f16, Layout::channels_last};
  auto weights = std::make_shared<Tensor>(TensorDesc{Shape{128, 1024, 1, 1}});
  for (std::size_t i = 0; i < weights->values<float>().size(); ++i)
    weights->values<float>()[i] = i % 1024 < 960 ? 0.0F : 1.0F;
  const TensorDesc w = weights->desc();
  const TensorDesc* const inputs[] = {&x, &w};
  const std::shared_ptr<const Tensor> constants[] = {nullptr, weights};
  const NodeSpec spec{layer, inputs, {&y, 1}, constants, Precision::fp16};
  for (const Candidate& candidate : registry().candidates(Conv::kType, DeviceKind::cuda)) {
    if (candidate.name != "implicit_gemm") continue;
    EXPECT_NEAR(candidate.kept_share(spec), 1 / 16.0, 1e-9);
    EXPECT_NEAR(candidate.create(spec)->kept_share(), 1 / 16.0, 1e-9);
  }
}

// "direct" alone takes weights and biases that are computed at run time, in the type of its input, and packs them into
// its scratch memory.
TEST(Planning, PacksOperandsOfRunTime) {
  make_up({});
  ConvAttributes attributes;
  attributes.window.rank = 2;
  attributes.window.kernel = {3, 3, 1};
  attributes.groups = 2;
  const Conv layer(attributes);
  for (const auto& [precision, type] :
       {std::pair(Precision::fp16, DType::f16), std::pair(Precision::fp16, DType::f32),
        std::pair(Precision::bf16, DType::bf16), std::pair(Precision::bf16, DType::f16)}) {
    const TensorDesc x{Shape{1, 6, 9, 9}, stored_type(precision), Layout::channels_last};
    const TensorDesc y{Shape{1, 10, 7, 7}, stored_type(precision), Layout::channels_last};
    const TensorDesc weights{Shape{10, 3, 3, 3}, type}, bias{Shape{10}, type};
    const TensorDesc* const inputs[] = {&x, &weights, &bias};
    const std::shared_ptr<const Tensor> constants[] = {nullptr, nullptr, nullptr};
    const NodeSpec spec{layer, inputs, {&y, 1}, constants, precision};
    for (const Candidate& candidate : registry().candidates(Conv::kType, DeviceKind::cuda)) {
      SCOPED_TRACE(candidate.name);
      const bool takes = candidate.name == "direct" && type == stored_type(precision);
      EXPECT_EQ(!candidate.refuse(spec), takes);
      // 2 groups, 9 taps, 3 channels, 5 outputs rounded up to 8; 10 biases.
      if (takes) {
        EXPECT_EQ(candidate.create(spec)->scratch_bytes(), (2 * 9 * 3 * 8 + 10) * sizeof(float));
      }
    }
  }
}

// Whatever takes halves takes bfloat16, by the same estimate, and neither takes the other's values.
TEST(Planning, TakesBf16WhereItTakesFp16) {
  make_up({});
  Draw draw(test_seed() + 2);
  // What is stored as `from`, as `to`; a copy's inputs are its own.
  const auto store = [](RandomNode& node, DType from, DType to, Precision precision) {
    for (TensorDesc& desc : node.descs) desc.dtype = desc.dtype == from ? to : desc.dtype;
    for (TensorDesc& desc : node.outputs) desc.dtype = desc.dtype == from ? to : desc.dtype;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] != nullptr) node.inputs[i] = &node.descs[i];
    }
    node.precision = precision;
  };
  int taken = 0;
  for (int i = 0; i < kNodes / 4; ++i) {
    const std::optional<RandomNode> node = random_conv(draw);
    if (!node || !stores_16_bits(node->precision)) continue;
    const DType type = stored_type(node->precision);
    const Precision other = node->precision == Precision::bf16 ? Precision::fp16 : Precision::bf16;
    RandomNode same = *node, twin = *node, mixed = *node;
    store(same, type, type, node->precision);
    store(twin, type, stored_type(other), other);
    store(mixed, type, stored_type(other), other);
    mixed.descs[0].dtype = type;  // x is not what y is
    for (const Candidate& candidate : registry().candidates(node->layer->type(), DeviceKind::cuda)) {
      SCOPED_TRACE(candidate.name + " of " + node->str());
      if (node->layer->type() == QConv::kType && candidate.name == "stem") continue;  // writes no bf16
      const bool takes = !candidate.refuse(same.spec());
      EXPECT_EQ(!candidate.refuse(twin.spec()), takes);
      if (takes && candidate.estimate) {
        EXPECT_EQ(candidate.estimate(twin.spec())->time, candidate.estimate(same.spec())->time);
      }
      if (takes && node->layer->type() == Conv::kType && node->descs[0].dtype == type &&
          node->outputs[0].dtype == type) {
        EXPECT_TRUE(candidate.refuse(mixed.spec())) << "x and y of different types";
        ++taken;
      }
    }
  }
  EXPECT_GT(taken, 100);
}

// Pools of whole images, few channels among them: one thread would add up thousands of taps of a window.
TEST(Planning, AveragesImagesInParallel) {
  make_up({});
  PoolAttributes attributes;
  attributes.kind = PoolKind::average;
  attributes.global = true;
  const Quantization q{0.1F, 3, DType::i8};
  const Pool floats(attributes);
  const QAveragePool bytes({attributes, q, q});
  for (const DType type : {DType::f16, DType::f32, DType::i8}) {
    const bool quantized = type == DType::i8;
    const Layer& average = quantized ? static_cast<const Layer&>(bytes) : floats;
    for (const std::int64_t side : {7, 14, 56, 112, 448}) {
      for (const std::int64_t channels : {8, 32, 1024}) {
        const TensorDesc x{Shape{1, channels, side, side}, type, Layout::channels_last};
        const TensorDesc y{Shape{1, channels, 1, 1}, type, Layout::channels_last};
        const TensorDesc* const inputs[] = {&x};
        const std::shared_ptr<const Tensor> constants[] = {nullptr};
        const NodeSpec spec{
            average, inputs, {&y, 1}, constants, quantized ? Precision::fp32 : Precision::fp16};
        const auto order = candidate_order(registry(), DeviceKind::cuda, spec, {});
        EXPECT_EQ(order.at(0).candidate->name, "global_average") << x.shape.str() << ' ' << dtype_name(type);
      }
    }
  }
}

// What passes leave in few bits for a GPU, the kernel takes that needs no library, and nothing else.
TEST(Planning, PassesKeepTheFormatsThatPackedGemmDecodes) {
  make_up({});
  for (const int bits : {8, 4}) {
    for (const std::int64_t group : {0, 8, 32, 40, 64, 96, 128, 192, 256, 512}) {
      for (const std::int64_t depth : {8, 40, 64, 128, 200, 512}) {
        const WeightFormat format{bits, group};
        SCOPED_TRACE(fmt::format("{} bits, groups of {}, rows of {}", bits, group, depth));
        const auto layer = std::make_shared<WLinear>(WLinearAttributes{format, {}});
        GraphBuilder builder;
        const ValueId x = builder.add_input("x", TensorDesc{Shape{3, depth}});
        const Shape integers{16, format.row_bytes(depth)};
        const ValueId weights =
            builder.add_constant("w", Tensor(TensorDesc{integers, bits == 8 ? DType::i8 : DType::u8}));
        const ValueId scales = builder.add_constant("s", Tensor(TensorDesc{Shape{16, format.groups(depth)}}));
        builder.mark_output(builder.add1("y", layer, {x, weights, scales, kNoValue}, "y"));
        const Graph graph = builder.build();
        const Node& node = graph.nodes()[0];
        std::vector<TensorDesc> descs;
        std::vector<std::shared_ptr<const Tensor>> constants;
        for (const ValueId id : {x, weights, scales}) {
          descs.push_back(graph.value(id).desc);
          constants.push_back(graph.value(id).constant);
        }
        descs[0].dtype = DType::f16;
        TensorDesc y = graph.value(node.outputs[0]).desc;
        y.dtype = DType::f16;
        const TensorDesc* const inputs[] = {&descs[0], &descs[1], &descs[2]};
        const NodeSpec spec{*layer, inputs, {&y, 1}, constants, Precision::fp16};
        const auto& candidates = registry().candidates(WLinear::kType, DeviceKind::cuda);
        const auto takes = [&](const char* name) {
          return std::ranges::any_of(candidates,
                                     [&](const Candidate& c) { return c.name == name && !c.refuse(spec); });
        };
        EXPECT_EQ(takes("packed_gemm"), gpu_decodes(graph, node));
        EXPECT_TRUE(takes("unpacked_gemm")) << "of any format, where the library is there";
      }
    }
  }
}

// Weights that are decoded for every eight rows, or once for all of them.
TEST(Planning, UnpacksWeightsForManyRows) {
  make_up({});
  const auto first = [](int bits, std::int64_t rows, std::int64_t depth, std::int64_t outputs) {
    const WeightFormat format{bits, bits == 8 ? 0 : 128};
    const WLinear layer({format, Clamp::relu()});
    const auto weights = std::make_shared<const Tensor>(
        TensorDesc{Shape{outputs, format.row_bytes(depth)}, bits == 8 ? DType::i8 : DType::u8});
    const auto scales = std::make_shared<const Tensor>(TensorDesc{Shape{outputs, format.groups(depth)}});
    const TensorDesc x{Shape{rows, depth}, DType::f16}, y{Shape{rows, outputs}, DType::f16};
    const TensorDesc* const inputs[] = {&x, &weights->desc(), &scales->desc()};
    const std::shared_ptr<const Tensor> constants[] = {nullptr, weights, scales};
    const NodeSpec spec{layer, inputs, {&y, 1}, constants, Precision::fp16};
    return candidate_order(registry(), DeviceKind::cuda, spec, {}).at(0).candidate->name;
  };
  for (const int bits : {8, 4}) {
    for (const std::int64_t rows : {1, 8, 16}) {
      EXPECT_EQ(first(bits, rows, 4096, 4096), "packed_gemm") << rows << " rows, " << bits << " bits";
      EXPECT_EQ(first(bits, rows, 2048, 1000), "packed_gemm") << rows << " rows, " << bits << " bits";
    }
    for (const std::int64_t rows : {64, 128, 6272})
      EXPECT_EQ(first(bits, rows, 4096, 4096), "unpacked_gemm") << rows << " rows, " << bits << " bits";
    // Of ResNet-50, eight images.
    EXPECT_EQ(first(bits, 25088, 64, 256), "unpacked_gemm") << bits << " bits";
    EXPECT_EQ(first(bits, 1568, 1024, 256), "unpacked_gemm") << bits << " bits";
    EXPECT_EQ(first(bits, 392, 512, 2048), "unpacked_gemm") << bits << " bits";
  }
}

TEST(Planning, AsksThemOnAGpuBeforeHopper) {
  Accepted accepted;
  ask_about(random_conv, kNodes, {.processors = 108, .major = 8}, test_seed() + 1, accepted);
  EXPECT_EQ(accepted["spread_gemm"] + accepted["resident_gemm"] + accepted["q:pipelined_gemm"], 0);
  EXPECT_GT(accepted["implicit_gemm"], 0);
  make_up({});
}

}  // namespace
}  // namespace pipit::internal::test
