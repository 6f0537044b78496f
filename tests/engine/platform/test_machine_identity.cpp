#include "engine/platform/machine_identity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/platform/caches.h"
#include "engine/platform/device.h"
#include "engine/platform/isa.h"

namespace pipit::internal {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(MachineIdentity, NamesWhatTimesDependOn) {
  const std::string three = machine_identity(DeviceKind::cpu, 0, 3);
  EXPECT_THAT(three, StartsWith(cpu_description() + ", 3 threads, " + std::string(isa_name(chosen_isa()))));
  for (const CacheLevel& cache : data_caches())
    EXPECT_THAT(three, HasSubstr(", L" + std::to_string(cache.level) + " "));
  EXPECT_NE(three, machine_identity(DeviceKind::cpu, 0, 1));
}

}  // namespace
}  // namespace pipit::internal
