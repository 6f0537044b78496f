#include "layers/cpu/vector/bandwidth_probe.h"

#include <cstring>
#include <vector>

#include "engine/base/ceil_div.h"
#include "engine/graph/tensor.h"
#include "layers/cpu/vector/tap_grid.h"

namespace pipit::internal {

namespace {

constexpr std::int64_t kBlock = 8;  // vectors at a time
// The C library writes past the caches only what is larger than they are.
constexpr std::size_t kPastCaches = std::size_t{16} << 20;

// Bytes of all operands of a loop together, between two looks at the clock: some milliseconds.
constexpr std::size_t kSlice = std::size_t{24} << 20;

// Before the compiler forgets what memory holds: no loop becomes a call, and none is left out.
#define PIPIT_MEMORY __asm__ volatile("" : : : "memory")

// A part of the arrays a, b and c: `floats` floats each, a whole number of blocks.
struct Span {
  const float* a;
  const float* b;
  float* c;
  std::int64_t floats;
};

template <typename V>
PIPIT_INLINE inline void read_loop(const Span& s) {
  V sums[kBlock] = {};
  for (std::int64_t i = 0; i < s.floats; i += kBlock * kLanes<V>) {
#pragma GCC unroll 8
    for (std::int64_t k = 0; k < kBlock; ++k) {
      V x;
      load(s.a + i + k * kLanes<V>, x);
      sums[k] += x;
    }
  }
  V total = sums[0];
  for (std::int64_t k = 1; k < kBlock; ++k) total += sums[k];
  __asm__ volatile("" : : "m"(total));
}

template <typename V>
PIPIT_INLINE inline void write_loop(const Span& s) {
  const V zero{};
  for (std::int64_t i = 0; i < s.floats; i += kBlock * kLanes<V>) {
#pragma GCC unroll 8
    for (std::int64_t k = 0; k < kBlock; ++k) store(zero, s.c + i + k * kLanes<V>);
    PIPIT_MEMORY;
  }
}

template <typename V, bool kAdds>
PIPIT_INLINE inline void pass_loop(const Span& s) {
  for (std::int64_t i = 0; i < s.floats; i += kBlock * kLanes<V>) {
#pragma GCC unroll 8
    for (std::int64_t k = 0; k < kBlock; ++k) {
      V x;
      load(s.a + i + k * kLanes<V>, x);
      if constexpr (kAdds) {
        V y;
        load(s.b + i + k * kLanes<V>, y);
        x += y;
      }
      store(x, s.c + i + k * kLanes<V>);
    }
    PIPIT_MEMORY;
  }
}

constexpr auto kRead = simd<read_loop<ShortVector>, read_loop<Vector>>;
constexpr auto kWrite = simd<write_loop<ShortVector>, write_loop<Vector>>;
constexpr auto kCopy = simd<pass_loop<ShortVector, false>, pass_loop<Vector, false>>;
constexpr auto kAdd = simd<pass_loop<ShortVector, true>, pass_loop<Vector, true>>;

void library_write(const Span& s) {
  std::memset(s.c, 0, static_cast<std::size_t>(s.floats) * sizeof(float));
  PIPIT_MEMORY;
}

void library_copy(const Span& s) {
  std::memcpy(s.c, s.a, static_cast<std::size_t>(s.floats) * sizeof(float));
  PIPIT_MEMORY;
}

const MeasuredRate& faster(const MeasuredRate& one, const MeasuredRate& other) {
  return one.best >= other.best ? one : other;
}

}  // namespace

MemoryCeiling measure_memory(ThreadPool& pool, std::size_t bytes) {
  constexpr auto kUnit = static_cast<std::size_t>(kBlock) * sizeof(Vector);
  // Three operands of a third each, a whole number of blocks.
  const std::size_t operand = std::max(kUnit, bytes / 3 / kUnit * kUnit);
  std::vector<HostBuffer> buffers(static_cast<std::size_t>(pool.size()));
  // Written by the thread that reads it: on machines with several memories it comes to lie near.
  pool.parallel_for(pool.size(), [&](std::int64_t task, int /*worker*/) {
    HostBuffer& buffer = buffers[static_cast<std::size_t>(task)];
    buffer = HostBuffer(3 * operand);
    std::memset(buffer.data(), 0, buffer.bytes());
  });
  // `operands` of them are what the loop goes through: all three, or as many bytes in one. Slice after slice, so that
  // what is larger than caches takes no longer to measure: each comes again after all the others.
  const auto measure = [&](void (*loop)(const Span&), int operands, std::size_t most_of_slice) {
    const auto loops_over = static_cast<std::size_t>(operands);
    const std::size_t each = 3 * operand / loops_over / kUnit * kUnit;
    const std::size_t slices = ceil_div(each * loops_over, most_of_slice);
    const std::size_t slice = each / slices / kUnit * kUnit;
    std::vector<std::size_t> next(buffers.size());
    return measure_rate(pool, static_cast<double>(slice) * operands,
                        [&](std::int64_t task, std::int64_t steps) {
                          const auto t = static_cast<std::size_t>(task);
                          auto* const data = reinterpret_cast<float*>(buffers[t].data());
                          const auto floats = static_cast<std::int64_t>(each / sizeof(float));
                          for (std::int64_t i = 0; i < steps; ++i) {
                            float* const at = data + next[t] * (slice / sizeof(float));
                            // The last one is what is written.
                            loop({at, at + (operands > 2 ? floats : 0), at + (operands - 1) * floats,
                                  static_cast<std::int64_t>(slice / sizeof(float))});
                            next[t] = (next[t] + 1) % slices;
                          }
                        });
  };
  MemoryCeiling memory;
  memory.read = measure(kRead, 1, kSlice);
  memory.write = measure(kWrite, 1, kSlice);
  memory.copy = measure(kCopy, 2, kSlice);
  memory.add = measure(kAdd, 3, kSlice);
  if (operand < kPastCaches) return memory;
  // These look at how much they are given.
  memory.write = faster(memory.write, measure(library_write, 1, 3 * operand));
  memory.copy = faster(memory.copy, measure(library_copy, 2, 3 * operand));
  return memory;
}

}  // namespace pipit::internal
