// Weights in 8 and 4 bits: written as DequantizeLinear in blocks, and kept as they are stored where a layer can.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "layers/ops/reshaping.h"
#include "layers/ops/weight_only.h"
#include "layers/passes/pipeline.h"
#include "layers/passes/rewriter.h"
#include "layers/passes/stored_weights.h"
#include "tests/models/onnx/round_trip.h"

namespace pipit::internal {
namespace {

using test::Attribute;
using test::Dims;
using test::kOne;
using test::kZero;
using test::OnnxWriter;
using ::testing::ElementsAre;

// Weights of one layer, all integers from -8 to 7 (4 bits) or -127 to 127, and scales of both signs.
struct StoredCase {
  WeightFormat format;
  Tensor integers;
  Tensor scales;
};

StoredCase random_case(std::mt19937& random, const WeightFormat& format, std::int64_t outputs,
                       std::int64_t depth) {
  const std::int64_t row = format.row_bytes(depth);
  StoredCase made{format, Tensor(TensorDesc{Shape{outputs, row}, format.bits == 8 ? DType::i8 : DType::u8}),
                  test::random_tensor(Shape{outputs, format.groups(depth)}, random)};
  std::byte* to = made.integers.view().data;
  std::fill_n(to, outputs * row, std::byte{0});
  const int low = format.bits == 8 ? -127 : -8, high = -1 - low + (format.bits == 8 ? 1 : 0);
  std::uniform_int_distribution<int> integer(low, high);
  for (std::int64_t o = 0; o < outputs; ++o) {
    for (std::int64_t k = 0; k < depth; ++k) format.set(to + o * row, k, k == 0 ? low : integer(random));
  }
  return made;
}

bool same_bytes(const Tensor& a, const Tensor& b) {
  return a.desc() == b.desc() && std::memcmp(a.view().data, b.view().data, a.desc().bytes()) == 0;
}

// x through a WConv with a residual, a Reshape and two WLinear.
Graph stored_network(std::mt19937& random, const WeightFormat& format, bool matrix) {
  GraphBuilder graph;
  const auto constant = [&](Tensor tensor) { return graph.add_constant("c", std::move(tensor)); };
  const ValueId x = graph.add_input("x", TensorDesc{Shape{2, 40, 3, 3}});
  StoredCase conv = random_case(random, format, 40, 40);
  WConvAttributes attributes{format, {}};
  attributes.conv.window.rank = 2;
  attributes.conv.activation = Clamp::relu();
  ValueId y = graph.add1("conv", std::make_shared<WConv>(attributes),
                         {x, constant(std::move(conv.integers)), constant(std::move(conv.scales)),
                          constant(test::random_tensor(Shape{40}, random)), x},
                         "conv");
  y = graph.add1("rows",
                 std::make_shared<Reshape>(ReshapeAttributes{matrix ? Shape{18, 40} : Shape{2, 9, 40}}), {y},
                 "rows");
  StoredCase one = random_case(random, format, 24, 40), two = random_case(random, format, 5, 24);
  y = graph.add1("one",
                 std::make_shared<WLinear>(WLinearAttributes{format, matrix ? Clamp::relu() : Clamp{}}),
                 {y, constant(std::move(one.integers)), constant(std::move(one.scales)),
                  matrix ? constant(test::random_tensor(Shape{24}, random)) : kNoValue},
                 "one");
  y = graph.add1("two", std::make_shared<WLinear>(WLinearAttributes{format, {}}),
                 {y, constant(std::move(two.integers)), constant(std::move(two.scales)), kNoValue}, "two");
  graph.mark_output(y);
  return graph.build();
}

std::vector<std::string> types_of(const Graph& graph) {
  std::vector<std::string> types;
  for (const Node& node : graph.nodes()) types.emplace_back(node.layer->type());
  return types;
}

TEST(OnnxStoredWeights, AreReadAsTheyWereWritten) {
  const unsigned seed = test::test_seed();
  SCOPED_TRACE(testing::Message() << "PIPIT_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  for (const WeightFormat format :
       {WeightFormat{4, 32}, WeightFormat{4, 8}, WeightFormat{4, 0}, WeightFormat{8, 0}}) {
    for (const bool matrix : {true, false}) {
      SCOPED_TRACE(testing::Message() << format.bits << " bits, groups of " << format.group_size
                                      << (matrix ? ", matrices" : ", batches"));
      const Graph graph = stored_network(random, format, matrix);
      const OnnxModel again = test::read(write_onnx(graph));
      EXPECT_EQ(again.opset, 21);
      const Graph read = fuse(again.graph);
      ASSERT_EQ(types_of(read), types_of(graph));
      for (std::size_t n = 0; n < graph.nodes().size(); ++n) {
        const Node &before = graph.nodes()[n], &after = read.nodes()[n];
        if (layer_if<Reshape>(before) != nullptr) continue;
        for (const std::size_t input : {1, 2})
          EXPECT_TRUE(same_bytes(*graph.value(before.inputs[input]).constant,
                                 *read.value(after.inputs[input]).constant));
      }
      const std::vector<Tensor> inputs = test::random_inputs(graph, random);
      const Tensor y = std::move(test::run_graph(graph, default_registry(), inputs, "reference").at(0));
      EXPECT_TRUE(same_bytes(y, test::run_graph(read, default_registry(), inputs, "reference").at(0)));
      // As it was read, and written out for devices that store nothing: sums of 40 products in f32 or f64.
      const Tensor plain =
          std::move(test::run_graph(again.graph, default_registry(), inputs, "reference").at(0));
      EXPECT_LE(test::relative_error(plain.values<float>(), y.values<float>()), 1e-6);
      const Rewritten out = write_out_stored(read);
      EXPECT_EQ(out.changes, 3);
      const Tensor real =
          std::move(test::run_graph(out.graph, default_registry(), inputs, "reference").at(0));
      EXPECT_LE(test::relative_error(real.values<float>(), y.values<float>()), 1e-6);
    }
  }
}

std::vector<std::string> types_in_fp16(const Graph& graph, DeviceKind device) {
  PassTarget target;
  target.device = device;
  target.precision = Precision::fp16;
  std::vector<std::string> types;
  for (const std::string& type : types_of(optimize(graph, target))) {
    if (type != "ToLayout" && type != "Cast" && type != "Reshape") types.push_back(type);
  }
  return types;
}

TEST(OnnxStoredWeights, StayOnAGpuInFp16InFormatsThatItDecodes) {
  std::mt19937 random(1);
  for (const auto& [format, decoded] :
       {std::pair{WeightFormat{4, 32}, true}, std::pair{WeightFormat{4, 8}, false},
        std::pair{WeightFormat{4, 0}, true}, std::pair{WeightFormat{8, 0}, true},
        std::pair{WeightFormat{8, 16}, false}}) {
    SCOPED_TRACE(testing::Message() << format.bits << " bits, groups of " << format.group_size);
    const Graph graph = stored_network(random, format, true);
    const std::vector<std::string> real{"Conv", "Gemm", "Gemm"}, stored{"WConv", "WLinear", "WLinear"};
    EXPECT_EQ(types_in_fp16(graph, DeviceKind::cuda), decoded ? stored : real);
    EXPECT_EQ(types_in_fp16(graph, DeviceKind::cpu), real);
  }
}

std::vector<std::int8_t> ramp(std::size_t count) {
  std::vector<std::int8_t> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<std::int8_t>(static_cast<int>(i % 16) - 8);
  return values;
}

// x [2, 16] times weights [16, 3] in blocks of `block` along `axis`.
OnnxWriter product(std::int64_t axis, std::int64_t block, const std::string& op = "MatMul",
                   const std::vector<Attribute>& attributes = {}) {
  const Dims scales = axis == 0 ? Dims{16 / block, 3} : Dims{16, (3 + block - 1) / block};
  OnnxWriter model(21);
  model.input("x", {2, 16})
      .constant<std::int8_t>("w", {16, 3}, ramp(48))
      .constant<float>("s", scales, test::pattern(static_cast<std::size_t>(scales[0] * scales[1]), 0.1F))
      .node("DequantizeLinear", {"w", "s"}, {"d"}, {{"axis", axis}, {"block_size", block}})
      .node(op, {"x", "d"}, {"y"}, attributes)
      .output("y");
  return model;
}

void expect_types(const OnnxWriter& model, const std::vector<std::string>& types) {
  const OnnxModel read = model.read();
  const Graph graph = fuse(read.graph);
  EXPECT_EQ(types_of(graph), types);
  std::mt19937 random(1);
  const std::vector<Tensor> inputs = test::random_inputs(graph, random);
  const auto run = [&](const Graph& g) {
    return test::run_graph(g, default_registry(), inputs, "reference");
  };
  EXPECT_LE(test::relative_error(run(graph)[0].values<float>(), run(read.graph)[0].values<float>()), 1e-6);
}

TEST(OnnxStoredWeights, OnlyWhatALayerCanStoreStaysInBlocks) {
  expect_types(product(0, 8), {"WLinear"});
  expect_types(product(0, 16), {"WLinear"});
  expect_types(product(0, 4), {"MatMul"});  // no kernel has such groups
  expect_types(product(1, 8), {"MatMul"});  // blocks of outputs
  expect_types(product(0, 8, "Gemm"), {"WLinear"});
  expect_types(product(0, 8, "Gemm", {{"alpha", 0.5F}}), {"Gemm"});
  OnnxWriter turned(21);
  turned.input("x", {2, 16})
      .constant<std::int8_t>("w", {3, 16}, ramp(48))
      .constant<float>("s", {3, 2}, test::pattern(6, 0.1F))
      .node("DequantizeLinear", {"w", "s"}, {"d"}, {{"axis", kOne}, {"block_size", std::int64_t{8}}})
      .node("Transpose", {"d"}, {"t"})
      .node("MatMul", {"x", "t"}, {"y"})
      .output("y");
  expect_types(turned, {"MatMul"});
  OnnxWriter both = product(0, 8);
  both.node("Add", {"d", "d"}, {"z"}).output("z");
  const Graph shared = fuse(both.read().graph);
  EXPECT_THAT(types_of(shared), ElementsAre("WLinear", "Binary"));
}

TEST(OnnxStoredWeights, ZeroPointsAreTakenOffTheIntegers) {
  for (const bool fits : {true, false}) {
    OnnxWriter model(21);
    std::vector<std::uint8_t> w(16);
    for (std::size_t i = 0; i < w.size(); ++i) w[i] = static_cast<std::uint8_t>(fits ? i : 16 * i);
    model.input("x", {1, 16})
        .constant<std::uint8_t>("w", {16, 1}, w)
        .constant<float>("s", {2, 1}, {0.5F, 2})
        .constant<std::uint8_t>("z", {2, 1}, {static_cast<std::uint8_t>(fits ? 8 : 0), 9})
        .node("DequantizeLinear", {"w", "s", "z"}, {"d"}, {{"axis", kZero}, {"block_size", std::int64_t{8}}})
        .node("MatMul", {"x", "d"}, {"y"})
        .output("y");
    const Graph graph = fuse(model.read().graph);
    // 240 - 9 is none of i8.
    EXPECT_THAT(types_of(graph), ElementsAre(fits ? "WLinear" : "MatMul"));
    std::vector<float> x(16, 0);
    x[1] = 1;
    x[15] = 10;
    const double expected = fits ? 0.5 * (1 - 8) + 10 * 2.0 * (15 - 9) : 0.5 * 16 + 10 * 2.0 * (240 - 9);
    EXPECT_FLOAT_EQ(test::run(graph, {test::tensor(Shape{1, 16}, x)}).at(0)->values<float>()[0],
                    static_cast<float>(expected));
  }
}

TEST(OnnxStoredWeights, HostileBlocks) {
  const auto blocks = [](std::int64_t axis, std::int64_t block, const Dims& scales,
                         const std::vector<float>& values) {
    OnnxWriter model(21);
    model.input("x", {2, 16})
        .constant<std::int8_t>("w", {16, 3}, ramp(48))
        .constant<float>("s", scales, values)
        .node("DequantizeLinear", {"w", "s"}, {"d"}, {{"axis", axis}, {"block_size", block}})
        .node("MatMul", {"x", "d"}, {"y"})
        .output("y");
    return model;
  };
  constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
  EXPECT_THAT(blocks(0, 8, {3, 3}, std::vector<float>(9, 1)).failure<Error>(),
              testing::HasSubstr("3 blocks of 8 for 16"));
  EXPECT_THAT(blocks(2, 8, {2, 3}, std::vector<float>(6, 1)).failure<Error>(), testing::HasSubstr("axis 2"));
  EXPECT_THAT(blocks(0, -8, {2, 3}, std::vector<float>(6, 1)).failure<Error>(),
              testing::HasSubstr("'block_size' is -8"));
  // What zero points make of integers counts, and what is made of that: a small file cannot fill memory.
  OnnxWriter many(21);
  many.input("x", {2, 16})
      .constant<std::int8_t>("w", {16, 64}, ramp(1024))
      .constant<float>("s", {2, 64}, std::vector<float>(128, 1));
  many.constant<std::int8_t>("z", {2, 64}, std::vector<std::int8_t>(128, 1));
  for (int i = 0; i < 20; ++i) {
    const std::string d = "d" + std::to_string(i), y = "y" + std::to_string(i);
    many.node("DequantizeLinear", {"w", "s", "z"}, {d}, {{"axis", kZero}, {"block_size", std::int64_t{8}}})
        .node("MatMul", {"x", d}, {y})
        .output(y);
  }
  EXPECT_EQ(many.failure<Error>({.max_folded_bytes = 20 * 5 * 1024}), "");
  EXPECT_THAT(many.failure<Error>({.max_folded_bytes = 19 * 5 * 1024}), testing::HasSubstr("bytes"));
  // One block of all; a scale that is not finite stays one.
  EXPECT_THAT(types_of(fuse(blocks(0, kHuge, {1, 3}, {1, 2, 3}).read().graph)), ElementsAre("WLinear"));
  EXPECT_THAT(types_of(fuse(blocks(0, 16, {1, 3}, {1, INFINITY, NAN}).read().graph)), ElementsAre("MatMul"));
}

}  // namespace
}  // namespace pipit::internal
