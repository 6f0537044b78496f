#include "tests/support/seed.h"

#include <cstdlib>
#include <iostream>
#include <random>
#include <string>

namespace pipit::internal::test {

unsigned test_seed() {
  static const unsigned seed = [] {
    const char* given = std::getenv("PIPIT_TEST_SEED");
    const std::string text = given == nullptr ? "1" : given;
    const unsigned value =
        text == "random" ? std::random_device{}() : static_cast<unsigned>(std::stoul(text));
    if (value != 1) std::cout << "PIPIT_TEST_SEED=" << value << std::endl;
    return value;
  }();
  return seed;
}

}  // namespace pipit::internal::test
