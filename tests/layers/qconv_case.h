// Quantized convolutions that tests draw.
#pragma once

#include "layers/ops/qconv.h"
#include "tests/layers/quantized_operands.h"

namespace pipit::internal::test {

struct QConvCase {
  QConvAttributes attributes;
  Shape x;
  Shape w;
  bool bias = true;
  bool residual = false;
};

/// One that Winograd takes, as long as its weights are dense.
inline QConvCase random_winograd_case(Random& random) {
  QConvCase c;
  Window& window = c.attributes.conv.window;
  window.kernel = {3, 3, 1};
  for (std::size_t axis = 0; axis < 2; ++axis) {
    window.pad_begin[axis] = random.integer(0, 2);
    window.pad_end[axis] = random.integer(0, 2);
  }
  c.x = Shape{3, random.integer(16, 70), random.integer(7, 22), random.integer(7, 22)};
  c.w = Shape{random.integer(16, 70), c.x[1], 3, 3};
  c.attributes.x = {0.02F, static_cast<int>(random.integer(0, 255)), DType::u8};
  c.attributes.residual = {0.3F, static_cast<int>(random.integer(0, 255)), DType::u8};
  c.attributes.y = {1.0F, static_cast<int>(random.integer(0, 255)), DType::u8};
  for (std::int64_t o = 0; o < c.w[0]; ++o)
    c.attributes.weight_scales.push_back(static_cast<float>(random.real(0.01, 1)));
  c.bias = random.coin();
  c.residual = random.coin();
  if (random.coin()) c.attributes.conv.activation = random.coin() ? Clamp::relu() : Clamp{-1.5F, 2.25F};
  return c;
}

/// Operands on which every kernel must give the reference's bits.
inline Conformance conformance_of(const QConvCase& c, Random& random) {
  Conformance conformance;
  conformance.inputs = {
      integers(random, c.x, c.attributes.x), {random.tensor(c.w, -127, 127.999, DType::i8), true}, {}, {}};
  if (c.bias) conformance.inputs[2] = {random.tensor(Shape{c.w[0]}, -3000, 3000, DType::i32), true};
  if (c.residual)
    conformance.inputs[3] =
        integers(random, window_output_shape(c.attributes.conv.window, c.x, c.w[0]), c.attributes.residual);
  conformance.expected = {"tile", "reference"};
  return conformance;
}

}  // namespace pipit::internal::test
