#include "tests/cuda/seed.h"

#include <iostream>

#include "tests/support/run_graph.h"

namespace pipit::test {

unsigned gpu_seed() {
  static const unsigned seed = [] {
    const unsigned value = test_seed();
    std::cout << "PIPIT_TEST_SEED=" << value << std::endl;
    return value;
  }();
  return seed;
}

}  // namespace pipit::test
