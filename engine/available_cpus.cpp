#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>
#include <thread>

#include "engine/cgroup.h"
#include "engine/thread_pool.h"

namespace pipit {

namespace {

constexpr int kMaxThreads = 1024;
constexpr double kNoLimit = HUGE_VAL;

// v2: "QUOTA PERIOD", or "max PERIOD".
double quota_v2(const std::filesystem::path& folder) {
  std::ifstream file(folder / "cpu.max");
  double quota = 0;
  double period = 0;
  return file >> quota >> period && quota > 0 && period > 0 ? quota / period : kNoLimit;
}

// v1: a quota of -1 is none.
double quota_v1(const std::filesystem::path& folder) {
  double quota = 0;
  double period = 0;
  std::ifstream(folder / "cpu.cfs_quota_us") >> quota;
  std::ifstream(folder / "cpu.cfs_period_us") >> period;
  return quota > 0 && period > 0 ? quota / period : kNoLimit;
}

// The lowest quota of `group` and all above it, up to and with the root. Inside a container the group's path may be
// the host's, which does not exist here: the root is what remains.
template <typename Quota>
double lowest(const std::filesystem::path& root, const std::filesystem::path& group, Quota quota) {
  double limit = quota(root);
  std::filesystem::path folder = root;
  for (const std::filesystem::path& part : group.relative_path()) {
    if (part == "..") break;  // a group outside of this namespace
    folder /= part;
    limit = std::min(limit, quota(folder));
  }
  return limit;
}

}  // namespace

double cgroup_cpu_limit(const std::filesystem::path& root, const std::string& groups) {
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
      limit = std::min(limit, lowest(root, group, quota_v2));
    } else if (controllers.find(",cpu,") != std::string::npos) {
      limit = std::min(limit, lowest(root / "cpu", group, quota_v1));
    }
  }
  return limit;
}

int available_cpus() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  int cpus = sched_getaffinity(0, sizeof mask, &mask) == 0
                 ? CPU_COUNT(&mask)
                 : static_cast<int>(std::thread::hardware_concurrency());
  std::ostringstream groups;
  groups << std::ifstream("/proc/self/cgroup").rdbuf();
  const double quota = cgroup_cpu_limit("/sys/fs/cgroup", groups.str());
  if (quota < cpus) cpus = static_cast<int>(std::ceil(quota));
  return std::clamp(cpus, 1, kMaxThreads);
}

}  // namespace pipit
