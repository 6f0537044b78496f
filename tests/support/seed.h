// The seed of all tests that draw numbers.
#pragma once

namespace pipit::internal::test {

/// PIPIT_TEST_SEED: a number, or "random" for a fresh one in every process; 1 where it is not set, so that a run can be
/// repeated. Any but 1 is printed on first use.
unsigned test_seed();

}  // namespace pipit::internal::test
