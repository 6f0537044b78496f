// The limits of this process's control groups. cgroups(7).
#pragma once

#include <filesystem>
#include <string>

namespace pipit::internal {

/// The text of /proc/self/cgroup; empty where there is none.
std::string own_cgroups();

/// CPUs that the groups in `groups` (as own_cgroups()) grant: the lowest quota of each group and the groups above it,
/// version 1 or 2, mounted at `root` (/sys/fs/cgroup); infinity where there is none.
double cgroup_cpu_limit(const std::filesystem::path& root, const std::string& groups);

/// Bytes that they leave: the minimum over all groups of the limit minus the use, infinity where there is no limit.
double cgroup_free_memory(const std::filesystem::path& root, const std::string& groups);

}  // namespace pipit::internal
