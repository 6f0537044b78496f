#include "layers/cpu/elementwise/elementwise_loops.h"
#include "layers/cpu/vector/row_kernels.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "engine/platform/simd.h"
#include "layers/cpu/vector/vector_math.h"

namespace pipit::internal {

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

// y[i] = a[i A]^b[i B], block by block and step by step: in one loop the compiler computes powers after the decisions
// that may make them needless, one by one. A single exponent is repeated, or the compiler would decide about it before
// the loop.
template <int A, int B>
PIPIT_INLINE inline void power_row(const float* a, const float* b, float* y, std::int64_t n) {
  constexpr std::int64_t kBlock = 128;
  double exponents[kBlock];
  float bases[kBlock], powers[kBlock], results[kBlock];
  for (std::int64_t first = 0; first < n; first += kBlock, a += kBlock * A, b += kBlock * B, y += kBlock) {
    const std::int64_t count = std::min(kBlock, n - first);
    for (std::int64_t i = 0; i < count; ++i) bases[i] = a[i * A];
    for (std::int64_t i = 0; i < count; ++i) powers[i] = b[i * B];
    for (std::int64_t i = 0; i < count; ++i) exponents[i] = vm::power_exponent(bases[i], powers[i]);
    for (std::int64_t i = 0; i < count; ++i) results[i] = static_cast<float>(vm::exp2(exponents[i]));
    for (std::int64_t i = 0; i < count; ++i) y[i] = vm::power_result(bases[i], powers[i], results[i]);
  }
}

PIPIT_INLINE inline void map_common_power(const float* x, float exponent, float* y, const SpanRows& span) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  // For -0 and -infinity pow() has other roots than sqrt().
  const auto root = [](float v) PIPIT_INLINE { return v == -kInfinity ? kInfinity : std::sqrt(v + 0.0F); };
  if (exponent == 2) return map(x, y, span, [](float v) PIPIT_INLINE { return v * v; });
  if (exponent == 3) return map(x, y, span, [](float v) PIPIT_INLINE { return v * v * v; });
  if (exponent == 0.5F) return map(x, y, span, [=](float v) PIPIT_INLINE { return root(v); });
  if (exponent == -0.5F) return map(x, y, span, [=](float v) PIPIT_INLINE { return 1.0F / root(v); });
  map(x, y, span, [](float v) PIPIT_INLINE { return 1.0F / v; });
}

// x^exponent: the powers that networks have by themselves, for they are far cheaper.
void power_span(const float* x, float exponent, float* y, const SpanRows& span) {
  for (const float common : {2.0F, 3.0F, 0.5F, -0.5F, -1.0F}) {
    if (exponent == common) return simd<map_common_power>(x, exponent, y, span);
  }
  for (std::int64_t r = 0; r < span.rows; ++r)
    simd<power_row<1, 0>>(x + r * span.step, &exponent, y + r * span.step, span.count);
}

// The sine, or of one quarter turn more the cosine, in blocks: one with a large angle is left to the C library.
PIPIT_INLINE inline void map_angles(const float* x, float* y, const SpanRows& span,
                                    std::int64_t quarter_turns) {
  constexpr std::int64_t kBlock = 64;
  for (std::int64_t r = span.rows; r > 0; --r, x += span.step, y += span.step) {
    for (std::int64_t first = 0; first < span.count; first += kBlock) {
      const std::int64_t end = std::min(span.count, first + kBlock);
      int large = 0;
      for (std::int64_t i = first; i < end; ++i) large |= std::abs(x[i]) > vm::kLargestAngle ? 1 : 0;
      if (large == 0) {
        PIPIT_INDEPENDENT
        for (std::int64_t i = first; i < end; ++i) y[i] = vm::sine(x[i], quarter_turns);
      } else {
        for (std::int64_t i = first; i < end; ++i)
          y[i] = quarter_turns == 0 ? std::sin(x[i]) : std::cos(x[i]);
      }
    }
  }
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
    case UnaryKind::log:
      return map(x, y, span, [](float v) PIPIT_INLINE { return vm::log(v); });
    case UnaryKind::sqrt:
      return map(x, y, span, [](float v) PIPIT_INLINE { return std::sqrt(v); });
    case UnaryKind::reciprocal:
      return map(x, y, span, [](float v) PIPIT_INLINE { return 1.0F / v; });
    case UnaryKind::softplus:
      return map(x, y, span, [](float v) PIPIT_INLINE {
        return (v < 0.0F ? 0.0F : v) + vm::log1p_of_fraction(vm::exp(-std::abs(v)));
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
    // By bits for the same reason: what is not 0 lies above or below it.
    case UnaryKind::floor:
      return map(x, y, span, [](float v) PIPIT_INLINE {
        return std::bit_cast<std::uint32_t>(v) - 0x80000001U < 0x7fffffU ? -1.0F : std::floor(v);
      });
    case UnaryKind::ceil:
      return map(x, y, span, [](float v) PIPIT_INLINE {
        return std::bit_cast<std::uint32_t>(v) - 1U < 0x7fffffU ? 1.0F : std::ceil(v);
      });
    case UnaryKind::round:
      return map(x, y, span, [](float v) PIPIT_INLINE { return std::nearbyint(v); });
    default:
      break;
  }
  fail("Unary {}: not defined on f32", unary_name(attributes.kind));
}

}  // namespace

