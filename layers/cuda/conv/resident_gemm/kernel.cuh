// The convolution kernel whose blocks keep their weights: a producer thread has the bulk tensor copy engine bring the
// weights of a column tile once and then the rows of x, one after the other, into a ring; groups of four warps take
// turns at tiles of kResidentRows positions, so that one multiplies while another writes.
#pragma once

#include <cstdint>

#include "layers/cuda/conv/gemm_tile.cuh"
#include "layers/cuda/conv/resident_gemm/plan.h"
#include "layers/cuda/device/launch.cuh"
#include "layers/cuda/device/ptx.cuh"

namespace pipit::internal::cuda {

/// A group of four warps as the fragments and epilogues of the implicit-GEMM kernel know it.
template <int Columns, typename Sum>
using ResidentTraits = ConvGemmTraits<kResidentRows, Columns, 2, 2, 3, 8, 1, Sum>;

/// One group more copies.
template <int Columns>
inline constexpr int kResidentThreads = most_resident_groups(Columns) * 128 + 128;

/// Registers of a thread that multiplies and of one that copies. A block has the registers that it was launched with,
/// for 64 columns 96 a thread, else 128: threads that multiply share what the others release, and would wait for more
/// forever.
template <int Columns>
inline constexpr int kResidentRegisters = Columns == 128 ? 160 : 112;
inline constexpr int kResidentFewRegisters = 24;
static_assert(most_resident_groups(128) * (kResidentRegisters<128> - 128) <= 128 - kResidentFewRegisters);
static_assert(most_resident_groups(64) * (kResidentRegisters<64> - 96) <= 96 - kResidentFewRegisters);

#ifdef PIPIT_WARPGROUP_MMA

namespace resident {

/// Addresses in shared memory. A row of x has two barriers that it alternates between, so that one whose row has been
/// awaited is never a whole round earlier or later than the threads that wait for its next.
struct Places {
  std::uint32_t weights, ring;
  std::uint32_t have_weights, have_row;
};

/// The row of the stream at which a position's window begins.
__device__ __forceinline__ int stream_row(const ResidentArgs& p, int position) {
  const int image = p.conv.positions.divide(position);
  const int rest = position - image * static_cast<int>(p.conv.positions.value);
  return image * p.plan.in_rows + p.conv.out_width.divide(rest) * p.conv.shape.stride_h;
}

struct Range {
  int first_tile, end_tile;
  int first_row;  // of the stream
  int span;       // rows of a window less one
};

__device__ __forceinline__ int last_row(const ResidentArgs& p, const Range& range, int tile) {
  return stream_row(p, min(tile * kResidentRows + kResidentRows, p.conv.rows) - 1) + range.span -
         range.first_row;
}

// One thread.
template <int Columns>
__device__ __forceinline__ void copy_weights(const ResidentArgs& p, const Places& at, int blocks) {
  constexpr int kStepBytes = Columns * kTileDepth * 2;
  for (int s = 0; s * kTileDepth / 8 < blocks; ++s) {
    ptx::arrive_expecting(at.have_weights + s * 8, kStepBytes);
    ptx::copy_box(at.weights + s * kStepBytes, p.weights, at.have_weights + s * 8, s * kTileDepth * 2,
                  static_cast<int>(blockIdx.x) * Columns);
  }
}

// One thread: the rows of x, as room for them is made.
__device__ __forceinline__ void copy_rows(const ResidentArgs& p, const Places& at, const Range& range,
                                          const int* done) {
  ptx::wait_for_previous_kernel();
  const int rows = last_row(p, range, range.end_tile - 1) + 1;
  const int row_bytes = p.plan.row_bytes();
  const int copied = p.plan.planes * p.plan.box_pixels * p.plan.pixel_bytes;
  int image = range.first_row / p.plan.in_rows;
  int h = range.first_row - image * p.plan.in_rows;
  int slot = 0, barrier = 0;
  int unfinished = range.first_tile;  // the first tile that is not known to be finished
  int unfinished_row = 0;             // at which it begins
  for (int row = 0; row < rows; ++row) {
    while (row - p.plan.ring_rows >= unfinished_row) {
      const int turn = unfinished - range.first_tile;
      const int group = turn % p.plan.groups;
      ptx::wait_counter(done + group, (turn / p.plan.groups + 1) * 4);
      ++unfinished;
      unfinished_row =
          unfinished < range.end_tile ? stream_row(p, unfinished * kResidentRows) - range.first_row : rows;
    }
    ptx::arrive_expecting(at.have_row + barrier * 8, copied);
    for (int plane = 0; plane < p.plan.planes; ++plane) {
      ptx::copy_box(at.ring + slot * row_bytes + plane * p.plan.plane_bytes(), p.x, at.have_row + barrier * 8,
                    plane * p.plan.pixel_bytes, -p.conv.shape.pad_w, h - p.conv.shape.pad_h, image);
    }
    if (++h == p.plan.in_rows) h = 0, ++image;
    if (++slot == p.plan.ring_rows) slot = 0;
    if (++barrier == 2 * p.plan.ring_rows) barrier = 0;
  }
}

/// How a lane finds its operands in the ring.
struct Lane {
  const int* places;    // of its half of every product
  std::uint32_t pixel;  // its position's first pixel
  std::uint32_t ring_end, ring_bytes;
  std::uint32_t swizzle;

