#include "engine/platform/cgroup.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

namespace pipit::internal {
namespace {

class CgroupLimit : public testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::path(testing::TempDir()) /
            testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void write(const std::string& file, const std::string& text) const {
    std::filesystem::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }
  std::filesystem::path root_;
};

TEST_F(CgroupLimit, Version2TakesTheLowestUpToTheRoot) {
  EXPECT_EQ(cgroup_cpu_limit(root_, "0::/a/b\n"), HUGE_VAL);
  write("a/cpu.max", "150000 100000\n");
  write("a/b/cpu.max", "max 100000\n");
  EXPECT_EQ(cgroup_cpu_limit(root_, "0::/a/b\n"), 1.5);
  write("a/b/cpu.max", "50000 100000\n");
  EXPECT_EQ(cgroup_cpu_limit(root_, "0::/a/b\n"), 0.5);
  EXPECT_EQ(cgroup_cpu_limit(root_, "0::/a\n"), 1.5);
  EXPECT_EQ(cgroup_cpu_limit(root_, "0::/\n"), HUGE_VAL);
  // In a container the group's own files are at the root.
  write("cpu.max", "300000 100000\n");
  EXPECT_EQ(cgroup_cpu_limit(root_, "0::/system.slice/not-mounted-here\n"), 3);
  EXPECT_EQ(cgroup_cpu_limit(root_, "0::/../a/b\n"), 3);
}

TEST_F(CgroupLimit, Version1) {
  write("cpu/job/cpu.cfs_quota_us", "250000\n");
  write("cpu/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cgroup_cpu_limit(root_, "3:memory:/job\n2:cpu,cpuacct:/job\n"), 2.5);
  EXPECT_EQ(cgroup_cpu_limit(root_, "3:cpuset:/job\n"), HUGE_VAL);
  write("cpu/job/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(cgroup_cpu_limit(root_, "2:cpu,cpuacct:/job\n"), HUGE_VAL);
}

TEST_F(CgroupLimit, NonsenseIsNoLimit) {
  write("cpu.max", "none of these\n");
  for (const char* text : {"", "\n\n", "0", "0:", "::", "0::\n", ":cpu:"}) {
    EXPECT_EQ(cgroup_cpu_limit(root_, text), HUGE_VAL) << text;
  }
}

TEST_F(CgroupLimit, FreeMemoryIsTheLeastOfAllLevels) {
  EXPECT_EQ(cgroup_free_memory(root_, "0::/a/b\n"), HUGE_VAL);
  write("a/memory.max", "5000\n");
  write("a/memory.current", "4000\n");
  write("a/b/memory.max", "max\n");
  write("a/b/memory.current", "3000\n");
  EXPECT_EQ(cgroup_free_memory(root_, "0::/a/b\n"), 1000);
  write("a/b/memory.max", "3500\n");
  EXPECT_EQ(cgroup_free_memory(root_, "0::/a/b\n"), 500);
  EXPECT_EQ(cgroup_free_memory(root_, "0::/\n"), HUGE_VAL);
  write("a/memory.current", "6000\n");  // above its limit: nothing is left, and not less than that
  EXPECT_EQ(cgroup_free_memory(root_, "0::/a/b\n"), 0);
  write("memory/job/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_GT(cgroup_free_memory(root_, "3:memory:/job\n2:cpu,cpuacct:/job\n"), 1e18);
  write("memory/job/memory.limit_in_bytes", "700\n");
  write("memory/job/memory.usage_in_bytes", "100\n");
  EXPECT_EQ(cgroup_free_memory(root_, "3:memory:/job\n2:cpu,cpuacct:/job\n"), 600);
  EXPECT_EQ(cgroup_free_memory(root_, "2:cpu,cpuacct:/job\n"), HUGE_VAL);
}

}  // namespace
}  // namespace pipit::internal
