#include "engine/platform/caches.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <fstream>

namespace pipit::internal {
namespace {

namespace fs = std::filesystem;

class Caches : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(testing::TempDir()) / testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(root_);
    cpu_set_t mask;
    CPU_ZERO(&mask);
    ASSERT_EQ(sched_getaffinity(0, sizeof mask, &mask), 0);
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(static_cast<std::size_t>(cpu), &mask)) cpus_.push_back(cpu);
    }
  }
  void TearDown() override { fs::remove_all(root_); }
  void add(int cpu, int index, const std::string& level, const std::string& type, const std::string& size,
           const std::string& shared) const {
    const fs::path folder =
        root_ / ("cpu" + std::to_string(cpu)) / "cache" / ("index" + std::to_string(index));
    fs::create_directories(folder);
    for (const auto& [name, text] :
         {std::pair{"level", level}, {"type", type}, {"size", size}, {"shared_cpu_list", shared}})
      std::ofstream(folder / name) << text << "\n";
  }
  fs::path root_;
  std::vector<int> cpus_;
};

TEST_F(Caches, CountsWhatCpusShare) {
  for (const int cpu : cpus_) {
    const std::string own = std::to_string(cpu);
    add(cpu, 0, "1", "Data", "48K", own);
    add(cpu, 1, "1", "Instruction", "32K", own);
    add(cpu, 2, "2", "Unified", "1024K", own);
    add(cpu, 3, "3", "Unified", "32M", "0-1023");
  }
  const std::vector<CacheLevel> levels = data_caches(root_);
  ASSERT_EQ(levels.size(), 3U);
  const int cpus = static_cast<int>(cpus_.size());
  EXPECT_EQ(levels[0].bytes, 48 << 10);
  EXPECT_EQ(levels[0].count, cpus);
  EXPECT_EQ(levels[1].level, 2);
  EXPECT_EQ(levels[1].bytes_for(1), 1 << 20);
  EXPECT_EQ(levels[1].bytes_for(cpus + 5), std::int64_t{cpus} << 20);
  EXPECT_EQ(levels[2].count, 1);
  EXPECT_EQ(levels[2].bytes_for(cpus), 32 << 20);
}

TEST_F(Caches, OddFilesAreNotRead) {
  for (const int cpu : cpus_) {
    add(cpu, 0, "1", "Data", "48K", "x");
    add(cpu, 1, "2", "Unified", "many", "x");
    add(cpu, 2, "3", "Unified", "-5K", "x");
    add(cpu, 3, "x", "Unified", "5K", "x");
  }
  ASSERT_EQ(data_caches(root_).size(), 1U);
}

// Nothing there: the C library, or nothing. Never a size that is none.
TEST_F(Caches, WithoutFiles) {
  for (const CacheLevel& cache : data_caches(root_)) EXPECT_GT(cache.bytes_for(1), 0);
}

}  // namespace
}  // namespace pipit::internal
