// Element-wise functions of two tensors, and Where.
#include "layers/ops/binary.h"

#include <cmath>

#include "layers/cuda/device/faults.cuh"
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

// What of integers has no result where something is divided by 0, which is reported with the dividend.
struct DivisionFunction {
  BinaryKind kind;
  Fault* fault;

  static __device__ std::int64_t times(std::int64_t a, std::int64_t b) {
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
  }
  __device__ std::int64_t power(std::int64_t a, std::int64_t b) const {
    if (b < 0) {
      if (a == 0) report(fault, a);
      return a == 1 ? 1 : a == -1 ? (b % 2 == 0 ? 1 : -1) : 0;
    }
    std::int64_t result = 1;
    for (; b > 0; b /= 2) {
      if (b % 2 == 1) result = times(result, a);
      a = times(a, a);
    }
    return result;
  }
  __device__ std::int64_t operator()(const std::int64_t (&x)[2]) const {
    const std::int64_t a = x[0];
    const std::int64_t b = x[1];
    if (kind == BinaryKind::pow) return power(a, b);
    if (b == 0) {
      report(fault, a);
      return 0;
    }
    // The least number over -1 does not fit.
    if (b == -1)
      return kind == BinaryKind::div ? static_cast<std::int64_t>(0 - static_cast<std::uint64_t>(a)) : 0;
    if (kind == BinaryKind::div) return a / b;
    const std::int64_t r = a % b;
    return kind == BinaryKind::mod && r != 0 && (r < 0) != (b < 0) ? r + b : r;
  }
};

template <typename W>
struct SelectFunction {
  __device__ W operator()(const W (&x)[3]) const { return x[0] != 0 ? x[1] : x[2]; }
};

bool is_integer(DType type) {
  return !is_float_or_half(type) && type != DType::f64;
}

bool divides(BinaryKind kind) {
  return kind == BinaryKind::div || kind == BinaryKind::mod || kind == BinaryKind::fmod ||
         kind == BinaryKind::pow;
}

Refusal refuse_binary(const NodeSpec& spec) {
  if (Refusal reason = refuse_unless_indexable(spec)) return reason;
  const DType a = spec.inputs[0]->dtype;
  const DType b = spec.inputs[1]->dtype;
  const BinaryKind kind = layer_as<Binary>(spec.layer).attributes().kind;
  if (is_integer(a)) {
    if (divides(kind)) return "\"divisions\" takes " + std::string(binary_name(kind)) + " of integers";
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

Refusal refuse_division(const NodeSpec& spec) {
  if (Refusal reason = refuse_unless_indexable(spec)) return reason;
  if (!divides(layer_as<Binary>(spec.layer).attributes().kind)) return "nothing is divided";
  for (const TensorDesc* input : spec.inputs) {
    if (!is_integer(input->dtype)) return "an operand is not an integer";
  }
  return std::nullopt;
}

// Powers of which the exponent has another kind of type than the base.
__device__ double as_double(const In& x, bool integer, std::int64_t i) {
  return integer ? static_cast<double>(load<std::int64_t>(x, i)) : load<double>(x, i);
}

// With whole results where there are any: an integer that is just missed would be truncated.
__device__ double whole_power(double a, double b) {
  if (b == 0.5) return sqrt(a);
  if (b != floor(b) || fabs(b) > 1024) return pow(a, b);
  double result = 1, factor = a;
  for (auto left = static_cast<int>(fabs(b)); left > 0; left /= 2) {
    if (left % 2 == 1) result *= factor;
    factor *= factor;
  }
  return b < 0 ? 1 / result : result;
}

// low, above: of an integer base, the lowest value of its type and the first power of two beyond its range.
__global__ void mixed_power_kernel(DeviceLoop<3> loop, Out y, In a, In b, bool integer_base, double low,
                                   double above, ClampFunction<double> clamp) {
  const unsigned i = thread_index();
  if (i >= loop.size) return;
  int at[3];
  loop.offsets(i, at);
  const double base = as_double(a, integer_base, at[1]), exponent = as_double(b, !integer_base, at[2]);
  if (!integer_base) return store<double>(y, at[0], clamp(pow(base, exponent)));
  const double power = whole_power(base, exponent);
  // Truncated and saturated, 0 for NaN.
  std::int64_t result = static_cast<std::int64_t>(low);
  if (isnan(power)) {
    result = 0;
  } else if (power >= above) {
    result = static_cast<std::int64_t>(static_cast<std::uint64_t>(above) - 1);
  } else if (power > low) {
    result = static_cast<std::int64_t>(power);
  }
  store<std::int64_t>(y, at[0], result);
}

Refusal refuse_mixed_power(const NodeSpec& spec) {
  if (Refusal reason = refuse_unless_indexable(spec)) return reason;
  if (layer_as<Binary>(spec.layer).attributes().kind != BinaryKind::pow) return "only powers";
  if (is_integer(spec.inputs[0]->dtype) == is_integer(spec.inputs[1]->dtype))
    return "base and exponent are both integers or both floating-point";
  return std::nullopt;
}

void run_mixed_power(const Binary& layer, std::span<const ConstTensorView> inputs,
                     std::span<const TensorView> outputs, const RunContext& context) {
  const TensorView& y = outputs[0];
  const auto loop = broadcast_loop<3>({&y.desc, &inputs[0].desc, &inputs[1].desc});
  const DType type = inputs[0].desc.dtype;
  const int bits = static_cast<int>(dtype_bytes(type)) * 8;
  const bool is_signed = type != DType::u8 && type != DType::boolean;
  launch("mixed power", mixed_power_kernel, loop.size(), context, DeviceLoop<3>(loop), Out(y), In(inputs[0]),
         In(inputs[1]), is_integer(type), is_signed ? -std::ldexp(1.0, bits - 1) : 0.0,
         std::ldexp(1.0, is_signed ? bits - 1 : bits), ClampFunction<double>(layer.attributes().activation));
}

class DivisionKernel final : public Kernel {
 public:
  explicit DivisionKernel(const NodeSpec& spec) : kind_(layer_as<Binary>(spec.layer).attributes().kind) {}
  std::string fault_text(std::int64_t value) const override {
    return "integer " + std::string(binary_name(kind_)) + " of " + std::to_string(value) + " divides by zero";
  }
  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    launch_map<std::int64_t, 2>("division", inputs, outputs[0], DivisionFunction{kind_, context.fault},
                                context);
  }

 private:
  BinaryKind kind_;
};

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
  registry.add(Binary::kType, DeviceKind::cuda,
               {"divisions", refuse_division, [](const NodeSpec& spec) {
                  return std::unique_ptr<Kernel>(std::make_unique<DivisionKernel>(spec));
                }});
  add_kernel<Binary>(registry, "mixed_powers", refuse_mixed_power, run_mixed_power);
  add_kernel<Where>(registry, "elementwise", refuse_unless_indexable, run_where);
}

}  // namespace pipit::internal
