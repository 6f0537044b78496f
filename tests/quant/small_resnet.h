// A small network with everything that a ResNet has, a quantization plan for it, and what INT8 with a plan must give.
#pragma once

#include <gmock/gmock.h>

#include <memory>
#include <random>
#include <string>

#include "compile/compile.h"
#include "layers/ops/conv.h"
#include "layers/ops/gemm.h"
#include "layers/ops/pool.h"
#include "layers/ops/reshaping.h"
#include "layers/passes/passes.h"
#include "layers/registry.h"
#include "quant/calibration.h"
#include "quant/quantize_graph.h"
#include "tests/support/run_graph.h"

namespace pipit::internal::test {

// Stem, max pool, a residual block, global average pool, classifier: what a ResNet is made of.
inline Graph small_resnet(std::mt19937& random) {
  GraphBuilder graph;
  int constants = 0;
  const auto constant = [&](const Shape& shape, float magnitude) {
    return graph.add_constant("c" + std::to_string(++constants),
                              random_tensor(shape, random, -magnitude, magnitude));
  };
  const auto conv = [&](const std::string& name, ValueId x, std::int64_t channels, const Clamp& activation,
                        ValueId residual = kNoValue) {
    ConvAttributes a;
    a.window.kernel = {3, 3, 1};
    a.window.pad_begin = a.window.pad_end = {1, 1, 0};
    a.activation = activation;
    const std::int64_t in = graph.value(x).desc.shape[1];
    return graph.add1(
        name, std::make_shared<Conv>(a),
        {x, constant(Shape{channels, in, 3, 3}, 0.3F), constant(Shape{channels}, 0.2F), residual}, name);
  };
  ValueId x = graph.add_input("image", TensorDesc{Shape{1, 3, 12, 12}});
  x = conv("stem", x, 16, Clamp::relu());
  PoolAttributes max;
  max.window.kernel = max.window.stride = {2, 2, 1};
  x = graph.add1("max", std::make_shared<Pool>(max), {x}, "max");
  const ValueId inner = conv("block1", x, 16, Clamp::relu());
  x = conv("block2", inner, 16, Clamp::relu(), x);
  PoolAttributes average;
  average.kind = PoolKind::average;
  average.global = true;
  x = graph.add1("gap", std::make_shared<Pool>(average), {x}, "gap");
  x = graph.add1("flat", std::make_shared<Reshape>(ReshapeAttributes{Shape{1, 16}}), {x}, "flat");
  GemmAttributes gemm;
  gemm.transpose_b = true;
  gemm.beta = 0.5F;
  x = graph.add1("fc", std::make_shared<Gemm>(gemm), {x, constant(Shape{10, 16}, 1), constant(Shape{10}, 1)},
                 "scores");
  graph.mark_output(x);
  return graph.build();
}

inline QuantizationPlan calibrated(const Graph& graph, std::mt19937& random, int images) {
  CompileOptions options;
  options.planning.keep_every_value = true;
  options.planning.threads = 1;
  const auto plan = compile(graph, options).plans[0];
  Session session(plan);
  CalibrationObserver observer(*plan, session.pool());
  session.set_observer(&observer);
  for (int i = 0; i < images; ++i) {
    const Tensor image = random_tensor(graph.value(graph.inputs()[0]).desc.shape, random);
    const ConstTensorView view = image.view();
    observer.begin({&view, 1}, 1);
    session.run({&view, 1});
  }
  QuantizationPlan result;
  result.method.method = ThresholdMethod::minmax;
  for (const auto& o : observer.observed()) {
    result.tensors.push_back({});
    result.tensors.back().name = o.name;
    result.tensors.back().histogram = o.histogram;
  }
  set_scales(result);
  return result;
}

/// In INT8 with `plan` the graph's answers are near those in f32, and the same with activations of both signs.
inline void expect_int8_like_float(const Graph& graph, const QuantizationPlan& plan, std::mt19937& random) {
  QuantizeOptions signed_bytes;
  signed_bytes.activations = DType::i8;
  const Graph u8 = assign_layouts(quantize_graph(graph, plan).graph).graph;
  const Graph i8 = assign_layouts(quantize_graph(graph, plan, signed_bytes).graph).graph;
  for (int i = 0; i < 4; ++i) {
    const std::vector<Tensor> inputs = random_inputs(graph, random);
    const auto real = run_graph(graph, default_registry(), inputs);
    const auto quantized = run_graph(u8, default_registry(), inputs);
    // 7 bits and a sign per tensor: about 1 % a layer.
    EXPECT_LT(relative_error(quantized[0].values<float>(), real[0].values<float>()), 0.08);
    EXPECT_THAT(run_graph(i8, default_registry(), inputs)[0].values<float>(),
                ::testing::ElementsAreArray(quantized[0].values<float>()));
  }
}

}  // namespace pipit::internal::test
