#include "layers/cpu/elementwise/elementwise_loops.h"
#include "layers/cpu/vector/row_kernels.h"

#include <bit>
#include <cmath>
#include <cstdint>

#include "engine/platform/simd.h"
#include "layers/cpu/vector/vector_math.h"

namespace pipit {

namespace {

namespace vm = vector_math;

template <typename F>
PIPIT_INLINE inline void map(const float* x, float* y, const SpanRows& span, F f) {
  const std::int64_t n = span.count;
  const std::int64_t step = span.step;
  for (std::int64_t r = span.rows; r > 0; --r, x += step, y += step) {
    PIPIT_INDEPENDENT
    for (std::int64_t i = 0; i < n; ++i) y[i] = f(x[i]);
  }
}

// min(max(x, low), high), NaN for NaN.
PIPIT_INLINE inline float clip(float x, float low, float high) {
  x = x < low ? low : x;
  return x > high ? high : x;
}

// x^exponent: the powers that networks have by themselves, for they are far cheaper.
PIPIT_INLINE inline void map_power(const float* x, float exponent, float* y, const SpanRows& span) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  // Of -0 and -infinity pow() has other roots than sqrt().
  const auto root = [](float v) PIPIT_INLINE { return v == -kInfinity ? kInfinity : std::sqrt(v + 0.0F); };
  if (exponent == 2) return map(x, y, span, [](float v) PIPIT_INLINE { return v * v; });
  if (exponent == 3) return map(x, y, span, [](float v) PIPIT_INLINE { return v * v * v; });
  if (exponent == 0.5F) return map(x, y, span, [=](float v) PIPIT_INLINE { return root(v); });
  if (exponent == -0.5F) return map(x, y, span, [=](float v) PIPIT_INLINE { return 1.0F / root(v); });
  if (exponent == -1) return map(x, y, span, [](float v) PIPIT_INLINE { return 1.0F / v; });
  map(x, y, span, [=](float v) PIPIT_INLINE { return vm::pow(v, exponent); });
}

PIPIT_INLINE inline void unary_loops(const UnaryAttributes& attributes, const float* x, float* y,
                                     const SpanRows& span) {
  const auto alpha = static_cast<float>(attributes.alpha);
  const auto beta = static_cast<float>(attributes.beta);
  switch (attributes.kind) {
    case UnaryKind::relu:
      return map(x, y, span, [](float v) PIPIT_INLINE { return v < 0.0F ? 0.0F : v; });
    case UnaryKind::leaky_relu:
      return map(x, y, span, [=](float v) PIPIT_INLINE {
        const float scaled = alpha * v;
        return v < 0.0F ? scaled : v;
      });
    case UnaryKind::elu:
      return map(x, y, span, [=](float v) PIPIT_INLINE {
        const float negative = alpha * vm::expm1(v);
        return v < 0.0F ? negative : v;
      });
    case UnaryKind::selu:
      return map(x, y, span, [=](float v) PIPIT_INLINE {
        const float negative = alpha * vm::expm1(v);
        return beta * (v < 0.0F ? negative : v);
      });
    case UnaryKind::celu:
      return map(x, y, span, [=](float v) PIPIT_INLINE {
        const float negative = alpha * vm::expm1(v / alpha);
        return v < 0.0F ? negative : v;
      });
    case UnaryKind::thresholded_relu:
      return map(x, y, span, [=](float v) PIPIT_INLINE { return v <= alpha ? 0.0F : v; });
    case UnaryKind::clip:
      return map(x, y, span, [=](float v) PIPIT_INLINE { return clip(v, alpha, beta); });
    case UnaryKind::tanh:
      return map(x, y, span, [](float v) PIPIT_INLINE { return vm::tanh(v); });
    case UnaryKind::hard_sigmoid:
      return map(x, y, span, [=](float v) PIPIT_INLINE { return clip(alpha * v + beta, 0.0F, 1.0F); });
    case UnaryKind::swish:
      return map(x, y, span, [=](float v) PIPIT_INLINE { return v / (1.0F + vm::exp(-alpha * v)); });
    case UnaryKind::mish:
      // tanh(ln(1 + e^x)) = p / (p + 2) with p = e^x (e^x + 2); it rounds to 1 from x = 20 on.
      return map(x, y, span, [](float v) PIPIT_INLINE {
        const float e = vm::exp(v > 20.0F ? 20.0F : v);
        const float p = e * (e + 2.0F);
        return v * (p / (p + 2.0F));
      });
    case UnaryKind::gelu_tanh:
      return map(x, y, span, [](float v) PIPIT_INLINE {
        const float inner = 0.797884561F * (v + 0.044715F * v * v * v);
        return 0.5F * v * (1.0F + vm::tanh(inner));
      });
    case UnaryKind::erf:
      return map(x, y, span, [](float v) PIPIT_INLINE { return vm::erf(v); });
    case UnaryKind::exp:
      return map(x, y, span, [](float v) PIPIT_INLINE { return vm::exp(v); });
    case UnaryKind::log:
      return map(x, y, span, [](float v) PIPIT_INLINE { return std::log(v); });
    case UnaryKind::sqrt:
      return map(x, y, span, [](float v) PIPIT_INLINE { return std::sqrt(v); });
    case UnaryKind::reciprocal:
      return map(x, y, span, [](float v) PIPIT_INLINE { return 1.0F / v; });
    case UnaryKind::softplus:
      return map(x, y, span, [](float v) PIPIT_INLINE {
        return (v < 0.0F ? 0.0F : v) + std::log1p(vm::exp(-std::abs(v)));
      });
    case UnaryKind::softsign:
      return map(x, y, span, [](float v) PIPIT_INLINE { return v / (1.0F + std::abs(v)); });
    case UnaryKind::neg:
      return map(x, y, span, [](float v) PIPIT_INLINE { return -v; });
    case UnaryKind::abs:
      return map(x, y, span, [](float v) PIPIT_INLINE { return std::abs(v); });
    case UnaryKind::sign:
      // By bits: workers take denormals for zeros when they compare.
      return map(x, y, span, [](float v) PIPIT_INLINE {
        const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(v) & 0x7fffffffU;
        const bool zero_or_nan = magnitude - 1U >= 0x7f800000U;
        return zero_or_nan ? v : std::copysign(1.0F, v);
      });
    case UnaryKind::floor:
      return map(x, y, span, [](float v) PIPIT_INLINE { return std::floor(v); });
    case UnaryKind::ceil:
      return map(x, y, span, [](float v) PIPIT_INLINE { return std::ceil(v); });
    case UnaryKind::round:
      return map(x, y, span, [](float v) PIPIT_INLINE { return std::nearbyint(v); });
    case UnaryKind::sin:
      return map(x, y, span, [](float v) PIPIT_INLINE { return std::sin(v); });
    case UnaryKind::cos:
      return map(x, y, span, [](float v) PIPIT_INLINE { return std::cos(v); });
    case UnaryKind::pow:
      return map_power(x, alpha, y, span);
    default:
      break;
  }
  fail("Unary {}: not defined on f32", unary_name(attributes.kind));
}

}  // namespace

