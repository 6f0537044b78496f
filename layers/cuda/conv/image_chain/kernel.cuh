// What the kernel of "image_chain" has beside its products: where values lie in shared memory, which rows a rank has,
// and which warps copy weights and constants.
#pragma once

#include <cstdint>

#include "layers/cuda/conv/chain/unit.cuh"
#include "layers/cuda/conv/image_chain/plan.h"
#include "layers/cuda/conv/resident_block/ring_window.cuh"
#include "layers/cuda/device/hopper_ptx.cuh"
#include "layers/cuda/device/ptx.cuh"
#include "layers/cuda/device/warpgroup_mma.cuh"

namespace pipit::cuda::image_chain {

inline constexpr int kConvolutions = 3;  // of a residual block

#ifdef PIPIT_WARPGROUP_MMA

/// What lies where in shared memory: addresses, the same in every rank.
struct Places {
  std::uint32_t x, weights, inner, zeros, constants;
  /// Barriers: of every stage of weights, that it is full, empty, and empty in all ranks; x has come; neighbours' rows
  /// have come; the constants of each of a block's convolutions have.
  std::uint32_t full, empty, all_empty, x_here, rows_here, constants_here;

  __device__ __forceinline__ Places(const ImageChainPlan& plan, std::uint32_t dynamic,
                                    std::uint32_t barriers) {
    x = (dynamic + 1023) & ~1023U;
    weights = x + (plan.x_bytes() + 1023) / 1024 * 1024;
    inner = weights + plan.ring * kImageStageBytes;
    zeros = inner + plan.inner_rows() * kImageInner;
    constants = zeros + kImageInner;
    full = barriers, empty = full + kImageMostRing * 8, all_empty = empty + kImageMostRing * 8;
    x_here = all_empty + kImageMostRing * 8, rows_here = x_here + 8, constants_here = rows_here + 8;
  }
};
inline constexpr int kBarriers = 3 * kImageMostRing + 2 + kConvolutions;

/// The rows of an image that are a rank's.
struct Part {
  int rank, first_row, positions;
  bool above, below;  // there are rows of another rank

  __device__ __forceinline__ explicit Part(const ImageChainPlan& plan)
      : rank(static_cast<int>(ptx::cluster_rank())),
        first_row(rank * plan.rows),
        positions(min(plan.rows, plan.height - first_row) * plan.width),
        above(rank > 0),
        below(rank + 1 < plan.ranks) {}
};

/// Stages of weights as the groups of a half see them, every second one.
struct Weights {
  std::uint32_t base, full, empty;
  int ring;
  int stage;
  std::uint32_t parity = 0;

  __device__ __forceinline__ void advance() {
    stage += kImageHalves;
    if (stage >= ring) stage -= ring, parity ^= 1;
  }
  /// Waits for the stage; its address.
  __device__ __forceinline__ std::uint32_t take() const {
    ptx::wait_barrier(full + stage * 8, parity);
    return base + stage * kImageStageBytes;
  }
  /// By a warp whose lanes have read what they need of it.
  __device__ __forceinline__ void leave(int lane) {
    __syncwarp();
    if (lane == 0) ptx::arrive(empty + stage * 8);
    advance();
  }
};

__device__ __forceinline__ int images_of_cluster(const ImageChainArgs& p) {
  const int cluster = static_cast<int>(blockIdx.x) / p.plan.ranks;
  return (p.plan.images - cluster + p.clusters - 1) / p.clusters;
}

/// Tells all ranks, each of which brings a share of what comes next, that a stage is empty here; of one thread. Warps
/// that told them by themselves would be too many.
__device__ __forceinline__ void tell_of_room(const ImageChainArgs& p, const Places& at) {
  const int stages = p.plan.blocks * p.plan.stages();
  int stage = 0;
  std::uint32_t parity = 1;
#pragma unroll 1
  for (int images = images_of_cluster(p); images > 0; --images) {
#pragma unroll 1
    for (int s = 0; s < stages; ++s) {
      ptx::wait_barrier(at.empty + stage * 8, parity);
      for (int rank = 0; rank < p.plan.ranks; ++rank)
        ptx::arrive_in_block(ptx::in_block(at.all_empty + stage * 8, static_cast<std::uint32_t>(rank)));
      if (++stage == p.plan.ring) stage = 0, parity ^= 1;
    }
  }
}

/// This rank's share, to all; of one thread.
__device__ __forceinline__ void bring_weights(const ImageChainArgs& p, const Places& at, int rank) {
  const int stages = p.plan.blocks * p.plan.stages();
  const int share = kImageStageBytes / p.plan.ranks;
  const auto all = static_cast<std::uint16_t>((1 << p.plan.ranks) - 1);
  int stage = 0;
  std::uint32_t parity = 0;
#pragma unroll 1
  for (int images = images_of_cluster(p); images > 0; --images) {
    const std::byte* from = p.weights + rank * share;
#pragma unroll 1
    for (int s = 0; s < stages; ++s, from += kImageStageBytes) {
      ptx::wait_barrier(at.all_empty + stage * 8, parity);
      ptx::arrive_expecting(at.full + stage * 8, kImageStageBytes);
      ptx::copy_bytes_to_all(at.weights + stage * kImageStageBytes + rank * share, from, share,
                             at.full + stage * 8, all);
      if (++stage == p.plan.ring) stage = 0, parity ^= 1;
    }
  }
}

/// The constants of a residual block's head (0), window (1) or tail (2); of one thread.
__device__ __forceinline__ void bring_constants(const ImageChainArgs& p, const Places& at, int block,
                                                int conv) {
  constexpr int kInnerBytes = kImageInner / kUnitChannels * kImageConstantBytes;
  const int bytes = conv < 2 ? kInnerBytes : p.plan.channels / kUnitChannels * kImageConstantBytes;
  const std::uint32_t barrier = at.constants_here + conv * 8;
  ptx::let_copies_overwrite();
  ptx::arrive_expecting(barrier, bytes);
  ptx::copy_bytes(at.constants + conv * kInnerBytes,
                  p.constants + block * p.plan.constant_units() * kImageConstantBytes + conv * kInnerBytes,
                  bytes, barrier);
}

#endif

}  // namespace pipit::cuda::image_chain

