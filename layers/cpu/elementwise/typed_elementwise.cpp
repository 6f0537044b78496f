// Element-wise layers on types other than f32, and those whose result has another type: arithmetic of integers,
// comparisons, logic, remainders, Where, Cast. Loops that few networks have: they are left to the compiler.
#include <cmath>
#include <limits>

#include "engine/platform/compact_simd.h"
#include "layers/common/dispatch.h"
#include "layers/common/integer.h"
#include "layers/common/layer_kernel.h"
#include "layers/common/scalar.h"
#include "layers/common/strided_loop.h"
#include "layers/cpu/elementwise/typed_rows.h"
#include "layers/cpu/families.h"
#include "layers/cpu/work_sharing.h"
#include "layers/ops/binary.h"
#include "layers/ops/cast.h"
#include "layers/ops/operands.h"
#include "layers/ops/unary.h"

namespace pipit::internal {

namespace {

// ---- Binary

// Results of the narrower integers are those of int64, cut off; f64 and the remainders of f32 are computed as they are.
// fmod() of f32 where the quotient is below 2^28: in double it and its product with b are exact, and so is the
// difference; a quotient that was rounded up to an integer is one too many. `by_divisor`: with the sign of b.
constexpr double kMaxQuotient = 0x1p28;
PIPIT_INLINE inline float remainder_of(float a, float b, bool by_divisor) {
  const double u = a, v = b;
  const double q = std::trunc(u / v);
  double r = u - q * v;
  r = (r < 0) != (u < 0) && r != 0 ? r + std::copysign(v, u) : r;
  const bool turn = by_divisor && r != 0 && (r < 0) != (v < 0);
  r = turn ? r + v : r;
  return static_cast<float>(r == 0 ? std::copysign(0.0, u) : r);
}

PIPIT_INLINE inline void remainder_row(bool by_divisor, Strided<float> a, Strided<float> b, float* y,
                                       std::int64_t n) {
  map_typed(a, b, y, n, [=](float u, float v) PIPIT_INLINE { return remainder_of(u, v, by_divisor); });
}

PIPIT_INLINE inline bool has_large_quotient(Strided<float> a, Strided<float> b, std::int64_t n) {
  int large = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const double v = b.data[i * b.stride];
    const double q = std::abs(a.data[i * a.stride] / v);
    const bool finite = std::abs(v) <= static_cast<double>(std::numeric_limits<float>::max());
    large |= q < kMaxQuotient && finite ? 0 : 1;  // NaN and infinity are left to fmod() as well
  }
  return large != 0;
}

template <typename T>
PIPIT_INLINE inline void arithmetic_row(BinaryKind kind, Strided<T> a, Strided<T> b, T* y, std::int64_t n) {
  if constexpr (std::is_floating_point_v<T>) {
    switch (kind) {
      case BinaryKind::mod:
        return map_typed(a, b, y, n, [](T u, T v) PIPIT_INLINE {
          const T r = std::fmod(u, v);
          return r != 0 && (r < 0) != (v < 0) ? r + v : r;
        });
      case BinaryKind::fmod:
        return map_typed(a, b, y, n, [](T u, T v) PIPIT_INLINE { return std::fmod(u, v); });
      default:
        break;
    }
  } else {
    using I = std::int64_t;
    const auto all = [&](auto f) PIPIT_INLINE {
      map_typed(a, b, y, n, [f](T u, T v) PIPIT_INLINE { return static_cast<T>(f(I{u}, I{v})); });
    };
    switch (kind) {
      case BinaryKind::add:
        return all([](I u, I v) PIPIT_INLINE { return wrapping::add(u, v); });
      case BinaryKind::sub:
        return all([](I u, I v) PIPIT_INLINE { return wrapping::subtract(u, v); });
      case BinaryKind::mul:
        return all([](I u, I v) PIPIT_INLINE { return wrapping::multiply(u, v); });
      case BinaryKind::div:
        return all([](I u, I v) PIPIT_INLINE { return wrapping::divide(u, v); });
      case BinaryKind::mod:
        return all([](I u, I v) PIPIT_INLINE { return wrapping::modulo(u, v); });
      case BinaryKind::fmod:
        return all([](I u, I v) PIPIT_INLINE { return wrapping::remainder(u, v); });
      case BinaryKind::pow:
        return all([](I u, I v) PIPIT_INLINE { return wrapping::power(u, v); });
      case BinaryKind::prelu:
        return all([](I u, I v) PIPIT_INLINE { return u < 0 ? wrapping::multiply(u, v) : u; });
      case BinaryKind::min:
        return map_typed(a, b, y, n, [](T u, T v) PIPIT_INLINE { return u < v ? u : v; });
      case BinaryKind::max:
        return map_typed(a, b, y, n, [](T u, T v) PIPIT_INLINE { return u > v ? u : v; });
      default:
        break;
    }
  }
  fail("Binary {}: no loop for this type", binary_name(kind));
}

template <typename T>
PIPIT_INLINE inline void comparison_row(BinaryKind kind, Strided<T> a, Strided<T> b, std::uint8_t* y,
                                        std::int64_t n) {
  using U = std::uint8_t;
  switch (kind) {
    case BinaryKind::equal:
      return map_typed(a, b, y, n, [](T u, T v) PIPIT_INLINE { return static_cast<U>(u == v); });
    case BinaryKind::less:
      return map_typed(a, b, y, n, [](T u, T v) PIPIT_INLINE { return static_cast<U>(u < v); });
    case BinaryKind::less_equal:
      return map_typed(a, b, y, n, [](T u, T v) PIPIT_INLINE { return static_cast<U>(u <= v); });
    case BinaryKind::greater:
      return map_typed(a, b, y, n, [](T u, T v) PIPIT_INLINE { return static_cast<U>(u > v); });
    case BinaryKind::greater_equal:
      return map_typed(a, b, y, n, [](T u, T v) PIPIT_INLINE { return static_cast<U>(u >= v); });
    default:
      fail("Binary {}: not a comparison", binary_name(kind));
  }
}

PIPIT_INLINE inline void logic_row(BinaryKind kind, Strided<std::uint8_t> a, Strided<std::uint8_t> b,
                                   std::uint8_t* y, std::int64_t n) {
  using U = std::uint8_t;
  switch (kind) {
    case BinaryKind::logical_and:
      return map_typed(a, b, y, n, [](U u, U v) PIPIT_INLINE { return static_cast<U>(u != 0 && v != 0); });
    case BinaryKind::logical_or:
      return map_typed(a, b, y, n, [](U u, U v) PIPIT_INLINE { return static_cast<U>((u | v) != 0); });
    case BinaryKind::logical_xor:
      return map_typed(a, b, y, n,
                       [](U u, U v) PIPIT_INLINE { return static_cast<U>((u != 0) != (v != 0)); });
    default:
      fail("Binary {}: not defined on bool", binary_name(kind));
  }
}

// The element type that memory of the layer's is read as.
template <typename T>
using Stored = std::conditional_t<std::is_same_v<T, bool>, std::uint8_t, T>;

bool is_logic(BinaryKind kind) {
  return kind == BinaryKind::logical_and || kind == BinaryKind::logical_or || kind == BinaryKind::logical_xor;
}

template <typename T>
void binary_row(BinaryKind kind, Strided<T> a, Strided<T> b, std::byte* y, std::int64_t n) {
  if constexpr (std::is_same_v<T, float>) {
    const bool remainder = kind == BinaryKind::mod || kind == BinaryKind::fmod;
    if (remainder && !compact_simd<has_large_quotient>(a, b, n))
      return compact_simd<remainder_row>(kind == BinaryKind::mod, a, b, reinterpret_cast<T*>(y), n);
  }
  if (is_comparison(kind))
    return compact_simd<comparison_row<T>>(kind, a, b, reinterpret_cast<std::uint8_t*>(y), n);
  if constexpr (std::is_same_v<T, std::uint8_t>) {
    if (is_logic(kind)) return compact_simd<logic_row>(kind, a, b, reinterpret_cast<T*>(y), n);
  }
  arithmetic_row<T>(kind, a, b, reinterpret_cast<T*>(y), n);
}

Refusal refuse_binary(const NodeSpec& spec) {
  if (Refusal reason = refuse_reduced_precision(spec)) return reason;
  const auto& [kind, activation] = layer_as<Binary>(spec.layer).attributes();
  const DType a = spec.inputs[0]->dtype;
  if (a != spec.inputs[1]->dtype) return "the operands have two types";
  if (is_stored_float(a)) return "16 bits are stored, not computed with";
  const bool remainder = kind == BinaryKind::mod || kind == BinaryKind::fmod;
  if (is_floating(a) && !is_comparison(kind) && !remainder) return "floating-point arithmetic";
  if (is_floating(a) && !activation.is_identity()) return "an activation is fused";
  if (a == DType::boolean && !is_comparison(kind) && !is_logic(kind)) return "arithmetic of bool";
  return std::nullopt;
}

class TypedBinary final : public Kernel {
 public:
  explicit TypedBinary(const NodeSpec& spec)
      : kind_(layer_as<Binary>(spec.layer).attributes().kind),
        loop_(broadcast_loop<3>({&spec.outputs[0], spec.inputs[0], spec.inputs[1]})) {}

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const auto step = loop_.row_strides();
    const auto y_bytes = static_cast<std::int64_t>(dtype_bytes(outputs[0].desc.dtype));
    with_dtype(inputs[0].desc.dtype, [&]<typename Element>(std::type_identity<Element>) {
      using T = Stored<Element>;
      const auto* a = reinterpret_cast<const T*>(inputs[0].data);
      const auto* b = reinterpret_cast<const T*>(inputs[1].data);
      parallel_chunks(context.pool, loop_.size(), kChunkBytes / 8, [&](std::int64_t begin, std::int64_t end) {
        loop_.for_each_run(begin, end, [&](const auto& at, std::int64_t count) {
          binary_row<T>(kind_, {a + at[1], step[1]}, {b + at[2], step[2]}, outputs[0].data + at[0] * y_bytes,
                        count);
        });
      });
    });
  }

