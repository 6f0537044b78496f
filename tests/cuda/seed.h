// The seed of the GPU tests.
#pragma once

namespace pipit::test {

/// The seed of this process: PIPIT_TEST_SEED, or a random one, printed on first use.
unsigned gpu_seed();

}  // namespace pipit::test
