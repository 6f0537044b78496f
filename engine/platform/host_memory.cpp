#include "engine/platform/host_memory.h"

#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "engine/platform/cgroup.h"

namespace pipit::internal {

namespace {

// A line of /proc/self/status in KiB, as bytes; 0 where there is none.
std::size_t of_status(const std::string& wanted) {
  std::ifstream status("/proc/self/status");
  for (std::string key, rest; status >> key; std::getline(status, rest)) {
    std::size_t kibibytes = 0;
    if (key == wanted && status >> kibibytes) return kibibytes * 1024;
  }
  return 0;
}

}  // namespace

std::size_t available_host_memory() {
  std::size_t bytes =
      static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGE_SIZE));
  std::ifstream meminfo("/proc/meminfo");
  for (std::string key, unit; meminfo >> key;) {
    std::size_t kibibytes = 0;
    meminfo >> kibibytes;
    std::getline(meminfo, unit);
    if (key == "MemAvailable:") bytes = std::min(bytes, kibibytes * 1024);
  }
  const double granted = cgroup_free_memory("/sys/fs/cgroup", own_cgroups());
  return granted < static_cast<double>(bytes) ? static_cast<std::size_t>(granted) : bytes;
}

std::size_t resident_memory() {
  return of_status("VmRSS:");
}

std::size_t peak_resident_memory() {
  if (const std::size_t bytes = of_status("VmHWM:"); bytes > 0) return bytes;
  // Would count a larger parent process too: it is kept over exec.
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::size_t>(usage.ru_maxrss) * 1024;
}

bool reset_peak_resident_memory() {
#if defined(__GLIBC__)
  malloc_trim(0);
#endif
  std::ofstream clear("/proc/self/clear_refs");
  clear << "5" << std::flush;  // proc(5): resets VmHWM
  return static_cast<bool>(clear);
}

}  // namespace pipit::internal