 private:
  BinaryKind kind_;
  StridedLoop<3> loop_;
};

// ---- Unary

template <typename T>
PIPIT_INLINE inline void unary_row(const UnaryAttributes& attributes, const T* x, T* y, std::int64_t n) {
  const auto all = [&](auto f) PIPIT_INLINE {
    PIPIT_INDEPENDENT
    for (std::int64_t i = 0; i < n; ++i) y[i] = static_cast<T>(f(x[i]));
  };
  const T low = saturate_cast<T>(attributes.alpha), high = saturate_cast<T>(attributes.beta);
  switch (attributes.kind) {
    case UnaryKind::relu:
      return all([](T v) PIPIT_INLINE { return v < 0 ? T{0} : v; });
    case UnaryKind::clip:
      return all([=](T v) PIPIT_INLINE {
        const T above = v < low ? low : v;
        return above > high ? high : above;
      });
    case UnaryKind::neg:
      return all([](T v) PIPIT_INLINE { return wrapping::subtract(0, v); });
    case UnaryKind::abs:
      return all([](T v) PIPIT_INLINE { return wrapping::absolute(v); });
    case UnaryKind::sign:
      return all([](T v) PIPIT_INLINE { return (v > 0) - (v < 0); });
    case UnaryKind::floor:
    case UnaryKind::ceil:
    case UnaryKind::round:
      return all([](T v) PIPIT_INLINE { return v; });
    default:
      fail("Unary {}: not defined on integers", unary_name(attributes.kind));
  }
}

