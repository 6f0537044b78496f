#include "engine/platform/caches.h"

#include <sched.h>
#include <unistd.h>

#include <charconv>
#include <fstream>
#include <map>
#include <set>
#include <string>

namespace pipit::internal {

namespace {

namespace fs = std::filesystem;

std::string line_of(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// "48K", "32M"; 0 for anything else.
std::int64_t size_of(const std::string& text) {
  std::int64_t size = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
  if (error != std::errc() || size <= 0 || size > (std::int64_t{1} << 40)) return 0;
  const std::string unit(end, text.data() + text.size());
  return unit == "K" ? size << 10 : unit == "M" ? size << 20 : unit.empty() ? size : 0;
}

std::vector<int> cpus_of_mask() {
  std::vector<int> cpus;
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sched_getaffinity(0, sizeof mask, &mask) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(static_cast<std::size_t>(cpu), &mask)) cpus.push_back(cpu);
  }
  return cpus;
}

std::vector<CacheLevel> known_to_the_library(int cpus) {
  std::vector<CacheLevel> levels;
#ifdef _SC_LEVEL1_DCACHE_SIZE
  const int names[] = {_SC_LEVEL1_DCACHE_SIZE, _SC_LEVEL2_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE};
  for (int i = 0; i < 3; ++i) {
    if (const long bytes = sysconf(names[i]); bytes > 0) levels.push_back({i + 1, bytes, i < 2 ? cpus : 1});
  }
#else
  static_cast<void>(cpus);
#endif
  return levels;
}

}  // namespace

std::vector<CacheLevel> data_caches(const fs::path& root) {
  std::map<int, CacheLevel> levels;
  std::set<std::pair<int, std::string>> seen;  // level and the CPUs that share it
  const std::vector<int> cpus = cpus_of_mask();
  for (const int cpu : cpus) {
    const fs::path folder = root / ("cpu" + std::to_string(cpu)) / "cache";
    for (int index = 0; index < 8; ++index) {
      const fs::path cache = folder / ("index" + std::to_string(index));
      const std::int64_t bytes = size_of(line_of(cache / "size"));
      const std::int64_t level = size_of(line_of(cache / "level"));
      if (bytes == 0 || level < 1 || level > 9 || line_of(cache / "type") == "Instruction") continue;
      const int key = static_cast<int>(level);
      if (!seen.emplace(key, line_of(cache / "shared_cpu_list")).second) continue;
      const auto [found, fresh] = levels.try_emplace(key, CacheLevel{key, bytes, 1});
      if (!fresh) ++found->second.count;
    }
  }
  if (levels.empty()) return known_to_the_library(static_cast<int>(cpus.size()));
  std::vector<CacheLevel> list;
  for (const auto& [level, cache] : levels) list.push_back(cache);
  return list;
}

}  // namespace pipit::internal
