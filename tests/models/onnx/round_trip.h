// Graphs that are written as ONNX and read again.
#pragma once

#include <gtest/gtest.h>

#include "layers/passes/pipeline.h"
#include "layers/registry.h"
#include "models/onnx/write/writer.h"
#include "tests/models/onnx/onnx_run.h"
#include "tests/support/run_graph.h"

namespace pipit::internal::test {

inline OnnxModel read(const std::string& bytes, std::int64_t batch = 1) {
  OnnxOptions options;
  options.batch = batch;
  return parse_onnx(std::as_bytes(std::span(bytes)), {}, options);
}

inline std::vector<float> pattern(std::size_t count, float step) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = step * static_cast<float>((i * 7919) % 23) - 11 * step;
  return values;
}

/// Writes the fused graph of `model`, which is in `opset` then, reads it, and expects the same outputs; returns what
/// was read.
inline Graph expect_round_trip(const OnnxWriter& model, double tolerance = 1e-6, int opset = 13) {
  const Graph graph = fuse(model.read().graph);
  const OnnxModel again = read(write_onnx(graph));
  EXPECT_EQ(again.opset, opset);
  EXPECT_EQ(again.graph.output_names(), graph.output_names());
  std::mt19937 random(1);
  const std::vector<Tensor> inputs = random_inputs(graph, random);
  const std::vector<Tensor> expected = run_graph(graph, default_registry(), inputs, "reference");
  const std::vector<Tensor> got = run_graph(again.graph, default_registry(), inputs, "reference");
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(got[i].desc(), expected[i].desc());
    EXPECT_LE(relative_error(got[i].values<float>(), expected[i].values<float>()), tolerance);
  }
  return again.graph;
}

}  // namespace pipit::internal::test
