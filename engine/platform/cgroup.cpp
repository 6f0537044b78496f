#include "engine/platform/cgroup.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

namespace pipit::internal {

namespace {

namespace fs = std::filesystem;

constexpr double kNoLimit = HUGE_VAL;

// v2: "QUOTA PERIOD", or "max PERIOD".
double quota_v2(const fs::path& folder) {
  std::ifstream file(folder / "cpu.max");
  double quota = 0;
  double period = 0;
  return file >> quota >> period && quota > 0 && period > 0 ? quota / period : kNoLimit;
}

// v1: a quota of -1 is none.
double quota_v1(const fs::path& folder) {
  double quota = 0;
  double period = 0;
  std::ifstream(folder / "cpu.cfs_quota_us") >> quota;
  std::ifstream(folder / "cpu.cfs_period_us") >> period;
  return quota > 0 && period > 0 ? quota / period : kNoLimit;
}

// "max" (v2) does not parse; no limit in v1 is a number that no machine has.
double free_bytes(const fs::path& limit_file, const fs::path& used_file) {
  double limit = 0;
  double used = 0;
  if (!(std::ifstream(limit_file) >> limit)) return kNoLimit;
  std::ifstream(used_file) >> used;
  return std::max(limit - used, 0.0);
}

double free_v2(const fs::path& folder) {
  return free_bytes(folder / "memory.max", folder / "memory.current");
}

double free_v1(const fs::path& folder) {
  return free_bytes(folder / "memory.limit_in_bytes", folder / "memory.usage_in_bytes");
}

using Limit = double (*)(const fs::path& folder);

// The lowest limit of `group` and all above it, up to and with the root. Inside a container the group's path may be
// the host's, which does not exist here: the root is what remains.
double lowest(const fs::path& root, const fs::path& group, Limit limit_of) {
  double limit = limit_of(root);
  fs::path folder = root;
  for (const fs::path& part : group.relative_path()) {
    if (part == "..") break;  // a group outside of this namespace
    folder /= part;
    limit = std::min(limit, limit_of(folder));
  }
  return limit;
}

// `controller` has a hierarchy of its own in v1.
double lowest_of_all(const fs::path& root, const std::string& groups, const std::string& controller, Limit v1,
                     Limit v2) {
  double limit = kNoLimit;
  std::istringstream lines(groups);
  // hierarchy-ID:controller-list:path
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string group = line.substr(second + 1);
    if (controllers == ",,") {
      limit = std::min(limit, lowest(root, group, v2));
    } else if (controllers.find("," + controller + ",") != std::string::npos) {
      limit = std::min(limit, lowest(root / controller, group, v1));
    }
  }
  return limit;
}

}  // namespace

std::string own_cgroups() {
  std::ostringstream groups;
  groups << std::ifstream("/proc/self/cgroup").rdbuf();
  return groups.str();
}

double cgroup_cpu_limit(const fs::path& root, const std::string& groups) {
  return lowest_of_all(root, groups, "cpu", quota_v1, quota_v2);
}

double cgroup_free_memory(const fs::path& root, const std::string& groups) {
  return lowest_of_all(root, groups, "memory", free_v1, free_v2);
}

}  // namespace pipit::internal
