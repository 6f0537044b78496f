// The CPU quota of this process's control groups.
#pragma once

#include <filesystem>
#include <string>

namespace pipit {

/// CPUs that the groups in `groups` (the text of /proc/self/cgroup) grant: the lowest quota of each group and the
/// groups above it, version 1 or 2, mounted at `root` (/sys/fs/cgroup); infinity where there is none. cgroups(7).
double cgroup_cpu_limit(const std::filesystem::path& root, const std::string& groups);

}  // namespace pipit
