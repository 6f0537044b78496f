#include <sched.h>

#include <algorithm>
#include <cmath>
#include <thread>

#include "engine/platform/cgroup.h"
#include "engine/platform/thread_pool.h"

namespace pipit::internal {

int available_cpus() {
  constexpr int kMaxThreads = 1024;
  cpu_set_t mask;
  CPU_ZERO(&mask);
  int cpus = sched_getaffinity(0, sizeof mask, &mask) == 0
                 ? CPU_COUNT(&mask)
                 : static_cast<int>(std::thread::hardware_concurrency());
  const double quota = cgroup_cpu_limit("/sys/fs/cgroup", own_cgroups());
  if (quota < cpus) cpus = static_cast<int>(std::ceil(quota));
  return std::clamp(cpus, 1, kMaxThreads);
}

}  // namespace pipit::internal