void unary_span(const UnaryAttributes& attributes, const float* x, float* y, const SpanRows& span) {
  switch (attributes.kind) {
    case UnaryKind::sigmoid:
      return row_kernels().f32.activations.sigmoid(x, y, span);
    case UnaryKind::silu:
      return row_kernels().f32.activations.silu(x, y, span);
    case UnaryKind::hard_swish:
      return row_kernels().f32.activations.hard_swish(x, y, span);
    case UnaryKind::gelu:
      return row_kernels().f32.activations.gelu(x, y, span);
    case UnaryKind::exp:
      return row_kernels().f32.activations.exp(x, y, span);
    case UnaryKind::tanh:
      return row_kernels().f32.activations.tanh(x, y, span);
    case UnaryKind::erf:
      return row_kernels().f32.activations.erf(x, y, span);
    // Loops of their own: beside many others the compiler leaves those of double precision scalar.
    case UnaryKind::sin:
      return simd<map_angles>(x, y, span, 0);
    case UnaryKind::cos:
      return simd<map_angles>(x, y, span, 1);
    case UnaryKind::tan:
    case UnaryKind::asin:
    case UnaryKind::acos:
    case UnaryKind::atan:
    case UnaryKind::sinh:
    case UnaryKind::cosh:
    case UnaryKind::asinh:
    case UnaryKind::acosh:
    case UnaryKind::atanh:
    case UnaryKind::shrink:
      return map(x, y, span, [&](float v) { return static_cast<float>(unary_value(attributes, v)); });
    case UnaryKind::pow:
      return power_span(x, static_cast<float>(attributes.alpha), y, span);
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

template <typename T>
typename ActivationSpans<T>::Function stored_span(UnaryKind kind) {
  switch (kind) {
    case UnaryKind::sigmoid:
      return stored_kernels<T>().activations.sigmoid;
    case UnaryKind::silu:
      return stored_kernels<T>().activations.silu;
    case UnaryKind::hard_swish:
      return stored_kernels<T>().activations.hard_swish;
    case UnaryKind::gelu:
      return stored_kernels<T>().activations.gelu;
    case UnaryKind::exp:
      return stored_kernels<T>().activations.exp;
    case UnaryKind::tanh:
      return stored_kernels<T>().activations.tanh;
    case UnaryKind::erf:
      return stored_kernels<T>().activations.erf;
    default:
      return nullptr;
  }
}

template ActivationSpans<Half>::Function stored_span<Half>(UnaryKind);
template ActivationSpans<BFloat16>::Function stored_span<BFloat16>(UnaryKind);

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

void power_rows(const Clamp& activation, StridedFloats a, StridedFloats b, float* y, const SpanRows& span) {
  const UnaryAttributes clamp{UnaryKind::clip, activation.low, activation.high};
  for (std::int64_t r = 0; r < span.rows; ++r, a.data += a.row_step, b.data += b.row_step, y += span.step) {
    if (a.stride == 1 && b.stride == 1) {
      simd<power_row<1, 1>>(a.data, b.data, y, span.count);
    } else if (a.stride == 1 && b.stride == 0) {
      simd<power_row<1, 0>>(a.data, b.data, y, span.count);
    } else if (a.stride == 0 && b.stride == 1) {
      simd<power_row<0, 1>>(a.data, b.data, y, span.count);
    } else {
      for (std::int64_t i = 0; i < span.count; ++i)
        y[i] = vm::pow(a.data[i * a.stride], b.data[i * b.stride]);
    }
    if (!activation.is_identity()) unary_span(clamp, y, y, {span.count});
  }
}

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
  if (attributes.kind == BinaryKind::pow) return power_rows(attributes.activation, a, b, y, span);
  simd<binary_loops>(attributes, a, b, y, span);
}

}  // namespace pipit::internal
