// The inner loops of element-wise layers on f32.
#pragma once

#include "layers/cpu/vector/row_kernels.h"
#include "layers/ops/binary.h"
#include "layers/ops/unary.h"

namespace pipit::internal {

/// y[i] = f(x[i]) for all elements of the rows, which lie alike in x and y; y may be x. Against the exact value:
/// correctly rounded where one operation makes the function, else within the bounds of layers/cpu/vector/vector_math.h.
/// Requires a floating-point function.
void unary_span(const UnaryAttributes& attributes, const float* x, float* y, const SpanRows& span);

/// The loop over elements stored as T, Half or BFloat16, that needs no f32 copy of them, by the same arithmetic; null
/// where there is none.
template <typename T>
typename ActivationSpans<T>::Function stored_span(UnaryKind kind);

/// Elements data[0], data[stride], data[2 stride]… of a row, and where the next row begins.
struct StridedFloats {
  const float* data;
  std::int64_t stride;
  std::int64_t row_step = 0;
};

/// Whether binary_span knows the function: add, sub, mul, div, min, max, pow, prelu.
bool has_binary_span(BinaryKind kind);

/// y[i] = activation(f(a[i], b[i])) for all elements of the rows of y, the bits of the reference, but for pow, which is
/// within 1 ulp; y may be a or b where they lie alike.
void binary_span(const BinaryAttributes& attributes, StridedFloats a, StridedFloats b, float* y,
                 const SpanRows& span);

}  // namespace pipit::internal
