// What a model's floating-point values are stored as, on each device.
#pragma once

#include "engine/graph/dtype.h"

namespace pipit::internal {

/// With weights in 8 or 4 bits a GPU stores activations as halves, a CPU as f32.
constexpr DType stored_type(Precision precision, DeviceKind device) {
  const bool weights_only = precision == Precision::w8 || precision == Precision::w4;
  return weights_only && device == DeviceKind::cuda ? DType::f16 : stored_type(precision);
}

}  // namespace pipit::internal