namespace pipit::cuda {

// The kernel of residual blocks whose values stay in the shared memory of a cluster (plan.h). Four groups
// of four warps multiply, one thread has the copy engine bring this rank's share of the weights to all ranks.

namespace image_chain {

inline constexpr int kMultiplying = kImageGroups * 128;  // threads
inline constexpr int kThreads = kMultiplying + 128;
/// Registers of a thread that multiplies: what those of the last four warps leave of the launch's registers.
inline constexpr int kRegisters = 112, kFewRegisters = 32;
inline constexpr int kProducts = kImageStageDepth / 32;  // of a stage's depth
inline constexpr int kUnitBytes = kUnitChannels * kImageStageDepth;

#ifdef PIPIT_WARPGROUP_MMA

using units::Outputs;
using Out = Outputs<std::int32_t>;

/// Sums of a tile and the outputs of a stage that are a group's.
template <int Units>
struct Sums {
  std::int32_t all[Units * 8][4];
  __device__ __forceinline__ units::Sums<std::int32_t>& unit(int u) {
    return *reinterpret_cast<units::Sums<std::int32_t>*>(&all[u * 8]);
  }
};

/// A group that multiplies. Tiles: of the rank; where there is one, two groups share a stage's outputs. Small: sums
/// begin with kMagicBits.
template <int Tiles, bool Small>
struct Group {
  static constexpr int kUnits = Tiles;  // of a stage's two
  using MySums = Sums<kUnits>;

  const ImageChainArgs& p;
  const Places& at;
  const Part& part;
  Weights weights;
  int half, tile, first_unit;
  int warp = static_cast<int>(threadIdx.x) / 32 % 4, lane = static_cast<int>(threadIdx.x) % 32;
  std::uint32_t parity = 0;  // of rows_here and constants_here, which every residual block waits for once
  PositionGrid grid{};

  __device__ __forceinline__ Group(const ImageChainArgs& args, const Places& places, const Part& of_rank)
      : p(args), at(places), part(of_rank) {
    // From one lane: the compiler serializes products in what it takes for divergent.
    const int group = __shfl_sync(0xFFFFFFFFU, static_cast<int>(threadIdx.x) / 128, 0);
    half = group / 2;
    tile = Tiles == 2 ? group % 2 : 0;
    first_unit = Tiles == 2 ? 0 : group % 2;
    weights = {at.weights, at.full, at.empty, p.plan.ring, half};
    grid = {p.image, p.row, p.plan.height, part.first_row * p.plan.width + part.positions};
  }

