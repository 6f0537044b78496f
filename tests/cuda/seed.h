// The seed of the GPU tests.
#pragma once

#include "tests/support/seed.h"

namespace pipit::internal::test {

inline unsigned gpu_seed() {
  return test_seed();
}

}  // namespace pipit::internal::test