void not_row(const std::uint8_t* x, std::uint8_t* y, std::int64_t n) {
  PIPIT_INDEPENDENT
  for (std::int64_t i = 0; i < n; ++i) y[i] = x[i] == 0;
}

bool same_order(const NodeSpec& spec) {
  return spec.inputs[0]->layout == spec.outputs[0].layout || spec.outputs[0].layouts_coincide();
}

Refusal refuse_unary(const NodeSpec& spec) {
  if (Refusal reason = refuse_reduced_precision(spec)) return reason;
  const DType type = spec.outputs[0].dtype;
  if (is_floating(type) || is_stored_float(type)) return "floating point";
  if (!same_order(spec)) return "input and output have different layouts";
  return std::nullopt;
}

void run_unary(const Unary& layer, std::span<const ConstTensorView> inputs,
               std::span<const TensorView> outputs, const RunContext& context) {
  with_dtype(outputs[0].desc.dtype, [&]<typename T>(std::type_identity<T>) {
    parallel_chunks(
        context.pool, outputs[0].desc.elements(), kChunkBytes / 8, [&](std::int64_t begin, std::int64_t end) {
          if constexpr (std::is_same_v<T, bool>) {
            not_row(reinterpret_cast<const std::uint8_t*>(inputs[0].data) + begin,
                    reinterpret_cast<std::uint8_t*>(outputs[0].data) + begin, end - begin);
          } else if constexpr (std::is_integral_v<T>) {
            unary_row(layer.attributes(), inputs[0].as<T>() + begin, outputs[0].as<T>() + begin, end - begin);
          }
        });
  });
}

