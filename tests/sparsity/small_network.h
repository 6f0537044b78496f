// A small residual network, and images for it.
#pragma once

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "layers/ops/conv.h"
#include "layers/ops/gemm.h"
#include "layers/ops/pool.h"
#include "layers/ops/reshaping.h"
#include "tests/support/run_graph.h"

namespace pipit::internal::test {

/// Stem, a residual block of two convolutions "inner" and "outer", a depthwise one, global average pool, classifier; as
/// fuse() leaves it.
inline Graph small_network(std::mt19937& random) {
  GraphBuilder graph;
  int constants = 0;
  const auto constant = [&](const Shape& shape, float magnitude) {
    return graph.add_constant("c" + std::to_string(++constants),
                              random_tensor(shape, random, -magnitude, magnitude));
  };
  const auto conv = [&](const std::string& name, ValueId x, std::int64_t channels, std::int64_t groups,
                        ValueId residual = kNoValue) {
    ConvAttributes a;
    a.window.kernel = {3, 3, 1};
    a.window.pad_begin = a.window.pad_end = {1, 1, 0};
    a.activation = Clamp::relu();
    a.groups = groups;
    const std::int64_t in = graph.value(x).desc.shape[1] / groups;
    return graph.add1(
        name, std::make_shared<Conv>(a),
        {x, constant(Shape{channels, in, 3, 3}, 0.3F), constant(Shape{channels}, 0.2F), residual}, name);
  };
  ValueId x = graph.add_input("image", TensorDesc{Shape{1, 3, 10, 10}});
  x = conv("stem", x, 16, 1);
  const ValueId inner = conv("inner", x, 24, 1);
  x = conv("outer", inner, 16, 1, x);
  x = conv("depthwise", x, 16, 16);
  x = conv("last", x, 32, 1);
  PoolAttributes average;
  average.kind = PoolKind::average;
  average.global = true;
  x = graph.add1("gap", std::make_shared<Pool>(average), {x}, "gap");
  x = graph.add1("flat", std::make_shared<Reshape>(ReshapeAttributes{Shape{1, 32}}), {x}, "flat");
  GemmAttributes gemm;
  gemm.transpose_b = true;
  x = graph.add1("fc", std::make_shared<Gemm>(gemm), {x, constant(Shape{10, 32}, 1), constant(Shape{10}, 1)},
                 "scores");
  graph.mark_output(x);
  return graph.build();
}

/// Smooth images: neighbours are alike, as they are in photographs.
inline std::vector<Tensor> smooth_images(std::mt19937& random, int count) {
  std::vector<Tensor> images;
  for (int n = 0; n < count; ++n) {
    Tensor image = random_tensor(Shape{1, 3, 10, 10}, random);
    const std::span<float> x = image.values<float>();
    for (std::size_t i = 1; i < x.size(); ++i) x[i] = 0.7F * x[i - 1] + 0.5F * x[i];
    images.push_back(std::move(image));
  }
  return images;
}

}  // namespace pipit::internal::test
