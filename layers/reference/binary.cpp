#include "layers/ops/binary.h"

#include <cmath>

#include "layers/common/dispatch.h"
#include "layers/common/integer.h"
#include "layers/common/layer_kernel.h"
#include "layers/common/scalar.h"
#include "layers/common/strided_loop.h"
#include "layers/ops/operands.h"
#include "layers/reference/reference.h"

namespace pipit::internal {

namespace {

// What the arithmetic is done in: double for floating point, int64 for the rest. Both hold every value of the
// narrower types, and an f32 sum, product or quotient rounded from double is the correctly rounded one.
template <typename T>
using Wide = std::conditional_t<std::is_floating_point_v<T>, double, std::int64_t>;

double arithmetic(BinaryKind kind, double a, double b) {
  switch (kind) {
    case BinaryKind::add:
      return a + b;
    case BinaryKind::sub:
      return a - b;
    case BinaryKind::mul:
      return a * b;
    case BinaryKind::div:
      return a / b;
    case BinaryKind::min:  // NaN if either is, as in NumPy
      return a < b || std::isnan(a) ? a : b;
    case BinaryKind::max:
      return a > b || std::isnan(a) ? a : b;
    case BinaryKind::mod: {
      const double r = std::fmod(a, b);
      return r != 0 && (r < 0) != (b < 0) ? r + b : r;
    }
    case BinaryKind::fmod:
      return std::fmod(a, b);
    case BinaryKind::prelu:
      return a < 0 ? a * b : a;
    default:
      fail("Binary {}: not defined on floating point", binary_name(kind));
  }
}

std::int64_t arithmetic(BinaryKind kind, std::int64_t a, std::int64_t b) {
  switch (kind) {
    case BinaryKind::add:
      return wrapping::add(a, b);
    case BinaryKind::sub:
      return wrapping::subtract(a, b);
    case BinaryKind::mul:
      return wrapping::multiply(a, b);
    case BinaryKind::div:
      return wrapping::divide(a, b);
    case BinaryKind::min:
      return std::min(a, b);
    case BinaryKind::max:
      return std::max(a, b);
    case BinaryKind::mod:
      return wrapping::modulo(a, b);
    case BinaryKind::fmod:
      return wrapping::remainder(a, b);
    case BinaryKind::prelu:
      return a < 0 ? wrapping::multiply(a, b) : a;
    case BinaryKind::logical_and:
      return a != 0 && b != 0;
    case BinaryKind::logical_or:
      return a != 0 || b != 0;
    case BinaryKind::logical_xor:
      return (a != 0) != (b != 0);
    default:
      fail("Binary {}: not defined on integers", binary_name(kind));
  }
}

template <typename W>
bool compare(BinaryKind kind, W a, W b) {
  switch (kind) {
    case BinaryKind::equal:
      return a == b;
    case BinaryKind::less:
      return a < b;
    case BinaryKind::less_equal:
      return a <= b;
    case BinaryKind::greater:
      return a > b;
    case BinaryKind::greater_equal:
      return a >= b;
    default:
      fail("Binary {}: not a comparison", binary_name(kind));
  }
}

template <typename A, typename B>
A power(A a, B b) {
  if constexpr (std::is_integral_v<A> && std::is_integral_v<B>) {
    return static_cast<A>(wrapping::power(a, b));
  } else {
    return saturate_cast<A>(std::pow(static_cast<double>(a), static_cast<double>(b)));
  }
}

// y[i] = f(a[i], b[i]) with broadcasting.
template <typename Y, typename A, typename B, typename F>
void map(std::span<const ConstTensorView> inputs, const TensorView& output, F f) {
  const auto loop = broadcast_loop<3>({&output.desc, &inputs[0].desc, &inputs[1].desc});
  const A* a = inputs[0].as<A>();
  const B* b = inputs[1].as<B>();
  Y* y = output.as<Y>();
  loop.for_each([&](const auto& at) { y[at[0]] = f(a[at[1]], b[at[2]]); });
}

void run_power(const Clamp& activation, std::span<const ConstTensorView> inputs, const TensorView& output) {
  with_dtype(inputs[0].desc.dtype, [&]<typename A>(std::type_identity<A>) {
    with_dtype(inputs[1].desc.dtype, [&]<typename B>(std::type_identity<B>) {
      map<A, A, B>(inputs, output, [&](A a, B b) {
        const A y = power(a, b);
        if constexpr (std::is_floating_point_v<A>) return activation(y);
        return y;
      });
    });
  });
}

void run_binary(const Binary& layer, std::span<const ConstTensorView> inputs,
                std::span<const TensorView> outputs, const RunContext& /*context*/) {
  const auto [kind, activation] = layer.attributes();
  if (kind == BinaryKind::pow) return run_power(activation, inputs, outputs[0]);
  with_dtype(inputs[0].desc.dtype, [&, k = kind, clamp = activation]<typename T>(std::type_identity<T>) {
    using W = Wide<T>;
    if (is_comparison(k)) {
      map<bool, T, T>(inputs, outputs[0], [&](T a, T b) { return compare<W>(k, a, b); });
    } else {
      map<T, T, T>(inputs, outputs[0], [&](T a, T b) {
        const W y = arithmetic(k, static_cast<W>(a), static_cast<W>(b));
        if constexpr (std::is_floating_point_v<T>) return clamp(static_cast<T>(y));
        return static_cast<T>(y);
      });
    }
  });
}

void run_where(const Where& /*layer*/, std::span<const ConstTensorView> inputs,
               std::span<const TensorView> outputs, const RunContext& /*context*/) {
  const TensorView& y = outputs[0];
  const auto loop = broadcast_loop<4>({&y.desc, &inputs[0].desc, &inputs[1].desc, &inputs[2].desc});
  const bool* condition = inputs[0].as<bool>();
  with_element_size(y.desc.dtype, [&](auto bytes) {
    loop.for_each([&](const auto& at) {
      const std::size_t choice = condition[at[1]] ? 1 : 2;
      std::memcpy(y.data + at[0] * static_cast<std::int64_t>(bytes),
                  inputs[choice].data + at[choice + 1] * static_cast<std::int64_t>(bytes), bytes);
    });
  });
}

}  // namespace

void register_reference_binary(Registry& registry) {
  add_layer_kernel<Binary>(registry, kReference, refuse_reduced_precision, run_binary);
  add_layer_kernel<Where>(registry, kReference, refuse_reduced_precision, run_where);
}

}  // namespace pipit::internal