// ---- Where

// `steps` of the condition, of what is taken where it holds, and else: where all are 0 or 1 the loops vectorize.
template <typename T, int Condition, int A, int B>
PIPIT_INLINE inline void select_row(const std::uint8_t* condition, const T* a, const T* b, T* y,
                                    std::int64_t n) {
  PIPIT_INDEPENDENT
  for (std::int64_t i = 0; i < n; ++i) {
    const T u = a[i * A], v = b[i * B];
    y[i] = condition[i * Condition] != 0 ? u : v;
  }
}

template <typename T>
struct SelectRow {
  const std::uint8_t* condition;
  const T *a, *b;
  T* y;
  std::int64_t condition_step, a_step, b_step, count;
};

template <typename T>
PIPIT_INLINE inline void select_rows(const SelectRow<T>& r) {
  const std::uint8_t* c = r.condition;
  if (r.condition_step == 1 && r.a_step == 1 && r.b_step == 1)
    return select_row<T, 1, 1, 1>(c, r.a, r.b, r.y, r.count);
  if (r.condition_step == 1 && r.a_step == 0 && r.b_step == 1)
    return select_row<T, 1, 0, 1>(c, r.a, r.b, r.y, r.count);
  if (r.condition_step == 1 && r.a_step == 1 && r.b_step == 0)
    return select_row<T, 1, 1, 0>(c, r.a, r.b, r.y, r.count);
  if (r.condition_step == 1 && r.a_step == 0 && r.b_step == 0)
    return select_row<T, 1, 0, 0>(c, r.a, r.b, r.y, r.count);
  if (r.condition_step == 0 && r.a_step == 1 && r.b_step == 1)
    return select_row<T, 0, 1, 1>(c, r.a, r.b, r.y, r.count);
  for (std::int64_t i = 0; i < r.count; ++i)
    r.y[i] = c[i * r.condition_step] != 0 ? r.a[i * r.a_step] : r.b[i * r.b_step];
}

