// Element types; here the one that has no C++ type of its own.
#pragma once

#include "engine/graph/half.h"
#include "pipit/types.h"

namespace pipit {

template <>
struct DTypeOf<internal::Half> {
  static constexpr DType value = DType::f16;
};

}  // namespace pipit
