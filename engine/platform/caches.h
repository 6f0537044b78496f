// The data caches of this machine.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace pipit::internal {

/// The caches of one level that some CPUs have.
struct CacheLevel {
  int level = 1;
  std::int64_t bytes = 0;  ///< of one
  int count = 1;           ///< several CPUs may share one

  /// What `threads` threads, each on a CPU of its own, find at most.
  std::int64_t bytes_for(int threads) const { return bytes * (threads < count ? threads : count); }
};

/// The data caches of the CPUs that this process may use (its affinity mask), nearest first, as Linux describes them in
/// `root`. Where it does not, what the C library knows of the levels, the last one shared and the others one for each
/// CPU; where that knows nothing either, none.
std::vector<CacheLevel> data_caches(const std::filesystem::path& root = "/sys/devices/system/cpu");

}  // namespace pipit::internal
