#include "engine/host_memory.h"

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

}  // namespace pipit
