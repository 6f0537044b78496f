#include "engine/host_memory.h"

#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace pipit {

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
  // cgroup v2; "max" where there is no limit, which does not parse.
  std::size_t limit = 0;
  std::size_t used = 0;
  if (std::ifstream("/sys/fs/cgroup/memory.max") >> limit) {
    std::ifstream("/sys/fs/cgroup/memory.current") >> used;
    bytes = std::min(bytes, limit > used ? limit - used : 0);
  }
  return bytes;
}

std::size_t peak_resident_memory() {
  std::ifstream status("/proc/self/status");
  for (std::string key, rest; status >> key; std::getline(status, rest)) {
    std::size_t kibibytes = 0;
    if (key == "VmHWM:" && status >> kibibytes) return kibibytes * 1024;
  }
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

}  // namespace pipit
