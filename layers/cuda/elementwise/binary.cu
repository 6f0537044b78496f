// Element-wise functions of two tensors, and Where.
#include "layers/ops/binary.h"

#include "layers/cuda/elementwise/map.cuh"
#include "layers/cuda/families.h"

namespace pipit::internal {

namespace {

using namespace cuda;

// std::min(std::max(y, low), high): what becomes of NaN is the same as on the CPU.
template <typename W>
struct ClampFunction {
  W low, high;
  explicit ClampFunction(const Clamp& c) : low(static_cast<W>(c.low)), high(static_cast<W>(c.high)) {}
  __device__ W operator()(W y) const {
    y = y < low ? low : y;
    return high < y ? high : y;
  }
};

struct AddFunction {
  ClampFunction<float> clamp;
  __device__ float operator()(const float (&x)[2]) const { return clamp(x[0] + x[1]); }
};

struct MultiplyFunction {
  ClampFunction<float> clamp;
  __device__ float operator()(const float (&x)[2]) const { return clamp(x[0] * x[1]); }
};

template <typename W>
__device__ bool compared(BinaryKind kind, W a, W b) {
  switch (kind) {
    case BinaryKind::equal:
      return a == b;
    case BinaryKind::less:
      return a < b;
    case BinaryKind::less_equal:
      return a <= b;
    case BinaryKind::greater:
      return a > b;
    default:
      return a >= b;
  }
}

// W: float or double. A comparison gives 0 or 1, stored as bool, and is never clamped.
template <typename W>
struct FloatFunction {
  BinaryKind kind;
  ClampFunction<W> clamp;

  __device__ W operator()(const W (&x)[2]) const {
    const W a = x[0];
    const W b = x[1];
    switch (kind) {
      case BinaryKind::add:
        return clamp(a + b);
      case BinaryKind::sub:
        return clamp(a - b);
      case BinaryKind::mul:
        return clamp(a * b);
      case BinaryKind::div:
        return clamp(a / b);
      case BinaryKind::min:
        return clamp(a < b || isnan(a) ? a : b);
      case BinaryKind::max:
        return clamp(a > b || isnan(a) ? a : b);
      case BinaryKind::pow:
        return clamp(pow(a, b));
      case BinaryKind::mod: {
        const W r = fmod(a, b);
        return clamp(r != 0 && (r < 0) != (b < 0) ? r + b : r);
      }
      case BinaryKind::fmod:
        return clamp(fmod(a, b));
      case BinaryKind::prelu:
        return clamp(a < 0 ? a * b : a);
      default:
        return compared(kind, a, b) ? 1 : 0;
    }
  }
};

// Integers and bool in int64: sums and products wrap there and where they are stored.
struct IntegerFunction {
  BinaryKind kind;

  __device__ std::int64_t operator()(const std::int64_t (&x)[2]) const {
    const std::int64_t a = x[0];
    const std::int64_t b = x[1];
    const auto ua = static_cast<std::uint64_t>(a);
    const auto ub = static_cast<std::uint64_t>(b);
    switch (kind) {
      case BinaryKind::add:
        return static_cast<std::int64_t>(ua + ub);
      case BinaryKind::sub:
        return static_cast<std::int64_t>(ua - ub);
      case BinaryKind::mul:
        return static_cast<std::int64_t>(ua * ub);
      case BinaryKind::min:
        return a < b ? a : b;
      case BinaryKind::max:
        return a > b ? a : b;
      case BinaryKind::prelu:
        return a < 0 ? static_cast<std::int64_t>(ua * ub) : a;
      case BinaryKind::logical_and:
        return a != 0 && b != 0;
      case BinaryKind::logical_or:
        return a != 0 || b != 0;
      case BinaryKind::logical_xor:
        return (a != 0) != (b != 0);
      default:
        return compared(kind, a, b) ? 1 : 0;
    }
  }
};

template <typename W>
struct SelectFunction {
  __device__ W operator()(const W (&x)[3]) const { return x[0] != 0 ? x[1] : x[2]; }
};

bool is_integer(DType type) {
  return !is_float_or_half(type) && type != DType::f64;
}

Refusal refuse_binary(const NodeSpec& spec) {
  if (Refusal reason = refuse_unless_indexable(spec)) return reason;
  const DType a = spec.inputs[0]->dtype;
  const DType b = spec.inputs[1]->dtype;
  const BinaryKind kind = layer_as<Binary>(spec.layer).attributes().kind;
  if (is_integer(a)) {
    // The CPU throws on a divisor of 0, which a GPU cannot.
    if (kind == BinaryKind::div || kind == BinaryKind::mod || kind == BinaryKind::fmod ||
        kind == BinaryKind::pow) {
      return "integer " + std::string(binary_name(kind)) + " could not report a division by zero";
    }
  } else if (is_integer(b)) {
    return "an integer exponent is not handled";
  } else if (a != b && (a == DType::f64 || b == DType::f64)) {
    return "operands of " + std::string(dtype_name(a)) + " and " + std::string(dtype_name(b)) +
           " are not mixed";
  }
  return std::nullopt;
}

void run_binary(const Binary& layer, std::span<const ConstTensorView> inputs,
                std::span<const TensorView> outputs, const RunContext& context) {
  const auto& [kind, activation] = layer.attributes();
  const TensorView& y = outputs[0];
  const DType type = inputs[0].desc.dtype;
  if (is_integer(type)) {
    launch_map<std::int64_t, 2>("binary integer", inputs, y, IntegerFunction{kind}, context);
  } else if (type == DType::f64) {
    const FloatFunction<double> f{kind, ClampFunction<double>(activation)};
    launch_map<double, 2>("binary f64", inputs, y, f, context);
  } else if (kind == BinaryKind::add) {
    launch_float_map<2>("add", inputs, y, AddFunction{ClampFunction<float>(activation)}, context);
  } else if (kind == BinaryKind::mul) {
    launch_float_map<2>("mul", inputs, y, MultiplyFunction{ClampFunction<float>(activation)}, context);
  } else {
    const FloatFunction<float> f{kind, ClampFunction<float>(activation)};
    launch_float_map<2>("binary", inputs, y, f, context);
  }
}

void run_where(const Where& /*layer*/, std::span<const ConstTensorView> inputs,
               std::span<const TensorView> outputs, const RunContext& context) {
  const TensorView& y = outputs[0];
  if (is_float_or_half(y.desc.dtype)) {
    launch_map<float, 3>("where", inputs, y, SelectFunction<float>{}, context);
  } else if (y.desc.dtype == DType::f64) {
    launch_map<double, 3>("where f64", inputs, y, SelectFunction<double>{}, context);
  } else {
    launch_map<std::int64_t, 3>("where integer", inputs, y, SelectFunction<std::int64_t>{}, context);
  }
}

}  // namespace

void register_cuda_binary(Registry& registry) {
  add_kernel<Binary>(registry, "elementwise", refuse_binary, run_binary);
  add_kernel<Where>(registry, "elementwise", refuse_unless_indexable, run_where);
}

}  // namespace pipit::internal
