#include "engine/platform/ceilings.h"

#include <algorithm>

namespace pipit::internal {

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

}  // namespace pipit::internal
