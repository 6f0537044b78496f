// Groups of elements that are reduced to one value: which threads work on which group, and how they agree.
#pragma once

#include "layers/cuda/device/kernel.cuh"

namespace pipit::internal::cuda {

enum class TeamKind : int {
  warp,    ///< short groups: a warp each
  block,   ///< long groups: a block each
  across,  ///< neighbouring groups lie side by side in memory: one a lane, the rows of a block share each
};

inline constexpr int kWarp = 32;
inline constexpr int kMaxRows = 32;
inline constexpr int kTeamShared = kMaxRows * (kWarp + 1);  ///< elements of shared memory for reduce

/// How a grid is laid over the groups. Order and number of additions depend on the shapes only.
struct TeamPlan {
  TeamKind kind = TeamKind::warp;
  unsigned groups = 0;
  int rows = 8;  ///< of a block of kWarp columns

  /// For the loops over groups and inside one; `g` and `i` are the operand read.
  template <std::size_t G, std::size_t I>
  TeamPlan(const StridedLoop<G>& outer, std::size_t g, const StridedLoop<I>& inside, std::size_t i)
      : groups(static_cast<unsigned>(outer.size())) {
    if (outer.size() >= kWarp && smallest_stride(outer, g) < smallest_stride(inside, i)) {
      kind = TeamKind::across;
      rows = inside.size() >= 512 ? kMaxRows : 8;
    } else if (inside.size() > 256) {
      kind = TeamKind::block;
    }
  }
  dim3 block() const { return {kWarp, static_cast<unsigned>(rows)}; }
  unsigned grid() const {
    switch (kind) {
      case TeamKind::across:
        return blocks_for(groups, kWarp);
      case TeamKind::block:
        return groups;
      default:
        return blocks_for(groups, static_cast<unsigned>(rows));
    }
  }

 private:
  template <std::size_t N>
  static std::int64_t smallest_stride(const StridedLoop<N>& loop, std::size_t operand) {
    std::int64_t smallest = std::int64_t{1} << 40;
    for (int d = 0; d < loop.rank(); ++d) {
      if (loop.extent(d) > 1) smallest = std::min(smallest, loop.strides(d)[operand]);
    }
    return smallest;
  }
};

/// A thread's part: elements lane, lane + lanes, ... of group `group`. An inactive one still takes part in reduce.
struct Team {
  TeamKind kind;
  unsigned group, lane, lanes;
  bool active;

  __device__ explicit Team(const TeamPlan& plan) : kind(plan.kind) {
    switch (kind) {
      case TeamKind::across:
        group = blockIdx.x * kWarp + threadIdx.x;
        lane = threadIdx.y;
        lanes = blockDim.y;
        break;
      case TeamKind::block:
        group = blockIdx.x;
        lane = threadIdx.y * kWarp + threadIdx.x;
        lanes = kWarp * blockDim.y;
        break;
      default:
        group = blockIdx.x * blockDim.y + threadIdx.y;
        lane = threadIdx.x;
        lanes = kWarp;
    }
    active = group < plan.groups;
  }

  /// op over the values of the group's threads, the same bits in all of them. op must be commutative. `shared`:
  /// kTeamShared elements.
  template <typename T, typename Op>
  __device__ T reduce(T value, T* shared, Op op) const {
    const unsigned rows = blockDim.y;
    if (kind != TeamKind::across) {
      for (int mask = kWarp / 2; mask > 0; mask /= 2) value = op(value, shuffle(value, mask));
      if (kind == TeamKind::warp) return value;
    }
    const bool across = kind == TeamKind::across;
    const unsigned column = across ? threadIdx.x : 0;
    if (across || threadIdx.x == 0) shared[threadIdx.y * (kWarp + 1) + column] = value;
    __syncthreads();
    value = shared[column];
    for (unsigned r = 1; r < rows; ++r) value = op(value, shared[r * (kWarp + 1) + column]);
    __syncthreads();
    return value;
  }

 private:
  template <typename T>
  static __device__ T shuffle(T value, int mask) {
    static_assert(sizeof(T) % sizeof(unsigned) == 0);
    unsigned words[sizeof(T) / sizeof(unsigned)];
    memcpy(words, &value, sizeof value);
#pragma unroll
    for (unsigned& word : words) word = __shfl_xor_sync(0xFFFFFFFFU, word, mask);
    memcpy(&value, words, sizeof value);
    return value;
  }
};

struct Sum {
  template <typename W>
  __device__ W operator()(W a, W b) const {
    return a + b;
  }
};

/// The larger; NaN if either is.
struct Larger {
  template <typename W>
  __device__ W operator()(W a, W b) const {
    return a > b || a != a ? a : b;
  }
};

/// Launches kernel(plan, arguments...).
template <typename... Parameters, typename... Arguments>
void launch_teams(const char* name, void (*kernel)(Parameters...), const TeamPlan& plan,
                  const RunContext& context, const Arguments&... arguments) {
  if (plan.groups == 0) return;
  kernel<<<plan.grid(), plan.block(), 0, static_cast<cudaStream_t>(context.stream)>>>(plan, arguments...);
  check_launch(name);
}

}  // namespace pipit::internal::cuda
