#include "layers/cpu_ceilings.h"

#include <fmt/chrono.h>

#include <algorithm>
#include <ctime>

#include "engine/base/clock.h"
#include "engine/platform/caches.h"
#include "engine/platform/host_memory.h"
#include "engine/platform/machine_identity.h"
#include "layers/cpu/tile/peak_probe.h"
#include "layers/cpu/vector/bandwidth_probe.h"

namespace pipit::internal {

namespace {

const TileKernels* tiles_of(Products products, Isa isa) {
  switch (products) {
    case Products::fp32:
      return &f32_tiles(isa);
    case Products::fp16:
      return f16_tiles(isa);
    case Products::bf16:
      return bf16_tiles(isa);
    case Products::int8:
      return &u8s8_tiles(isa);
    case Products::int16:
      return s16_tiles(isa);
  }
  return nullptr;
}

struct Arithmetic {
  Products products;
  Isa isa;
  const TileKernels* kernels;
};

// One for each instruction set that has tiles of its own.
std::vector<Arithmetic> all_arithmetic() {
  std::vector<Arithmetic> all;
  for (const Products products :
       {Products::fp32, Products::fp16, Products::bf16, Products::int8, Products::int16}) {
    for (const Isa isa : all_isas()) {
      const TileKernels* kernels = isa_available(isa) ? tiles_of(products, isa) : nullptr;
      if (kernels != nullptr && kernels->isa == isa) all.push_back({products, isa, kernels});
    }
  }
  return all;
}

ArithmeticCeiling measure_arithmetic(ThreadPool& pool, const Arithmetic& one) {
  const MeasuredRate registers = measure_peak(pool, *one.kernels);
  const MeasuredRate tile = measure_tile_rate(pool, *one.kernels);
  // With few registers the compiler may make a slower loop of the first than the tile is.
  return {one.products, std::string(isa_name(one.isa)), registers.best > tile.best ? registers : tile, tile};
}

// Half of the cache, or where that would fit the one before, half of what it adds; for each thread.
std::size_t bytes_within(std::int64_t nearer, std::int64_t cache, int threads) {
  const std::int64_t half = cache / 2 >= 2 * nearer ? cache / 2 : nearer + cache / 2;
  return static_cast<std::size_t>(half / threads);
}

// `measured` is called after each.
void measure_memories(ThreadPool& pool, Ceilings& ceilings, const std::function<void()>& measured) {
  constexpr std::int64_t kMinMemory = std::int64_t{256} << 20;
  const int threads = pool.size();
  std::int64_t nearer = 0;
  for (const CacheLevel& cache : data_caches()) {
    const std::int64_t bytes = cache.bytes_for(threads);
    MemoryCeiling level = measure_memory(pool, bytes_within(nearer, bytes, threads));
    level.name = fmt::format("L{}", cache.level);
    level.bytes = bytes;
    ceilings.memory.push_back(std::move(level));
    nearer = bytes;
    measured();
  }
  const auto free = static_cast<std::int64_t>(available_host_memory() / 4);
  const std::int64_t bytes = std::min(std::max(kMinMemory, 4 * nearer), free);
  MemoryCeiling memory = measure_memory(pool, static_cast<std::size_t>(bytes / threads));
  memory.name = "memory";
  ceilings.memory.push_back(std::move(memory));
  measured();
}

// A level that is no faster than the next one was disturbed: a more distant memory is never faster.
void order_levels(std::vector<MemoryCeiling>& memory) {
  for (std::size_t i = memory.size(); i-- > 1;) {
    for (MeasuredRate MemoryCeiling::*rate :
         {&MemoryCeiling::read, &MemoryCeiling::write, &MemoryCeiling::copy, &MemoryCeiling::add}) {
      if ((memory[i - 1].*rate).best < (memory[i].*rate).best) memory[i - 1].*rate = memory[i].*rate;
    }
  }
}

}  // namespace

Ceilings measure_cpu_ceilings(int threads, const CeilingsProgress& progress) {
  const std::shared_ptr<ThreadPool> pool = shared_pool(threads);
  const Clock::time_point begin = Clock::now();
  Ceilings ceilings;
  ceilings.device = DeviceKind::cpu;
  ceilings.threads = pool->size();
  ceilings.machine = machine_identity(ceilings.device, 0, ceilings.threads);
  ceilings.measured_at = fmt::format("{:%FT%TZ}", fmt::gmtime(std::time(nullptr)));
  const std::vector<Arithmetic> arithmetic = all_arithmetic();
  const std::int64_t steps = std::ssize(arithmetic) + std::ssize(data_caches()) + 1;
  std::int64_t done = 0;
  const auto measured = [&] {
    if (progress) progress(++done, steps);
  };
  for (const Arithmetic& one : arithmetic) {
    ceilings.arithmetic.push_back(measure_arithmetic(*pool, one));
    measured();
  }
  measure_memories(*pool, ceilings, measured);
  order_levels(ceilings.memory);
  ceilings.seconds = milliseconds_since(begin) / 1e3;
  return ceilings;
}

}  // namespace pipit::internal