  __device__ __forceinline__ bool leads() const { return threadIdx.x == 0; }
  static __device__ __forceinline__ void meet() {
    asm volatile("bar.sync 1, %0;\n" ::"n"(kMultiplying) : "memory");
  }
  __device__ __forceinline__ std::uint32_t constants_of(int unit) const {
    return at.constants + unit * kImageConstantBytes + lane % 4 * 16;
  }
  /// The rank's position of a lane's sums.
  __device__ __forceinline__ int position(int row_half) const {
    return tile * kUnitRows + warp * 16 + lane / 4 + row_half * 8;
  }
  __device__ __forceinline__ std::uint32_t inner_at(int row, int channel) const {
    return units::swizzled<kImageInner>(at.inner + row * kImageInner + channel);
  }
  /// The group's first unit of 256 outputs, and the first of its channels that are a lane's.
  __device__ __forceinline__ int inner_unit() const { return half * 2 + first_unit; }
  __device__ __forceinline__ int inner_channel(int u) const {
    return (inner_unit() + u) * kUnitChannels + lane % 4 * 16;
  }
  __device__ __forceinline__ void start(MySums& sums, int unit) const {
#pragma unroll
    for (int u = 0; u < kUnits; ++u) units::start(sums.unit(u), constants_of(unit + u));
  }
  static __device__ __forceinline__ uint4 four(const Out& out) {
    return make_uint4(out.word[0], out.word[1], out.word[2], out.word[3]);
  }

  __device__ __forceinline__ void head(const PairBounds& bounds) {
    ptx::wait_barrier(at.constants_here, parity);
    MySums sums;
    start(sums, inner_unit());
    Weights ahead = weights;
#pragma unroll 1
    for (int chunk = 0; chunk < p.plan.chunks(); ++chunk) {
      const std::uint64_t left = units::descriptor<kImageStageDepth>(at.x + chunk * p.plan.chunk_bytes() +
                                                                     tile * kUnitRows * kImageStageDepth);
      const std::uint64_t right = units::descriptor<kImageStageDepth>(ahead.take() + first_unit * kUnitBytes);
      ahead.advance();
      ptx::begin_products();
#pragma unroll
      for (int k = 0; k < kProducts; ++k) ptx::multiply_group(sums.all, left + k * 2, right + k * 2);
      ptx::end_products();
      ptx::wait_products<1>();
      if (chunk > 0) weights.leave(lane);
    }
    ptx::wait_products();
    weights.leave(lane);
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
      Out outputs[2];
      Out::template finish<false, true, Small>(outputs, sums.unit(u), constants_of(inner_unit() + u), bounds,
                                               outputs, 0);
#pragma unroll
      for (int row_half = 0; row_half < 2; ++row_half) store_head(position(row_half), u, outputs[row_half]);
    }
  }

  /// To this rank's rows, and to the neighbours whose windows read them.
  __device__ __forceinline__ void store_head(int pixel, int u, const Out& out) const {
    if (pixel >= part.positions) return;
    const int width = p.plan.width, channel = inner_channel(u);
    store_four(inner_at(width + pixel, channel), four(out));
    if (part.above && pixel < width) send(inner_at(width + p.plan.positions() + pixel, channel), -1, out);
    const int of_last = pixel - (part.positions - width);
    if (part.below && of_last >= 0) send(inner_at(of_last, channel), 1, out);
  }
  __device__ __forceinline__ void send(std::uint32_t to, int away, const Out& out) const {
    const auto rank = static_cast<std::uint32_t>(part.rank + away);
    ptx::send(ptx::in_block(to, rank), out.word, ptx::in_block(at.rows_here, rank));
  }

  using Left = std::uint32_t[kProducts / 2][4];  // half of a stage's
  static __device__ __forceinline__ void load(Left& left, std::uint32_t from, int first) {
#pragma unroll
    for (int k = 0; k < kProducts / 2; ++k) ptx::load_matrices(left[k], from ^ (first + k) * 32);
  }
  static __device__ __forceinline__ void multiply(MySums& sums, const Left& left, std::uint64_t right,
                                                  int first) {
    ptx::begin_products();
#pragma unroll
    for (int k = 0; k < kProducts / 2; ++k) ptx::multiply_group(sums.all, left[k], right + (first + k) * 2);
    ptx::end_products();
  }