void unary_span(const UnaryAttributes& attributes, const float* x, float* y, const SpanRows& span) {
  switch (attributes.kind) {
    case UnaryKind::sigmoid:
      return row_kernels().activations_f32.sigmoid(x, y, span);
    case UnaryKind::silu:
      return row_kernels().activations_f32.silu(x, y, span);
    case UnaryKind::hard_swish:
      return row_kernels().activations_f32.hard_swish(x, y, span);
    case UnaryKind::gelu:
      return row_kernels().activations_f32.gelu(x, y, span);
    default:
      return simd<unary_loops>(attributes, x, y, span);
  }
}

namespace {

// A row. The cases that vectorize, and any other: two rows, a row and one value, one value and a row.
template <typename F>
PIPIT_INLINE inline void map_row(StridedFloats a, StridedFloats b, float* y, std::int64_t n, F f) {
  const float* p = a.data;
  const float* q = b.data;
  if (a.stride == 1 && b.stride == 1) {
    PIPIT_INDEPENDENT
    for (std::int64_t i = 0; i < n; ++i) y[i] = f(p[i], q[i]);
  } else if (a.stride == 1 && b.stride == 0) {
    const float value = *q;
    PIPIT_INDEPENDENT
    for (std::int64_t i = 0; i < n; ++i) y[i] = f(p[i], value);
  } else if (a.stride == 0 && b.stride == 1) {
    const float value = *p;
    PIPIT_INDEPENDENT
    for (std::int64_t i = 0; i < n; ++i) y[i] = f(value, q[i]);
  } else {
    for (std::int64_t i = 0; i < n; ++i) y[i] = f(p[i * a.stride], q[i * b.stride]);
  }
}

template <typename F>
PIPIT_INLINE inline void map(StridedFloats a, StridedFloats b, float* y, const SpanRows& span,
                             const Clamp& activation, F f) {
  const bool clips = !activation.is_identity();
  for (std::int64_t r = span.rows; r > 0; --r) {
    if (clips) {
      map_row(a, b, y, span.count,
              [f, low = activation.low, high = activation.high](float u, float v)
                  PIPIT_INLINE { return clip(f(u, v), low, high); });
    } else {
      map_row(a, b, y, span.count, f);
    }
    a.data += a.row_step;
    b.data += b.row_step;
    y += span.step;
  }
}

}  // namespace