class WhereKernel final : public Kernel {
 public:
  explicit WhereKernel(const NodeSpec& spec)
      : loop_(broadcast_loop<4>({&spec.outputs[0], spec.inputs[0], spec.inputs[1], spec.inputs[2]})) {}

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const auto step = loop_.row_strides();
    const auto* condition = reinterpret_cast<const std::uint8_t*>(inputs[0].data);
    with_element_size(outputs[0].desc.dtype, [&](auto bytes) {
      using T = Element<decltype(bytes)::value>;
      const auto* a = reinterpret_cast<const T*>(inputs[1].data);
      const auto* b = reinterpret_cast<const T*>(inputs[2].data);
      auto* y = reinterpret_cast<T*>(outputs[0].data);
      parallel_chunks(context.pool, loop_.size(), kChunkBytes / 8, [&](std::int64_t begin, std::int64_t end) {
        loop_.for_each_run(begin, end, [&](const auto& at, std::int64_t count) {
          compact_simd<select_rows<T>>(
              {condition + at[1], a + at[2], b + at[3], y + at[0], step[1], step[2], step[3], count});
        });
      });
    });
  }

 private:
  StridedLoop<4> loop_;
};

Refusal refuse_where(const NodeSpec& spec) {
  if (!stores_16_bits(spec.precision)) return refuse_reduced_precision(spec);
  const DType type = spec.outputs[0].dtype;
  if (spec.inputs[1]->dtype != type || spec.inputs[2]->dtype != type)
    return "operands are stored differently";
  return std::nullopt;
}

// ---- Cast

template <typename To, typename From>
PIPIT_INLINE inline To convert(From x) {
  if constexpr (std::is_same_v<To, bool>) {
    return x != From{0};
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    // Truncated, saturated, 0 for NaN. The first number beyond the range is a power of two.
    using Limits = std::numeric_limits<To>;
    constexpr auto kLow = static_cast<From>(Limits::min());
    constexpr From kHigh = static_cast<From>(std::uint64_t{1} << (Limits::digits - 1)) * 2;
    const bool inside = x > kLow && x < kHigh;
    const To outside = x <= kLow ? Limits::min() : (x >= kHigh ? Limits::max() : To{0});
    return inside ? static_cast<To>(inside ? x : From{0}) : outside;
  } else {
    return static_cast<To>(x);
  }
}

template <typename To, typename From>
PIPIT_INLINE inline void cast_row(const From* x, To* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = convert<To>(x[i]);
}

Refusal refuse_cast(const NodeSpec& spec) {
  if (Refusal reason = refuse_reduced_precision(spec)) return reason;
  if (is_stored_float(spec.outputs[0].dtype) || is_stored_float(spec.inputs[0]->dtype))
    return "one side is stored in 16 bits";
  if (!same_order(spec)) return "input and output have different layouts";
  return std::nullopt;
}

void run_cast(const Cast& layer, std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
              const RunContext& context) {
  with_dtype(layer.attributes().to, [&]<typename To>(std::type_identity<To>) {
    with_dtype(inputs[0].desc.dtype, [&]<typename From>(std::type_identity<From>) {
      const auto* x = reinterpret_cast<const Stored<From>*>(inputs[0].data);
      To* y = outputs[0].as<To>();
      parallel_chunks(context.pool, outputs[0].desc.elements(), kChunkBytes / 8,
                      [&](std::int64_t begin, std::int64_t end) {
                        compact_simd<cast_row<To, Stored<From>>>(x + begin, y + begin, end - begin);
                      });
    });
  });
}

}  // namespace

void register_cpu_typed_elementwise(Registry& registry) {
  add_layer_kernel<Unary>(registry, "typed", refuse_unary, run_unary);
  registry.add(Binary::kType, DeviceKind::cpu, {"typed", refuse_binary, [](const NodeSpec& spec) {
                                                  return std::make_unique<TypedBinary>(spec);
                                                }});
  registry.add(Where::kType, DeviceKind::cpu, {"typed", refuse_where, [](const NodeSpec& spec) {
                                                 return std::make_unique<WhereKernel>(spec);
                                               }});
  add_layer_kernel<Cast>(registry, "typed", refuse_cast, run_cast);
}

}  // namespace pipit::internal
