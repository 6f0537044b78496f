// The short arithmetic of INT8 kernels on a CPU, against the specification.
#include "tests/cuda/emulation/emulation.h"
// The emulator comes first: kernels use its declarations.
#include <array>
#include <cmath>

#include "layers/cuda/conv/chain/unit.cuh"
#include "layers/ops/quantization.h"
#include "tests/cuda/emulation/reference.h"

namespace pipit::internal::test::emulation {
namespace {

template <bool Relu>
void expect_bytes(const StepBounds& bounds, const std::array<float, 4>& values) {
  const float v[4] = {values[0], values[1], values[2], values[3]};
  const std::uint32_t bytes = cuda::requantize_four<Relu>(v, cuda::PairBounds::of(bounds));
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(static_cast<std::int8_t>(bytes >> i * 8), requantize(v[i], bounds, 0))
        << "value " << i << ": " << v[i] << ", bounds " << bounds.low << " and " << bounds.high;
  }
}

// Ties, bounds that are no whole numbers, and results up to the last that 16 bits hold.
TEST(EmulatedInt8Math, FourBytesAreTheSpecifications) {
  std::mt19937 random = numbers(90);
  const auto most = static_cast<float>(std::nextafter(cuda::kMaxSteps, 0.0));
  for (int i = 0; i < 20000 && !testing::Test::HasFailure(); ++i) {
    const StepBounds bounds{real(random, -127, 0), coin(random) ? 127.0F : real(random, 0, 127)};
    std::array<float, 4> values{};
    for (float& v : values) {
      switch (draw(random, 0, 3)) {
        case 0:
          v = static_cast<float>(draw(random, -260, 260)) + 0.5F;
          break;
        case 1:
          v = real(random, -130, 130);
          break;
        case 2:
          v = real(random, -most, most);
          break;
        default:
          v = coin(random) ? most : -most;
      }
    }
    expect_bytes<false>(bounds, values);
    expect_bytes<true>({0, bounds.high}, values);
  }
}

TEST(EmulatedInt8Math, BytesBecomeFloats) {
  for (int byte = -128; byte < 128; ++byte) {
    const auto biased = static_cast<std::uint32_t>(static_cast<std::uint8_t>(byte)) ^ 0x80U;
    for (int place = 0; place < 4; ++place)
      EXPECT_EQ(cuda::biased_to_float(biased << place * 8, place, cuda::kByteBase), static_cast<float>(byte));
  }
}

}  // namespace
}  // namespace pipit::internal::test::emulation
