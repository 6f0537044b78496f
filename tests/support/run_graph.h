// Runs graphs in tests, on random inputs (random.h): all outputs copied out.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "engine/runtime/session.h"
#include "tests/support/random.h"

namespace pipit::internal::test {

/// Row-major copies of all outputs.
inline std::vector<Tensor> run_graph(const Graph& graph, const Registry& registry,
                                     const std::vector<Tensor>& inputs, const std::string& kernel = {},
                                     int threads = 1) {
  PlanOptions options;
  options.threads = threads;
  options.prefer_kernels = {{kernel}};
  Session session(ExecutionPlan::build(graph, registry, options));
  std::vector<ConstTensorView> views;
  for (const Tensor& t : inputs) views.push_back(t.view());
  std::vector<Tensor> outputs;
  for (const ConstTensorView& view : session.run(views))
    outputs.push_back(to_layout(view, Layout::row_major));
  return outputs;
}

/// ||a - b|| / ||b|| in double; infinity when a has a NaN.
inline double relative_error(std::span<const float> a, std::span<const float> b) {
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    const double d = static_cast<double>(a[i]) - b[i];
    if (std::isnan(d)) return HUGE_VAL;
    difference += d * d;
    norm += static_cast<double>(b[i]) * b[i];
  }
  return std::sqrt(difference) / std::max(std::sqrt(norm), 1e-30);
}

}  // namespace pipit::internal::test
