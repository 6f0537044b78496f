#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "engine/base/error.h"
#include "engine/platform/cgroup.h"
#include "engine/platform/thread_pool.h"

namespace pipit::internal {

namespace {
constexpr int kMaxThreads = 1024;
}

int available_cpus() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  int cpus = sched_getaffinity(0, sizeof mask, &mask) == 0
                 ? CPU_COUNT(&mask)
                 : static_cast<int>(std::thread::hardware_concurrency());
  const double quota = cgroup_cpu_limit("/sys/fs/cgroup", own_cgroups());
  if (quota < cpus) cpus = static_cast<int>(std::ceil(quota));
  return std::clamp(cpus, 1, kMaxThreads);
}

int default_threads() {
  const int cpus = available_cpus();
  const char* text = std::getenv("PIPIT_NUM_THREADS");
  if (text == nullptr || *text == '\0') return cpus;
  int threads = 0;
  const char* end = text + std::strlen(text);
  const auto [rest, problem] = std::from_chars(text, end, threads);
  if (problem != std::errc() || rest != end || threads < 1 || threads > kMaxThreads)
    fail("PIPIT_NUM_THREADS is '{}'; expected 1 to {}", text, kMaxThreads);
  return std::min(threads, cpus);
}

}  // namespace pipit::internal
