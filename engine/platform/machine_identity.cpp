#include "engine/platform/machine_identity.h"

#include <fmt/format.h>

#include "engine/platform/caches.h"
#include "engine/platform/device.h"
#include "engine/platform/isa.h"

namespace pipit::internal {

std::string machine_identity(DeviceKind device, int gpu, int threads) {
  if (device == DeviceKind::cuda) return gpu_description(gpu);
  std::string key = fmt::format("{}, {} threads, {}", cpu_description(), threads, isa_name(chosen_isa()));
  static const auto& caches = *new std::vector<CacheLevel>(data_caches());
  for (const CacheLevel& cache : caches)
    key += fmt::format(", L{} {} KiB", cache.level, cache.bytes_for(threads) >> 10);
  return key;
}

}  // namespace pipit::internal
