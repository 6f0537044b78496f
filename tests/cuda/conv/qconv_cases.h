// Random INT8 convolutions for the tests of the GPU's kernels.
#pragma once

#include <optional>
#include <set>
#include <string>

#include "layers/ops/qconv.h"
#include "layers/ops/qunary.h"
#include "tests/cuda/conv/pruned_weights.h"
#include "tests/cuda/quantized_cases.h"

namespace pipit::internal::test {

struct ConvCase {
  QConvAttributes attributes;
  Shape x, weights;
  bool bias = true, residual = false;
  int largest_weight = 127;
  int largest_bias = 3000;
  std::int64_t pruned_block = 0;   // weights are pruned_weights() of this many channels; 0: none is
  std::optional<QUnary> follower;  // that the kernel computes as well
};

inline Shape output_of(const ConvCase& c) {
  return window_output_shape(c.attributes.conv.window, c.x, c.weights[0]);
}

// y's scale for which some outputs saturate and most do not.
inline void fit_output_scale(ConvCase& c) {
  const double depth = static_cast<double>(c.weights.elements()) / static_cast<double>(c.weights[0]);
  c.attributes.y.scale = static_cast<float>(0.02 * std::sqrt(depth) * 0.05 * 73 * 42);
}

inline ConvCase random_case(Numbers& numbers, std::int64_t channels, std::int64_t filters,
                            std::int64_t groups) {
  ConvCase c;
  Window& window = c.attributes.conv.window;
  const auto pick = [&](std::int64_t low, std::int64_t high) { return numbers.pick(low, high); };
  const std::array<std::int64_t, 2> extent = random_window(window, pick, 15);
  c.attributes.conv.groups = groups;
  c.x = Shape{numbers.pick(1, 2), channels * groups, extent[0], extent[1]};
  c.weights = Shape{filters * groups, channels, window.kernel[0], window.kernel[1]};
  c.attributes.x = c.attributes.residual = c.attributes.y = kI8;
  fit_output_scale(c);
  for (std::int64_t o = 0; o < c.weights[0]; ++o)
    c.attributes.weight_scales.push_back(0.001F * static_cast<float>(numbers.pick(1, 40)));
  c.bias = numbers.coin();
  c.residual = numbers.coin();
  if (numbers.coin()) c.attributes.conv.activation = numbers.coin() ? Clamp::relu() : Clamp{-1.5F, 2.25F};
  return c;
}

// Real results, in the units of y's steps before.
inline void keep_real(ConvCase& c) {
  const float scale = c.attributes.y.scale;
  c.attributes.y = kReal;
  c.attributes.y.scale = scale;
}

// A function of y's integers, for half of the cases.
inline void maybe_follow(ConvCase& c, Numbers& numbers) {
  if (numbers.coin()) return;
  const UnaryKind kinds[] = {UnaryKind::silu, UnaryKind::sigmoid, UnaryKind::hard_swish, UnaryKind::gelu};
  Quantization y = kTypes[c.attributes.y.dtype == DType::i8 ? 0 : 2];
  y.scale = 0.04F;
  c.follower.emplace(QUnaryAttributes{{kinds[numbers.pick(0, 3)]}, c.attributes.y, y});
}

inline GpuCase make_case(const ConvCase& c, Numbers& numbers, Layout input = kLast,
                         Precision precision = Precision::fp32) {
  GpuCase test = exact_case();
  test.precision = precision;
  if (c.follower) test.followers = {&*c.follower};
  test.inputs = {{numbers.quantized(c.x, c.attributes.x), input},
                 {numbers.integers<std::int8_t>(c.weights, -c.largest_weight, c.largest_weight),
                  Layout::row_major, true}};
  if (c.pruned_block > 0)
    test.inputs[1].tensor = pruned_weights(*test.inputs[1].tensor, c.pruned_block, numbers.random);
  if (c.bias || c.residual) test.inputs.push_back({});
  if (c.bias)
    test.inputs[2] = {numbers.integers<std::int32_t>(Shape{c.weights[0]}, -c.largest_bias, c.largest_bias),
                      Layout::row_major, true};
  if (c.residual) test.inputs.push_back({numbers.quantized(output_of(c), c.attributes.residual), kLast});
  return test;
}

// ways: where given, the case runs in each of the candidate's variants, whose names without "+overlap" are added.
inline void expect_conv(const std::string& candidate, const ConvCase& c, Numbers& numbers,
                        Layout input = kLast, Precision precision = Precision::fp32,
                        std::set<std::string>* ways = nullptr) {
  GpuCase test = make_case(c, numbers, input, precision);
  const QConv layer(c.attributes);
  if (ways == nullptr) return expect_gpu(layer, candidate, test);
  for (const std::string& way : gpu_variants(layer, candidate, test)) {
    test.variant = way;
    ways->insert(way.substr(0, way.find('+')));
    expect_gpu(layer, candidate, test);
  }
}

}  // namespace pipit::internal::test
