// What a model's floating-point values are stored as, on each device.
#pragma once

#include "engine/graph/dtype.h"

namespace pipit::internal {

/// In w8, w4 and int8_dynamic a GPU stores halves, a CPU f32.
constexpr DType stored_type(Precision precision, DeviceKind device) {
  const bool halves =
      precision == Precision::w8 || precision == Precision::w4 || precision == Precision::int8_dynamic;
  return halves && device == DeviceKind::cuda ? DType::f16 : stored_type(precision);
}

}  // namespace pipit::internal
