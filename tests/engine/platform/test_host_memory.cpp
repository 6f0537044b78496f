#include "engine/platform/host_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace pipit::internal {
namespace {

TEST(HostMemory, PeakSeesWhatIsGoneAndForgetsItOnRequest) {
  constexpr std::size_t kBytes = std::size_t{64} << 20;
  const std::size_t before = peak_resident_memory();
  {
    std::vector<char> touched(kBytes, 1);
    ASSERT_EQ(std::count(touched.begin(), touched.end(), 1), static_cast<std::ptrdiff_t>(kBytes));
  }
  const std::size_t peak = peak_resident_memory();
  EXPECT_GE(peak, kBytes);
  EXPECT_GE(peak, before);
#if PIPIT_SANITIZED
  GTEST_SKIP() << "AddressSanitizer keeps freed memory";
#endif
  if (!reset_peak_resident_memory()) GTEST_SKIP() << "/proc/self/clear_refs cannot be written";
  EXPECT_LT(peak_resident_memory(), peak - kBytes / 2);
}

TEST(HostMemory, ResidentIsWhatIsTouched) {
  constexpr std::size_t kBytes = std::size_t{64} << 20;
  const std::size_t before = resident_memory();
  if (before == 0) GTEST_SKIP() << "the system does not say";
  std::vector<char> touched(kBytes, 1);
  ASSERT_EQ(std::count(touched.begin(), touched.end(), 1), static_cast<std::ptrdiff_t>(kBytes));
  EXPECT_GE(resident_memory(), before + kBytes / 2);
  // Linux counts pages per CPU and adds them up in batches: each of the two figures may be some pages late.
  constexpr std::size_t kLate = std::size_t{4} << 20;
  EXPECT_LE(resident_memory(), peak_resident_memory() + kLate);
}

TEST(HostMemory, SomeIsAvailable) {
  EXPECT_GT(available_host_memory(), std::size_t{1} << 20);
}

}  // namespace
}  // namespace pipit::internal
