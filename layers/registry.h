// The registry with every kernel of the layers library.
#pragma once

#include "engine/plan/registry.h"

namespace pipit::internal {

/// Fast kernels first, references last, for every layer. Built once; registration is by explicit calls.
const Registry& default_registry();

}  // namespace pipit::internal
