#include "engine/platform/ceilings.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/platform/caches.h"
#include "engine/platform/device.h"

namespace pipit {

double MemoryCeiling::floor_ms(double read_bytes, double written_bytes) const {
  const auto seconds = [](double amount, double rate) { return rate > 0 ? amount / rate : 0; };
  const double either = std::max({read.best, write.best, copy.best, add.best});
  return 1e3 * std::max({seconds(read_bytes, read.best), seconds(written_bytes, write.best),
                         seconds(read_bytes + written_bytes, either)});
}

const ArithmeticCeiling* Ceilings::find(Products products, std::optional<Isa> isa) const {
  const ArithmeticCeiling* fastest = nullptr;
  for (const ArithmeticCeiling& ceiling : arithmetic) {
    if (ceiling.products != products) continue;
    if (isa && ceiling.unit == isa_name(*isa)) return &ceiling;
    if (fastest == nullptr || ceiling.flops.best > fastest->flops.best) fastest = &ceiling;
  }
  return fastest;
}

double Ceilings::spread() const {
  double spread = launches.spread();
  for (const ArithmeticCeiling& ceiling : arithmetic) spread = std::max(spread, ceiling.flops.spread());
  for (const MemoryCeiling& level : memory) {
    for (const MeasuredRate& rate : {level.read, level.write, level.copy, level.add})
      spread = std::max(spread, rate.spread());
  }
  return spread;
}

std::string ceilings_key(DeviceKind device, int gpu, int threads) {
  if (device == DeviceKind::cuda) return gpu_description(gpu);
  std::string key = fmt::format("{}, {} threads, {}", cpu_description(), threads, isa_name(chosen_isa()));
  for (const CacheLevel& cache : data_caches())
    key += fmt::format(", L{} {} KiB", cache.level, cache.bytes_for(threads) >> 10);
  return key;
}

}  // namespace pipit
