// Conversion between element types.
#include "layers/ops/cast.h"

#include "layers/cuda/elementwise/map.cuh"
#include "layers/cuda/families.h"

namespace pipit::internal {

namespace {

using namespace cuda;

template <typename W>
struct SameFunction {
  __device__ W operator()(const W (&x)[1]) const { return x[0]; }
};

// A floating-point number as an integer: truncated toward zero, saturated, 0 for NaN.
struct TruncateFunction {
  double low, above;  // the target's lowest value, and the first power of two beyond its range
  std::int64_t lowest, highest;
  __device__ std::int64_t operator()(double x) const {
    if (isnan(x)) return 0;
    if (x <= low) return lowest;
    return x >= above ? highest : static_cast<std::int64_t>(x);
  }
};

TruncateFunction truncate_to(DType type) {
  switch (type) {
    case DType::i8:
      return {-128, 128, -128, 127};
    case DType::u8:
      return {0, 256, 0, 255};
    case DType::i32:
      return {-0x1p31, 0x1p31, std::numeric_limits<std::int32_t>::min(),
              std::numeric_limits<std::int32_t>::max()};
    default:
      return {-0x1p63, 0x1p63, std::numeric_limits<std::int64_t>::min(),
              std::numeric_limits<std::int64_t>::max()};
  }
}

__global__ void float_to_integer(DeviceLoop<2> loop, Out y, In x, TruncateFunction f) {
  const unsigned i = thread_index();
  if (i >= loop.size) return;
  int at[2];
  loop.offsets(i, at);
  store<std::int64_t>(y, at[0], f(load<double>(x, at[1])));
}

__global__ void integer_to_float(DeviceLoop<2> loop, Out y, In x) {
  const unsigned i = thread_index();
  if (i >= loop.size) return;
  int at[2];
  loop.offsets(i, at);
  const auto value = load<std::int64_t>(x, at[1]);
  if (y.type == DType::f64) {
    store<double>(y, at[0], static_cast<double>(value));
  } else {
    store<float>(y, at[0], static_cast<float>(value));  // rounded once: not through double
  }
}

bool is_integer(DType type) {
  return !is_float_or_half(type) && type != DType::f64;
}

void run(const Cast& /*layer*/, std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
         const RunContext& context) {
  const ConstTensorView& x = inputs[0];
  const TensorView& y = outputs[0];
  const DType from = x.desc.dtype;
  const DType to = y.desc.dtype;
  if (is_float_or_half(from) && is_float_or_half(to)) {
    return launch_float_map<1>("cast", inputs, y, SameFunction<float>{}, context);
  }
  if (is_integer(from) && is_integer(to)) {
    return launch_map<std::int64_t, 1>("cast integer", inputs, y, SameFunction<std::int64_t>{}, context);
  }
  if (!is_integer(from) && (!is_integer(to) || to == DType::boolean)) {
    return launch_map<double, 1>("cast f64", inputs, y, SameFunction<double>{}, context);
  }
  const auto loop = broadcast_loop<2>({&y.desc, &x.desc});
  const DeviceLoop<2> points(loop);
  if (is_integer(from)) {
    launch("cast to float", integer_to_float, loop.size(), context, points, Out(y), In(x));
  } else {
    launch("cast to integer", float_to_integer, loop.size(), context, points, Out(y), In(x), truncate_to(to));
  }
}

}  // namespace

void register_cuda_cast(Registry& registry) {
  add_kernel<Cast>(registry, "elementwise", refuse_unless_indexable, run);
}

}  // namespace pipit::internal
