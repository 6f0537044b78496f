// Quantized convolutions that tests draw.
#pragma once

#include "layers/ops/qconv.h"
#include "tests/layers/quantized_operands.h"

namespace pipit::test {

struct QConvCase {
  QConvAttributes attributes;
  Shape x;
  Shape w;
  bool bias = true;
  bool residual = false;
};

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

}  // namespace pipit::test