  __device__ __forceinline__ std::uint32_t operator()(int place) const {
    std::uint32_t from = pixel + place;
    from -= from >= ring_end ? ring_bytes : 0;
    return from ^ (from >> 3 & swizzle);
  }
  // The left operands of a step. Paired: ResidentArgs::paired.
  template <bool Paired>
  __device__ __forceinline__ void load(std::uint32_t (&to)[4][4], int step) const {
    const int4 four = reinterpret_cast<const int4*>(places)[step];
    const std::uint32_t first = (*this)(four.x), third = (*this)(four.z);
    ptx::load_matrices(to[0], first);
    ptx::load_matrices(to[1], Paired ? first ^ 32 : (*this)(four.y));
    ptx::load_matrices(to[2], third);
    ptx::load_matrices(to[3], Paired ? third ^ 32 : (*this)(four.w));
  }
};

/// sums += the tile's positions * the weights. blocks: of k, two to a product. Fresh: copies of weights may still be in
/// flight. A step's left operands are loaded while the one before is multiplied. Between steps nothing is in flight:
/// the compiler serializes products that run on while a loop of two steps issues others, and there are other groups.
template <int Columns, bool Fresh, bool Paired, typename Sums>
__device__ __forceinline__ void multiply(Sums& sums, const Lane& lane, const Places& at, int blocks) {
  constexpr int kStepChunks = Columns * kTileDepth * 2 / 16;
  constexpr int kStepBlocks = kTileDepth / 8;
  std::uint64_t right = ptx::matrix_descriptor(at.weights);
  int done = 0;  // steps
  const auto await_weights = [&] {
    if constexpr (Fresh) ptx::wait_barrier(at.have_weights + done * 8, 0);
  };
  using Left = std::uint32_t[4][4];
  const auto step = [&](const Left& now, Left& next) {
    await_weights();
    ptx::begin_products();
#pragma unroll
    for (int u = 0; u < 4; ++u) ptx::multiply_group(sums, now[u], right + u * 2);
    ptx::end_products();
    lane.load<Paired>(next, ++done);
    ptx::wait_products();
    right += kStepChunks;
  };
  const int rest = blocks % kStepBlocks;
  // The last step, where it is not full. The second half of its last product may be nothing.
  const auto finish = [&](Left& left) {
    await_weights();
#pragma unroll
    for (int u = 0; u < 4; ++u) {
      if (rest == u * 2 + 1) left[u][2] = left[u][3] = 0;
    }
#pragma unroll
    for (int u = 0; u < 4; ++u) {
      if (rest <= u * 2) break;
      ptx::begin_products();
      ptx::multiply_group(sums, left[u], right + u * 2);
      ptx::end_products();
      ptx::wait_products();
    }
  };
  Left even, odd;
  lane.load<Paired>(even, 0);
  const int whole = blocks / kStepBlocks;
  for (int s = 1; s < whole; s += 2) {
    step(even, odd);
    step(odd, even);
  }
  if (whole % 2 > 0) {
    step(even, odd);
    if (rest > 0) finish(odd);
  } else if (rest > 0) {
    finish(even);
  }
}

// A group's tiles.
template <int Columns, typename Epilogue>
__device__ __forceinline__ void compute(const ResidentArgs& p, const Places& at, const Range& range,
                                        const typename Epilogue::Columns& columns, const int* places,
                                        int blocks, int* done) {
  const ConvGemmArgs& args = p.conv;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int first_column = static_cast<int>(blockIdx.x) * Columns;
  const std::uint32_t ring_bytes = p.plan.ring_rows * p.plan.row_bytes();
  ptx::wait_for_previous_kernel();
  const int group = warp / 4;
  Lane lane_of_tile{places + (lane / 16) * p.plan.places, 0, at.ring + ring_bytes, ring_bytes,
                    p.plan.pixel_bytes == 128 ? 0x70U : 0x30U};
  int awaited = 0;  // rows of the stream
  for (int tile = range.first_tile + group; tile < range.end_tile; tile += p.plan.groups) {
    const int position = min(tile * kResidentRows + warp % 4 * 16 + lane % 16, args.rows - 1);
    const int image = args.positions.divide(position);
    const int rest = position - image * static_cast<int>(args.positions.value);
    const int oh = args.out_width.divide(rest);
    const int row = image * p.plan.in_rows + oh * args.shape.stride_h - range.first_row;
    const int slot = row - p.ring.divide(row) * p.plan.ring_rows;
    lane_of_tile.pixel = at.ring + slot * p.plan.row_bytes() +
                         (rest - oh * args.shape.out_w) * args.shape.stride_w * p.plan.pixel_bytes;
    ConvGemmFragments<typename Epilogue::Traits> fragments;
    typename Epilogue::Held held;
    // The fragments believe that the groups' rows follow each other.
    const int first_row = (tile - group) * kResidentRows;
    Epilogue::start(args, fragments, columns, held, first_row, first_column);
    // The rows of the warp's positions, which ascend.
    awaited = max(awaited, __shfl_sync(0xFFFFFFFFU, row, 0));
    const int end = __shfl_sync(0xFFFFFFFFU, row, 15) + range.span + 1;
    for (; awaited < end; ++awaited) {
      const int round = p.barriers.divide(awaited);
      ptx::wait_barrier(at.have_row + (awaited - round * 2 * p.plan.ring_rows) * 8, round & 1);
    }
    __syncwarp();
    if (tile < range.first_tile + p.plan.groups) {
      multiply<Columns, true, false>(fragments.sums[0], lane_of_tile, at, blocks);
    } else if (p.paired) {
      multiply<Columns, false, true>(fragments.sums[0], lane_of_tile, at, blocks);
    } else {
      multiply<Columns, false, false>(fragments.sums[0], lane_of_tile, at, blocks);
    }
    __syncwarp();
    if (lane == 0) ptx::count_up(done + group);
    Epilogue::write_tile(args, fragments, columns, held, first_row, first_column);
  }
}

}  // namespace resident

#endif

/// Epilogue: ResidentHalf or ResidentInt8 of the same traits.
template <int Columns, typename Epilogue>
__global__ void __launch_bounds__(kResidentThreads<Columns>, 1)
    resident_gemm(const __grid_constant__ ResidentArgs p) {
#ifdef PIPIT_WARPGROUP_MMA
  extern __shared__ std::uint8_t dynamic[];
  __shared__ typename Epilogue::Columns columns;
  __shared__ std::uint64_t barriers[kResidentMaxSteps + 2 * kResidentMaxRing];
  __shared__ int done[4];  // warps that have finished tiles, of every group
  const ConvGemmArgs& args = p.conv;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int column_tile = static_cast<int>(blockIdx.x);
  const int worker = static_cast<int>(blockIdx.y);
  resident::Range range;
  range.first_tile = worker * p.least_tiles + min(worker, p.more_tiles);
  range.end_tile = range.first_tile + p.least_tiles + (worker < p.more_tiles ? 1 : 0);
  range.first_row = resident::stream_row(p, range.first_tile * kResidentRows);
  range.span = (args.shape.kernel_h - 1) * args.shape.dilation_h;

  resident::Places at;
  at.weights = (ptx::shared_address(dynamic) + 1023) & ~1023U;
  at.ring = at.weights + p.plan.steps * (Columns * kTileDepth * 2);
  at.have_weights = ptx::shared_address(barriers);
  at.have_row = at.have_weights + kResidentMaxSteps * 8;
  const std::uint32_t ring_bytes = p.plan.ring_rows * p.plan.row_bytes();
  const int blocks = p.tile_blocks != nullptr ? p.tile_blocks[column_tile] : p.blocks;
  const bool copies = static_cast<int>(threadIdx.x) == p.plan.groups * 128;
  if (copies) {
    for (int s = 0; s < p.plan.steps; ++s) ptx::init_barrier(at.have_weights + s * 8, 1);
    for (int r = 0; r < 2 * p.plan.ring_rows; ++r) ptx::init_barrier(at.have_row + r * 8, 1);
    ptx::publish_barriers();
    resident::copy_weights<Columns>(p, at, blocks);
  }
  // After the ring: the places of both halves.
  int* places = reinterpret_cast<int*>(dynamic + (at.ring - ptx::shared_address(dynamic)) + ring_bytes);
  for (int i = static_cast<int>(threadIdx.x); i < p.plan.places * 2; i += static_cast<int>(blockDim.x))
    places[i] = p.places[column_tile * p.plan.places * 2 + i];
  if (threadIdx.x < 4) done[threadIdx.x] = 0;
  Epilogue::load(args, column_tile * Columns, columns);
  __syncthreads();
  ptx::release_next_kernel();

  if (warp >= p.plan.groups * 4) {
    ptx::leave_registers<kResidentFewRegisters>();
    if (copies) resident::copy_rows(p, at, range, done);
  } else {
    ptx::take_registers<kResidentRegisters<Columns>>();
    resident::compute<Columns, Epilogue>(p, at, range, columns, places, blocks, done);
  }
#endif
}

/// A kernel's function, for a plan.
template <template <int> typename Epilogue>
const void* resident_function(const ResidentPlan& plan) {
  return plan.columns == 128 ? reinterpret_cast<const void*>(&resident_gemm<128, Epilogue<128>>)
                             : reinterpret_cast<const void*>(&resident_gemm<64, Epilogue<64>>);
}

}  // namespace pipit::internal::cuda