  __device__ __forceinline__ void window(const PairBounds& bounds) {
    const int pixel = tile * kUnitRows + warp * 16 + lane % 16;
    const units::RingWindow<kImageInner> window(grid, part.first_row * p.plan.width + pixel,
                                                pixel + p.plan.width, at.inner, p.plan.inner_rows(), at.zeros,
                                                lane);
    ptx::wait_barrier(at.constants_here + 8, parity);
    MySums sums;
    start(sums, kImageInner / kUnitChannels + inner_unit());
    Left first, second;
    std::uint32_t from = window.tap(0);
    load(first, from, 0);
    Weights ahead = weights;
#pragma unroll
    for (int tap = 0; tap < kBlockTaps; ++tap) {
#pragma unroll
      for (int chunk = 0; chunk < kImageInnerChunks; ++chunk) {
        const std::uint64_t right =
            units::descriptor<kImageStageDepth>(ahead.take() + first_unit * kUnitBytes);
        ahead.advance();
        multiply(sums, first, right, 0);
        ptx::wait_products<1>();
        if (tap > 0 || chunk > 0) weights.leave(lane);
        load(second, from, chunk * kProducts + kProducts / 2);
        multiply(sums, second, right, kProducts / 2);
        ptx::wait_products<1>();
        const int next = chunk + 1 < kImageInnerChunks ? chunk + 1 : 0;
        if (next == 0 && tap + 1 < kBlockTaps) from = window.tap(tap + 1);
        if (next > 0 || tap + 1 < kBlockTaps) load(first, from, next * kProducts);
      }
    }
    ptx::wait_products();
    weights.leave(lane);
    Out outputs[kUnits][2];
#pragma unroll
    for (int u = 0; u < kUnits; ++u)
      Out::template finish<false, true, Small>(outputs[u], sums.unit(u),
                                               constants_of(kImageInner / kUnitChannels + inner_unit() + u),
                                               bounds, outputs[u], 0);
    // All threads read the window's operands, and the results replace them.
    meet();
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
#pragma unroll
      for (int row_half = 0; row_half < 2; ++row_half) {
        const int row = position(row_half);
        if (row < part.positions)
          store_four(inner_at(p.plan.width + row, inner_channel(u)), four(outputs[u][row_half]));
      }
    }
  }

  using Operands = std::uint32_t[kImageInnerChunks * kProducts][4];
  __device__ __forceinline__ void load_operands(Operands& operands) const {
    const int pixel = tile * kUnitRows + warp * 16 + lane % 16, k_half = lane / 16 * 16;
    const std::uint32_t from =
        pixel < part.positions ? inner_at(p.plan.width + pixel, k_half) : at.zeros + k_half;
#pragma unroll
    for (int k = 0; k < kImageInnerChunks * kProducts; ++k) ptx::load_matrices(operands[k], from ^ k * 32);
  }

  /// The other group has this stage to itself.
  __device__ __forceinline__ void pass() {
    weights.take();
    weights.leave(lane);
  }

  /// y, of the rank's rows of the image, or null where the results are the next block's x.
  __device__ __forceinline__ void tail(const ImageChainBounds& bounds, std::byte* y) {
    Operands operands;
    load_operands(operands);
    ptx::wait_barrier(at.constants_here + 16, parity);
    const units::RowPlaces in_y = units::row_places(position(0), part.positions, p.plan.channels);
#pragma unroll 1
    for (int outputs = 0; outputs < p.plan.channels; outputs += kImageInner) {
#pragma unroll
      for (int u = 0; u < kUnits; ++u) {
        if (kUnits == 1 && first_unit == 1) pass();
        const int unit = outputs / kUnitChannels + inner_unit() + u;
        const std::uint32_t constants = constants_of(2 * kImageInner / kUnitChannels + unit);
        units::Sums<std::int32_t> sums;
        units::start(sums, constants);
        const std::uint32_t here = weights.take();
        ptx::begin_products();
#pragma unroll
        for (int chunk = 0; chunk < kImageInnerChunks; ++chunk) {
          const std::uint64_t right = units::descriptor<kImageStageDepth>(here + chunk * kUnitBytes);
#pragma unroll
          for (int k = 0; k < kProducts; ++k)
            ptx::multiply_group(sums, operands[chunk * kProducts + k], right + k * 2);
        }
        ptx::end_products();
        std::uint32_t places[2];
        Out held[2], results[2];
#pragma unroll
        for (int row_half = 0; row_half < 2; ++row_half) {
          places[row_half] = units::swizzled<kImageStageDepth>(at.x + unit / 2 * p.plan.chunk_bytes() +
                                                               position(row_half) * kImageStageDepth +
                                                               unit % 2 * kUnitChannels + lane % 4 * 16);
          const uint4 x = position(row_half) < part.positions ? load_four(places[row_half]) : uint4{};
          std::uint32_t(&word)[4] = held[row_half].word;
          word[0] = x.x, word[1] = x.y, word[2] = x.z, word[3] = x.w;
        }
        ptx::wait_products();
        weights.leave(lane);
        if (kUnits == 1 && first_unit == 0) pass();
        Out::template finish<true, true, Small>(results, sums, constants, bounds.tail, held,
                                                bounds.residual_scale);
        if (y != nullptr) {
          units::write_rows(y + unit * kUnitChannels, in_y, results);
          continue;
        }
#pragma unroll
        for (int row_half = 0; row_half < 2; ++row_half) {
          if (in_y.exist[row_half]) store_four(places[row_half], four(results[row_half]));
        }
      }
    }
    ptx::publish_shared();
  }

