// Quantized models as INT8: what the passes make of Dequantize -> layer -> Quantize, against the layers as the file has
// them on reference kernels.
#include <gmock/gmock.h>

#include <cmath>
#include <random>

#include "layers/ops/quantization.h"
#include "layers/passes/pipeline.h"
#include "layers/registry.h"
#include "tests/models/onnx/onnx_run.h"
#include "tests/support/run_graph.h"

namespace pipit::internal {
namespace {

using test::Dims;
using test::Names;
using test::OnnxWriter;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class Qdq : public testing::Test {
 protected:
  Qdq()
      : seed_(test::test_seed()),
        random_(seed_),
        trace_(__FILE__, __LINE__, "PIPIT_TEST_SEED=" + std::to_string(seed_)) {}

  int integer(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  bool coin() { return integer(0, 1) == 1; }
  float real(float low, float high) { return std::uniform_real_distribution<float>(low, high)(random_); }

  template <typename T>
  std::vector<T> integers(const Dims& dims, int low, int high) {
    std::int64_t count = 1;
    for (const std::int64_t d : dims) count *= d;
    std::vector<T> values(static_cast<std::size_t>(count));
    for (T& v : values) v = static_cast<T>(integer(low, high));
    return values;
  }

  Quantization random_quantization() {
    const bool u8 = coin();
    return {real(0.01F, 0.1F), u8 ? integer(0, 255) : integer(-128, 127), u8 ? DType::u8 : DType::i8, true};
  }

  // Scale and zero point as "<name>_s", "<name>_z".
  static void add_quantization(OnnxWriter& model, const std::string& name, const Quantization& q) {
    model.constant<float>(name + "_s", {}, {q.scale});
    if (q.dtype == DType::u8) {
      model.constant<std::uint8_t>(name + "_z", {}, {static_cast<std::uint8_t>(q.zero_point)});
    } else {
      model.constant<std::int8_t>(name + "_z", {}, {static_cast<std::int8_t>(q.zero_point)});
    }
  }
  static void quantize(OnnxWriter& model, const std::string& name, const Quantization& q,
                       const std::string& to) {
    add_quantization(model, to, q);
    model.node("QuantizeLinear", {name, to + "_s", to + "_z"}, {to});
  }
  static void dequantize(OnnxWriter& model, const std::string& name, const std::string& to) {
    model.node("DequantizeLinear", {name, name + "_s", name + "_z"}, {to});
  }
  // A graph input of f32 named `name`, quantized and dequantized as "<name>_d".
  static void input(OnnxWriter& model, const std::string& name, const Dims& dims, const Quantization& q) {
    model.input(name, dims);
    quantize(model, name, q, name + "_q");
    dequantize(model, name + "_q", name + "_d");
  }
  // Quantized constant "<name>" with its f32 value "<name>_d".
  template <typename T>
  void weights(OnnxWriter& model, const std::string& name, const Dims& dims, int zero_point,
               std::int64_t axis, bool per_channel, int low, int high) {
    const auto channels = static_cast<std::size_t>(per_channel ? dims[static_cast<std::size_t>(axis)] : 1);
    std::vector<float> scales(channels);
    for (float& s : scales) s = real(0.002F, 0.02F);
    const Dims list = per_channel ? Dims{static_cast<std::int64_t>(channels)} : Dims{};
    model.constant(name, dims, integers<T>(dims, low, high));
    model.constant(name + "_s", list, scales);
    model.constant(name + "_z", list, std::vector<T>(channels, static_cast<T>(zero_point)));
    model.node("DequantizeLinear", {name, name + "_s", name + "_z"}, {name + "_d"}, {{"axis", axis}});
    weight_scales_ = std::move(scales);
  }
  // An i32 bias in units of the products of the weights made last.
  void bias(OnnxWriter& model, std::int64_t outputs, float x_scale) {
    std::vector<float> scales = weight_scales_;
    for (float& s : scales) s *= x_scale;
    const Dims list = scales.size() == 1 ? Dims{} : Dims{static_cast<std::int64_t>(scales.size())};
    model.constant<std::int32_t>("b", {outputs}, integers<std::int32_t>({outputs}, -3000, 3000))
        .constant<float>("b_s", list, scales)
        .node("DequantizeLinear", {"b", "b_s"}, {"b_d"}, {{"axis", std::int64_t{0}}});
  }

  std::vector<Tensor> random_inputs(const Graph& graph) {
    std::vector<Tensor> inputs;
    for (const ValueId id : graph.inputs())
      inputs.push_back(test::random_tensor(graph.value(id).desc.shape, random_, -3, 3));
    return inputs;
  }
  static test::TensorPtr oracle(const Graph& graph, const std::vector<Tensor>& inputs) {
    std::vector<test::TensorPtr> shared;
    for (const Tensor& t : inputs) shared.push_back(std::make_shared<const Tensor>(t.clone()));
    return test::run(graph, shared).at(0);
  }

  // `model` computes "y" in floating point. Its INT8 form writes the same up to rounding, and with a QuantizeLinear
  // after it the integer next to it: another one only where the exact value is within 1e-4 of a tie.
  void expect_int8(OnnxWriter model, const Quantization& y, const std::vector<std::string>& types) {
    OnnxWriter as_real = model;
    const Graph graph = as_real.output("y").read().graph;
    const std::vector<Tensor> inputs = random_inputs(graph);
    const test::TensorPtr expected = oracle(graph, inputs);
    quantize(model, "y", y, "y_q");
    const Graph fused = optimize(model.output("y_q").read().graph);
    EXPECT_EQ(types_of(fused), types);
    const Tensor integers = std::move(test::run_graph(fused, default_registry(), inputs).at(0));
    const QuantizedRange range = quantized_range(y);
    const auto values = expected->values<float>();
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double steps = static_cast<double>(values[i]) / y.scale + y.zero_point;
      const double clamped =
          std::clamp(steps, static_cast<double>(range.low), static_cast<double>(range.high));
      const double got = y.dtype == DType::u8 ? integers.values<std::uint8_t>()[i]
                                              : static_cast<double>(integers.values<std::int8_t>()[i]);
      ASSERT_LE(std::abs(got - clamped), 0.5 + 1e-4) << "element " << i << " of " << values.size();
    }
    // The sums are exact but for f32's rounding of products, bias and residual.
    const std::vector<Tensor> real =
        test::run_graph(optimize(as_real.read().graph), default_registry(), inputs);
    EXPECT_LT(test::relative_error(real.at(0).values<float>(), values), 1e-5);
  }

  // Layer types in order, without conversions of layout and views.
  static std::vector<std::string> types_of(const Graph& graph) {
    std::vector<std::string> types;
    for (const Node& node : graph.nodes()) {
      if (node.layer->type() != "ToLayout" && node.layer->type() != "Reshape")
        types.emplace_back(node.layer->type());
    }
    return types;
  }

  unsigned seed_;
  std::mt19937 random_;
  testing::ScopedTrace trace_;
  std::vector<float> weight_scales_;
};

TEST_F(Qdq, Convolutions) {
  for (int round = 0; round < 60; ++round) {
    const int groups = coin() ? 1 : integer(1, 3);
    const int per_group = integer(1, 5);
    const Dims w_dims{groups * integer(1, 6), per_group, integer(1, 3), integer(1, 3)};
    OnnxWriter model(13);
    const Quantization x = random_quantization();
    input(model, "x", {integer(1, 2), groups * per_group, integer(5, 9), integer(5, 9)}, x);
    if (coin()) {
      weights<std::int8_t>(model, "w", w_dims, 0, 0, coin(), -128, 127);
    } else if (coin()) {
      weights<std::uint8_t>(model, "w", w_dims, 128, 0, coin(), 0, 255);
    } else {
      weights<std::uint8_t>(model, "w", w_dims, 100, 0, coin(), 0, 227);  // -100 to 127
    }
    Names inputs{"x_d", "w_d"};
    if (coin()) {
      bias(model, w_dims[0], x.scale);
      inputs.emplace_back("b_d");
    }
    model.node("Conv", inputs, {"conv"},
               {{"group", std::int64_t{groups}},
                {"strides", Dims{integer(1, 2), integer(1, 2)}},
                {"pads", Dims{integer(0, 2), integer(0, 2), integer(0, 2), integer(0, 2)}},
                {"dilations", Dims{integer(1, 2), integer(1, 2)}}});
    std::string last = "conv";
    std::vector<std::string> types{"Quantize", "QConv"};
    if (coin()) {
      OnnxWriter shape = model;
      const OnnxModel read = shape.output("conv").read();
      const auto dims = read.graph.value(read.graph.outputs()[0]).desc.shape.dims();
      input(model, "r", Dims(dims.begin(), dims.end()), random_quantization());
      model.node("Add", coin() ? Names{"conv", "r_d"} : Names{"r_d", "conv"}, {"sum"});
      last = "sum";
      types.insert(types.begin(), "Quantize");
    }
    const int activation = integer(0, 2);
    if (activation == 1) model.node("Relu", {last}, {"y"});
    if (activation == 2)
      model.constant<float>("low", {}, {-0.5F})
          .constant<float>("high", {}, {2})
          .node("Clip", {last, "low", "high"}, {"y"});
    if (activation == 0) model.graph().mutable_node()->rbegin()->set_output(0, "y");
    expect_int8(model, random_quantization(), types);
    if (HasFatalFailure() || HasNonfatalFailure()) return;
  }
}

TEST_F(Qdq, MatrixProducts) {
  for (int round = 0; round < 40; ++round) {
    OnnxWriter model(13);
    const Quantization x = random_quantization();
    const std::int64_t depth = integer(1, 40);
    const std::int64_t outputs = integer(1, 20);
    const bool gemm = coin();
    const bool transposed = gemm && coin();
    input(model, "x", gemm || coin() ? Dims{integer(1, 3), depth} : Dims{2, integer(1, 3), depth}, x);
    weights<std::int8_t>(model, "w", transposed ? Dims{outputs, depth} : Dims{depth, outputs}, 0,
                         transposed ? 0 : 1, coin(), -128, 127);
    if (gemm) {
      bias(model, outputs, x.scale);
      model.node("Gemm", {"x_d", "w_d", "b_d"}, {"gemm"}, {{"transB", std::int64_t{transposed}}});
      model.node("Relu", {"gemm"}, {"y"});
    } else {
      model.node("MatMul", {"x_d", "w_d"}, {"y"});
    }
    expect_int8(model, random_quantization(), {"Quantize", "QConv"});
    if (HasFatalFailure() || HasNonfatalFailure()) return;
  }
}

// As exporters write x * W' where the weights lie transposed, and where a convolution's weights are a matrix.
TEST_F(Qdq, WeightsThatAreMovedStayIntegers) {
  OnnxWriter transposed(13);
  input(transposed, "x", {2, 7}, random_quantization());
  weights<std::int8_t>(transposed, "w", {5, 7}, 0, 0, true, -127, 127);
  transposed.node("Transpose", {"w_d"}, {"wt"}, {{"perm", Dims{1, 0}}}).node("MatMul", {"x_d", "wt"}, {"y"});
  expect_int8(transposed, random_quantization(), {"Quantize", "QConv"});
  OnnxWriter reshaped(13);
  input(reshaped, "x", {1, 7, 3, 3}, random_quantization());
  weights<std::int8_t>(reshaped, "w", {5, 7}, 0, 0, true, -127, 127);
  reshaped.integers("shape", {5, 7, 1, 1}).node("Reshape", {"w_d", "shape"}, {"w4"});
  expect_int8(reshaped.node("Conv", {"x_d", "w4"}, {"y"}), random_quantization(), {"Quantize", "QConv"});
}

TEST_F(Qdq, BiasesInOtherUnitsAreRoundedToThoseOfTheSums) {
  for (const bool stored : {false, true}) {
    OnnxWriter model(13);
    input(model, "x", {1, 3, 6, 6}, {0.05F, 3, DType::u8, true});
    weights<std::int8_t>(model, "w", {4, 3, 3, 3}, 0, 0, true, -127, 127);
    if (stored) {
      weights<std::int8_t>(model, "b", {4}, 0, 0, false, -127, 127);
    } else {
      model.constant<float>("b_d", {4}, {0.1F, -1, 0, 3.7F});
    }
    model.node("Conv", {"x_d", "w_d", "b_d"}, {"y"});
    const Graph graph = OnnxWriter(model).output("y").read().graph;
    const Graph fused = optimize(graph);
    EXPECT_THAT(types_of(fused), ElementsAre("Quantize", "QConv"));
    const std::vector<Tensor> inputs = random_inputs(graph);
    const test::TensorPtr expected = oracle(graph, inputs);
    const Tensor got = std::move(test::run_graph(fused, default_registry(), inputs).at(0));
    // Half a unit of the products of the scales: at most 0.05 * 0.02 / 2.
    for (std::size_t i = 0; i < got.values<float>().size(); ++i)
      ASSERT_NEAR(got.values<float>()[i], expected->values<float>()[i],
                  0.0005 + 1e-5 * std::abs(expected->values<float>()[i]));
  }
}

TEST_F(Qdq, ElementwiseAndPools) {
  const Dims image{1, 5, 8, 7};
  for (int round = 0; round < 20; ++round) {
    OnnxWriter add(13);
    input(add, "a", image, random_quantization());
    input(add, "b", image, random_quantization());
    add.node("Add", {"a_d", "b_d"}, {"sum"}).node("Relu", {"sum"}, {"y"});
    expect_int8(add, random_quantization(), {"Quantize", "Quantize", "QAdd"});

    OnnxWriter average(13);
    input(average, "x", image, random_quantization());
    average.node("AveragePool", {"x_d"}, {"y"},
                 {{"kernel_shape", Dims{3, 2}},
                  {"pads", Dims{1, 0, 1, 1}},
                  {"count_include_pad", std::int64_t{coin()}}});
    expect_int8(average, random_quantization(), {"Quantize", "QAveragePool"});

    OnnxWriter mean(13);
    input(mean, "x", image, random_quantization());
    mean.node("ReduceMean", {"x_d"}, {"y"}, {{"axes", Dims{-1, 2}}, {"keepdims", std::int64_t{coin()}}});
    expect_int8(mean, random_quantization(), {"Quantize", "QAveragePool"});
    if (HasFatalFailure() || HasNonfatalFailure()) return;
  }
}

// x is quantized as `q`; so is what comes out.
TEST_F(Qdq, LayersThatOnlyMoveElementsWorkOnTheIntegers) {
  for (const Quantization& q :
       {Quantization{0.05F, 7, DType::u8, true}, Quantization{0.03F, -20, DType::i8, true}}) {
    const auto model = [&](const std::string& op, const std::vector<test::Attribute>& attributes) {
      OnnxWriter m(10);
      input(m, "x", {1, 6, 6, 4}, q);
      m.node(op, {"x_d"}, {"y"}, attributes);
      return m;
    };
    expect_int8(
        model("MaxPool", {{"kernel_shape", Dims{3, 3}}, {"pads", Dims{1, 1, 1, 1}}, {"strides", Dims{2, 2}}}),
        q, {"Quantize", "Pool"});
    expect_int8(model("GlobalMaxPool", {}), q, {"Quantize", "Pool"});
    expect_int8(model("Flatten", {}), q, {"Quantize"});
    expect_int8(model("Transpose", {{"perm", Dims{0, 2, 3, 1}}}), q, {"Quantize", "Transpose"});
    expect_int8(model("Pad", {{"pads", Dims{0, 1, 0, 2, 0, 1, 1, 0}}}), q, {"Quantize", "Pad"});
    // Other integers after the pool are made of its own.
    expect_int8(model("GlobalMaxPool", {}), {0.1F, 0, DType::u8, true}, {"Quantize", "Pool", "QUnary"});
  }
}

TEST_F(Qdq, ConcatBringsItsOperandsToOneScale) {
  const Quantization y{0.06F, 12, DType::u8, true};
  OnnxWriter model(13);
  input(model, "a", {1, 3, 4, 4}, y);
  input(model, "b", {1, 2, 4, 4}, {0.04F, -3, DType::i8, true});
  model.node("Concat", {"a_d", "b_d"}, {"y"}, {{"axis", std::int64_t{1}}});
  expect_int8(model, y, {"Quantize", "Quantize", "QUnary", "Concat"});
}

// Values that keep their integers: no QuantizeLinear between pool, Flatten and Gemm.
TEST_F(Qdq, IntegersArePassedOn) {
  OnnxWriter model(13);
  input(model, "x", {1, 3, 4, 4}, random_quantization());
  weights<std::int8_t>(model, "w", {5, 12}, 0, 0, true, -127, 127);
  model.node("MaxPool", {"x_d"}, {"pool"}, {{"kernel_shape", Dims{2, 2}}, {"strides", Dims{2, 2}}})
      .node("Flatten", {"pool"}, {"flat"})
      .node("Gemm", {"flat", "w_d"}, {"y"}, {{"transB", std::int64_t{1}}});
  expect_int8(model, random_quantization(), {"Quantize", "Pool", "QConv"});
}

TEST_F(Qdq, AValueThatSomethingElseReadsTooIsWrittenInFloatingPoint) {
  const Quantization q{0.05F, 7, DType::u8, true};
  OnnxWriter model(13);
  input(model, "x", {1, 3, 4, 4}, q);
  weights<std::int8_t>(model, "w", {2, 3, 1, 1}, 0, 0, false, -127, 127);
  model.node("Conv", {"x_d", "w_d"}, {"y"});
  quantize(model, "y", q, "y_q");
  const Graph fused = optimize(model.output("y").output("y_q").read().graph);
  EXPECT_THAT(types_of(fused), ElementsAre("Quantize", "QConv", "Quantize"));
}

TEST_F(Qdq, WhatStaysInFloatingPointIsSaid) {
  const auto notes = [](const OnnxWriter& model) {
    std::vector<PassReport> passes;
    const Graph graph = optimize(OnnxWriter(model).output("y").read().graph, {}, &passes);
    std::vector<std::string> all;
    for (const PassReport& pass : passes) all.insert(all.end(), pass.notes.begin(), pass.notes.end());
    return std::pair{all, types_of(graph)};
  };
  OnnxWriter wide(13);
  input(wide, "x", {1, 3, 4, 4}, random_quantization());
  weights<std::uint8_t>(wide, "w", {2, 3, 1, 1}, 120, 0, false, 250, 255);
  const auto [wide_notes, wide_types] = notes(wide.node("Conv", {"x_d", "w_d"}, {"y"}));
  ASSERT_EQ(wide_notes.size(), 1U);
  EXPECT_THAT(wide_notes[0],
              HasSubstr("'the_Conv' computes in floating point: a weight less the zero point 120"));
  EXPECT_THAT(wide_types, ElementsAre("Quantize", "Dequantize", "Conv"));

  OnnxWriter rows(13);
  input(rows, "x", {2, 3}, random_quantization());
  weights<std::int8_t>(rows, "w", {3, 4}, 0, 0, true, -127, 127);
  EXPECT_THAT(notes(rows.node("MatMul", {"x_d", "w_d"}, {"y"})).first.at(0),
              HasSubstr("axis 0, not the outputs'"));

  // Weights alone are no reason for INT8: they are folded, without a word.
  OnnxWriter weights_only(13);
  weights_only.input("x", {1, 3, 4, 4});
  weights<std::int8_t>(weights_only, "w", {2, 3, 1, 1}, 0, 0, true, -127, 127);
  const auto [no_notes, types] = notes(weights_only.node("Conv", {"x", "w_d"}, {"y"}));
  EXPECT_THAT(no_notes, IsEmpty());
  EXPECT_THAT(types, ElementsAre("Conv"));
}

TEST_F(Qdq, QLinearOperatorsBecomeTheSameLayers) {
  const Quantization x = random_quantization();
  const Quantization y = random_quantization();
  OnnxWriter model(13);
  model.input("x", {1, 4, 6, 6});
  quantize(model, "x", x, "x_q");
  weights<std::int8_t>(model, "w", {6, 4, 3, 3}, 0, 0, true, -127, 127);
  bias(model, 6, x.scale);
  OnnxWriter qdq = model;
  dequantize(qdq, "x_q", "x_d");
  qdq.node("Conv", {"x_d", "w_d", "b_d"}, {"real"}, {{"pads", Dims{1, 1, 1, 1}}});
  quantize(qdq, "real", y, "y");
  add_quantization(model, "y", y);
  model.node("QLinearConv", {"x_q", "x_q_s", "x_q_z", "w", "w_s", "w_z", "y_s", "y_z", "b"}, {"y"},
             {{"pads", Dims{1, 1, 1, 1}}});
  const Graph a = optimize(model.output("y").read().graph);
  const Graph b = optimize(qdq.output("y").read().graph);
  EXPECT_THAT(types_of(a), ElementsAre("Quantize", "QConv"));
  EXPECT_EQ(types_of(a), types_of(b));
  const std::vector<Tensor> inputs = random_inputs(a);
  const Tensor one = std::move(test::run_graph(a, default_registry(), inputs).at(0));
  const Tensor other = std::move(test::run_graph(b, default_registry(), inputs).at(0));
  EXPECT_EQ(std::memcmp(one.view().data, other.view().data, one.desc().bytes()), 0);
}

}  // namespace
}  // namespace pipit::internal
