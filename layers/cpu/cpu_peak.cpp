#include "layers/cpu_peak.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "engine/tensor.h"
#include "engine/thread_pool.h"
#include "layers/cpu/isa.h"
#include "layers/cpu/isa_build.h"

#if PIPIT_ISA_X86
#include <immintrin.h>
#endif

namespace pipit {

namespace {

using Clock = std::chrono::steady_clock;

// Enough chains to hide the latency of a fused multiply-add (4 cycles, two a cycle) in the registers of AVX2.
constexpr int kChains = 12;
// x -> 0.5 x + 0.5 stays in the middle of the numbers, wherever it starts.
constexpr float kHalf = 0.5F;

// Each runs `rounds` steps of every chain and returns their sum, so that nothing is optimised away.
float chains_baseline(std::int64_t rounds) {
  constexpr int kLanes = 4;
  float x[kChains][kLanes] = {};
  for (std::int64_t r = 0; r < rounds; ++r) {
    for (auto& chain : x) {
      for (float& lane : chain) lane = lane * kHalf + kHalf;
    }
  }
  float sum = 0;
  for (const auto& chain : x) {
    for (const float lane : chain) sum += lane;
  }
  return sum;
}

#if PIPIT_ISA_X86
__attribute__((target("avx2,fma"))) float chains_avx2(std::int64_t rounds) {
  const __m256 half = _mm256_set1_ps(kHalf);
  __m256 x[kChains];
  for (__m256& chain : x) chain = _mm256_setzero_ps();
  for (std::int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) x[c] = _mm256_fmadd_ps(x[c], half, half);
  }
  for (int c = 1; c < kChains; ++c) x[0] = _mm256_add_ps(x[0], x[c]);
  return _mm256_cvtss_f32(x[0]);
}

__attribute__((target("avx512f"))) float chains_avx512(std::int64_t rounds) {
  const __m512 half = _mm512_set1_ps(kHalf);
  __m512 x[kChains];
  for (__m512& chain : x) chain = _mm512_setzero_ps();
  for (std::int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) x[c] = _mm512_fmadd_ps(x[c], half, half);
  }
  for (int c = 1; c < kChains; ++c) x[0] = _mm512_add_ps(x[0], x[c]);
  return _mm512_cvtss_f32(x[0]);
}
#endif

struct Chains {
  float (*run)(std::int64_t rounds);
  int lanes;
};

Chains widest_chains() {
#if PIPIT_ISA_X86
  switch (chosen_isa()) {
    case Isa::avx512:
    case Isa::avx512vnni:
      return {chains_avx512, 16};
    case Isa::avx2:
    case Isa::avxvnni:
      return {chains_avx2, 8};
    case Isa::baseline:
      break;
  }
#endif
  return {chains_baseline, 4};
}

// The shortest of several parallel runs of piece(index), one piece per thread, in seconds.
template <typename Piece>
double best_seconds(ThreadPool& pool, int repeats, Piece piece) {
  double best = 1e30;
  for (int r = 0; r < repeats; ++r) {
    const Clock::time_point begin = Clock::now();
    pool.parallel_for(pool.size(), [&](std::int64_t index, int) { piece(static_cast<std::size_t>(index)); });
    best = std::min(best, std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return best;
}

double flops_per_second(ThreadPool& pool) {
  constexpr std::int64_t kRounds = 1'000'000;  // some milliseconds
  const Chains chains = widest_chains();
  std::vector<float> sums(static_cast<std::size_t>(pool.size()));
  const double seconds = best_seconds(pool, 20, [&](std::size_t i) { sums[i] = chains.run(kRounds); });
  return 2.0 * kRounds * kChains * chains.lanes * pool.size() / seconds;
}

std::uint64_t sum_of(std::span<const std::uint64_t> words) {
  std::uint64_t sums[8] = {};
  for (std::size_t i = 0; i + 8 <= words.size(); i += 8) {
    for (std::size_t k = 0; k < 8; ++k) sums[k] += words[i + k];
  }
  std::uint64_t total = 0;
  for (const std::uint64_t sum : sums) total += sum;
  return total;
}

double bytes_per_second(ThreadPool& pool) {
  constexpr std::size_t kBytes = std::size_t{256} << 20;
  const std::size_t words = kBytes / sizeof(std::uint64_t) / static_cast<std::size_t>(pool.size());
  const HostBuffer buffer(kBytes);
  const auto* data = reinterpret_cast<const std::uint64_t*>(buffer.data());
  // Written by the thread that reads it: on machines with several memories it comes to lie near.
  pool.parallel_for(pool.size(), [&](std::int64_t i, int) {
    std::memset(buffer.data() + static_cast<std::size_t>(i) * words * sizeof(std::uint64_t), 1,
                words * sizeof(std::uint64_t));
  });
  std::vector<std::uint64_t> sums(static_cast<std::size_t>(pool.size()));
  const double seconds = best_seconds(pool, 5, [&](std::size_t i) {
    sums[i] = sum_of({data + i * words, words});
  });
  return static_cast<double>(words * sizeof(std::uint64_t)) * pool.size() / seconds;
}

}  // namespace

MachinePeak measure_cpu_peak(int threads) {
  const std::shared_ptr<ThreadPool> pool = shared_pool(threads);
  MachinePeak peak;
  peak.flops_per_second = flops_per_second(*pool);
  peak.bytes_per_second = bytes_per_second(*pool);
  return peak;
}

}  // namespace pipit