  __device__ __forceinline__ void bring_x(int image) const {
    const int bytes = p.plan.positions() * kImageStageDepth;
    ptx::arrive_expecting(at.x_here, p.plan.chunks() * bytes);
    for (int chunk = 0; chunk < p.plan.chunks(); ++chunk)
      ptx::copy_box(at.x + chunk * p.plan.chunk_bytes(), p.x, at.x_here, chunk * kImageStageDepth,
                    (image * p.plan.height + part.first_row) * p.plan.width);
  }

  __device__ __forceinline__ void run() {
    const int ranks = static_cast<int>(part.above) + static_cast<int>(part.below);
    const int images = images_of_cluster(p);
    int image = static_cast<int>(blockIdx.x) / p.plan.ranks;
    if (leads()) {
      for (int conv = 0; conv < kConvolutions; ++conv) bring_constants(p, at, 0, conv);
    }
    ptx::wait_for_previous_kernel();
#pragma unroll 1
    for (int i = 0; i < images; ++i, image += p.clusters) {
      if (leads()) bring_x(image);
      ptx::wait_barrier(at.x_here, static_cast<std::uint32_t>(i) & 1);
#pragma unroll 1
      for (int block = 0; block < p.plan.blocks; ++block) {
        const bool last = block + 1 == p.plan.blocks;
        const int next = !last ? block + 1 : i + 1 < images ? 0 : -1;  // whose constants come
        if (leads() && ranks > 0) ptx::arrive_expecting(at.rows_here, ranks * p.plan.width * kImageInner);
        head(p.bounds[block].head);
        meet();
        if (leads() && next >= 0) bring_constants(p, at, next, 0);
        if (ranks > 0) ptx::wait_cluster_barrier(at.rows_here, parity);
        window(p.bounds[block].window);
        meet();
        if (leads() && next >= 0) bring_constants(p, at, next, 1);
        tail(p.bounds[block],
             !last ? nullptr
                   : p.y + (static_cast<std::int64_t>(image) * p.plan.height + part.first_row) *
                               p.plan.width * p.plan.channels);
        meet();
        if (leads() && next >= 0) bring_constants(p, at, next, 2);
        parity ^= 1;
      }
    }
  }
};

#endif

}  // namespace image_chain

template <int Tiles, bool Small>
__global__ void __launch_bounds__(image_chain::kThreads, 1)
    run_image_chain(const __grid_constant__ ImageChainArgs p) {
#ifdef PIPIT_WARPGROUP_MMA
  using namespace image_chain;
  extern __shared__ std::uint8_t dynamic[];
  __shared__ std::uint64_t barriers[kBarriers];
  const Places at(p.plan, ptx::shared_address(dynamic), ptx::shared_address(barriers));
  const Part part(p.plan);
  const auto thread = static_cast<int>(threadIdx.x);
  if (thread == kMultiplying) {
    for (int s = 0; s < p.plan.ring; ++s) {
      ptx::init_barrier(at.full + s * 8, 1);
      ptx::init_barrier(at.empty + s * 8, kImageGroups / kImageHalves * 4);  // the warps of a half's groups
      ptx::init_barrier(at.all_empty + s * 8, p.plan.ranks);
    }
    ptx::init_barrier(at.x_here, 1);
    ptx::init_barrier(at.rows_here, 1);
    for (int conv = 0; conv < kConvolutions; ++conv) ptx::init_barrier(at.constants_here + conv * 8, 1);
    ptx::publish_barriers();
  }
  if (thread < kImageInner / 16) store_four(at.zeros + thread * 16, uint4{});
  // Copies and arrivals go to other ranks' shared memory.
  ptx::cluster_barrier();
  ptx::release_next_kernel();
  if (thread >= kMultiplying) {
    ptx::leave_registers<kFewRegisters>();
    if (thread == kMultiplying) bring_weights(p, at, part.rank);
    if (thread == kMultiplying + 32) tell_of_room(p, at);
  } else {
    ptx::take_registers<kRegisters>();
    Group<Tiles, Small>(p, at, part).run();
  }
  // No rank exits while another may still write or arrive here.
  __syncwarp();
  ptx::cluster_barrier();
#endif
}

}  // namespace pipit::cuda