ActivationSpans<Half>::Function half_span(UnaryKind kind) {
  switch (kind) {
    case UnaryKind::sigmoid:
      return row_kernels().activations_f16.sigmoid;
    case UnaryKind::silu:
      return row_kernels().activations_f16.silu;
    case UnaryKind::hard_swish:
      return row_kernels().activations_f16.hard_swish;
    case UnaryKind::gelu:
      return row_kernels().activations_f16.gelu;
    default:
      return nullptr;
  }
}

bool has_binary_span(BinaryKind kind) {
  switch (kind) {
    case BinaryKind::add:
    case BinaryKind::sub:
    case BinaryKind::mul:
    case BinaryKind::div:
    case BinaryKind::min:
    case BinaryKind::max:
    case BinaryKind::pow:
    case BinaryKind::prelu:
      return true;
    default:
      return false;
  }
}

namespace {

PIPIT_INLINE inline void binary_loops(const BinaryAttributes& attributes, StridedFloats a, StridedFloats b,
                                      float* y, const SpanRows& span) {
  const Clamp& activation = attributes.activation;
  switch (attributes.kind) {
    case BinaryKind::add:
      return map(a, b, y, span, activation, [](float u, float v) PIPIT_INLINE { return u + v; });
    case BinaryKind::sub:
      return map(a, b, y, span, activation, [](float u, float v) PIPIT_INLINE { return u - v; });
    case BinaryKind::mul:
      return map(a, b, y, span, activation, [](float u, float v) PIPIT_INLINE { return u * v; });
    case BinaryKind::div:
      return map(a, b, y, span, activation, [](float u, float v) PIPIT_INLINE { return u / v; });
    case BinaryKind::min:  // NaN if either operand is
      return map(a, b, y, span, activation,
                 [](float u, float v) PIPIT_INLINE { return u < v || u != u ? u : v; });
    case BinaryKind::max:
      return map(a, b, y, span, activation,
                 [](float u, float v) PIPIT_INLINE { return u > v || u != u ? u : v; });
    case BinaryKind::pow:
      return map(a, b, y, span, activation, [](float u, float v) PIPIT_INLINE { return vm::pow(u, v); });
    case BinaryKind::prelu:
      return map(a, b, y, span, activation, [](float u, float v) PIPIT_INLINE {
        const float scaled = u * v;
        return u < 0.0F ? scaled : u;
      });
    default:
      fail("Binary {}: no vector loop", binary_name(attributes.kind));
  }
}

}  // namespace

void binary_span(const BinaryAttributes& attributes, StridedFloats a, StridedFloats b, float* y,
                 const SpanRows& span) {
  simd<binary_loops>(attributes, a, b, y, span);
}

}  // namespace pipit
