#include "engine/platform/cache_size.h"

#include <unistd.h>

namespace pipit::internal {

std::int64_t second_level_cache() {
  static const std::int64_t bytes = [] {
#ifdef _SC_LEVEL2_CACHE_SIZE
    if (const long known = sysconf(_SC_LEVEL2_CACHE_SIZE); known > 0) return std::int64_t{known};
#endif
    return std::int64_t{1} << 20;
  }();
  return bytes;
}

}  // namespace pipit::internal
