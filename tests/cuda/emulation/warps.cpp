// What the lanes of a warp do together: shuffles, votes, matrices in fragments (PTX ISA, "shfl.sync", "vote.sync",
// "ldmatrix", "mma").
#include <cstring>
#include <type_traits>

#include "engine/graph/half.h"
#include "tests/cuda/emulation/fibers.h"
#include "tests/cuda/emulation/order.h"
#include "tests/cuda/emulation/report.h"
#include "tests/cuda/emulation/shared_memory.h"

namespace pipit::internal::test::emulation {

namespace {

constexpr std::uint32_t kAllLanes = 0xFFFFFFFF;

// Lanes that meet do the same: instructions of one kind.
enum Kind { kShuffle, kVote, kSync, kFragmentsOfHalves, kFragmentsOfBytes, kLoadMatrices };

struct ShuffleLane {
  std::uint64_t value, result;
  int source, width;
};

void shuffle_all(void* const* lanes, std::uint32_t mask) {
  for (int l = 0; l < 32; ++l) {
    if ((mask >> l & 1) == 0) continue;
    auto& lane = *static_cast<ShuffleLane*>(lanes[l]);
    const int from = l / lane.width * lane.width + (lane.source & (lane.width - 1));
    if ((mask >> from & 1) == 0)
      fail("shfl.sync: lane {} reads lane {}, which is not in the mask {:#x}", l, from, mask);
    lane.result = static_cast<const ShuffleLane*>(lanes[from])->value;
  }
}

struct VoteLane {
  bool predicate;
  std::uint32_t result;
};

void vote_all(void* const* lanes, std::uint32_t mask) {
  std::uint32_t result = 0;
  for (int l = 0; l < 32; ++l) {
    if ((mask >> l & 1) != 0 && static_cast<const VoteLane*>(lanes[l])->predicate) result |= 1U << l;
  }
  for (int l = 0; l < 32; ++l) {
    if ((mask >> l & 1) != 0) static_cast<VoteLane*>(lanes[l])->result = result;
  }
}

struct MatricesLane {
  int count;
  const std::byte* row;
  std::uint32_t* out;
};

// Lane l gave the address of row l % 8 of matrix l / 8; it gets two halves of row l / 4 of each.
void load_all_matrices(void* const* lanes, std::uint32_t) {
  const int count = static_cast<const MatricesLane*>(lanes[0])->count;
  for (int m = 0; m < count; ++m) {
    for (int l = 0; l < 32; ++l) {
      const std::byte* row = static_cast<const MatricesLane*>(lanes[m * 8 + l / 4])->row;
      std::memcpy(static_cast<MatricesLane*>(lanes[l])->out + m, row + l % 4 * 4, 4);
    }
  }
}

template <typename T>
struct FragmentLane {
  T* c;
  const std::uint32_t *a, *b;
};

template <typename T>
void multiply_all(void* const* lanes, std::uint32_t) {
  constexpr int kDepth = std::is_same_v<T, float> ? 16 : 32, kOfWord = kDepth / 8;
  T a[16][kDepth], b[8][kDepth];
  const auto unpack = [](std::uint32_t word, T* to) {
    for (int e = 0; e < kOfWord; ++e) {
      if constexpr (std::is_same_v<T, float>) {
        to[e] = to_float(Half{static_cast<std::uint16_t>(word >> e * 16)});
      } else {
        to[e] = static_cast<std::int8_t>(word >> e * 8);
      }
    }
  };
  for (int l = 0; l < 32; ++l) {
    const auto& lane = *static_cast<const FragmentLane<T>*>(lanes[l]);
    const int k = l % 4 * kOfWord;
    for (int i = 0; i < 4; ++i) unpack(lane.a[i], &a[l / 4 + i % 2 * 8][k + i / 2 * kDepth / 2]);
    for (int i = 0; i < 2; ++i) unpack(lane.b[i], &b[l / 4][k + i * kDepth / 2]);
  }
  for (int l = 0; l < 32; ++l) {
    for (int i = 0; i < 4; ++i) {
      const T* row = a[l / 4 + i / 2 * 8];
      const T* column = b[l % 4 * 2 + i % 2];
      T sum{};
      for (int k = 0; k < kDepth; ++k) sum += row[k] * column[k];
      static_cast<const FragmentLane<T>*>(lanes[l])->c[i] += sum;
    }
  }
}

}  // namespace

std::uint64_t shuffle(std::uint32_t mask, std::uint64_t value, int lane, int width) {
  PIPIT_EMULATES("shfl.sync");
  ShuffleLane mine{value, 0, lane, width};
  meet(kShuffle, "shfl.sync", mask, &mine, shuffle_all);
  return mine.result;
}
std::uint32_t ballot(std::uint32_t mask, bool predicate) {
  PIPIT_EMULATES("vote.sync");
  VoteLane lane{predicate, 0};
  meet(kVote, "vote.sync", mask, &lane, vote_all);
  return lane.result;
}
void sync_warp(std::uint32_t mask) {
  PIPIT_EMULATES("bar.warp.sync");
  meet(kSync, "bar.warp.sync", mask, nullptr, [](void* const*, std::uint32_t) {});
}
void nanosleep() {
  PIPIT_EMULATES("nanosleep");
  wait_for_change();
}

void ldmatrix(int count, std::uint32_t address, std::uint32_t* out) {
  PIPIT_EMULATES("ldmatrix");
  perhaps_fall_behind(256);
  MatricesLane lane{count, nullptr, out};
  if (running->lane < count * 8) {
    Block& b = *running->warp->block;
    lane.row = checked(b, address, 16, "ldmatrix", 16);
    thread_reads(b, address, 16);
  }
  meet(kLoadMatrices + count, "ldmatrix", kAllLanes, &lane, load_all_matrices);
}
void mma(float (&c)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  PIPIT_EMULATES("mma.sync of halves");
  FragmentLane<float> lane{c, a, b};
  meet(kFragmentsOfHalves, "mma.sync", kAllLanes, &lane, multiply_all<float>);
}
void mma(int (&c)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  PIPIT_EMULATES("mma.sync of bytes");
  FragmentLane<int> lane{c, a, b};
  meet(kFragmentsOfBytes, "mma.sync", kAllLanes, &lane, multiply_all<int>);
}

}  // namespace pipit::internal::test::emulation
