// What a block of "spread_gemm" does for a tile of a convolution, piece by piece.
#pragma once

#include <cstdint>
#include <type_traits>

#include "layers/cuda/conv/gemm_epilogue.cuh"
#include "layers/cuda/conv/spread_gemm/plan.h"
#include "layers/cuda/device/ptx.cuh"
#include "layers/cuda/device/warpgroup_mma.cuh"

#ifdef PIPIT_WARPGROUP_MMA

namespace pipit::internal::cuda {

namespace spread {

/// The weights of a step: matrices of eight outputs x 16 bytes, one after the other, without a swizzle.
__device__ __forceinline__ std::uint64_t weights_descriptor(std::uint32_t address) {
  constexpr std::uint64_t kHalves = kSpreadStepWeights / 2 >> 4, kEightOutputs = 128 >> 4;
  return static_cast<std::uint64_t>((address & 0x3FFFF) >> 4) | kHalves << 16 | kEightOutputs << 32;
}

__device__ __forceinline__ int2 load_pair(std::uint32_t from) {
  int2 v;
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];\n" : "=r"(v.x), "=r"(v.y) : "r"(from) : "memory");
  return v;
}

__device__ __forceinline__ void store_pair(std::uint32_t to, int2 v) {
  asm volatile("st.shared.v2.u32 [%0], {%1, %2};\n" ::"r"(to), "r"(v.x), "r"(v.y) : "memory");
}

__device__ __forceinline__ std::uint32_t bits_of(int v) {
  return static_cast<std::uint32_t>(v);
}
__device__ __forceinline__ std::uint32_t bits_of(float v) {
  return __float_as_uint(v);
}
__device__ __forceinline__ void add_bits(int& to, std::uint32_t bits) {
  to += static_cast<int>(bits);
}
__device__ __forceinline__ void add_bits(float& to, std::uint32_t bits) {
  to += __uint_as_float(bits);
}
__device__ __forceinline__ void add_bits(BfloatSum& to, std::uint32_t bits) {
  to += __uint_as_float(bits);
}
template <typename Sum>
__device__ __forceinline__ void add_words(Sum (&to)[4], const uint4& words) {
  add_bits(to[0], words.x), add_bits(to[1], words.y), add_bits(to[2], words.z), add_bits(to[3], words.w);
}

/// A barrier of the threads that compute.
__device__ __forceinline__ void meet() {
  asm volatile("bar.sync 1, %0;\n" ::"n"(kSpreadThreads) : "memory");
}

/// Addresses in shared memory.
struct Rooms {
  std::uint32_t weights, x, zeros, places, sums, received;
};

/// What a block computes.
struct Tile {
  int slice, column_tile;
  int first_row, rows;  // of positions; those that there are
  int first_column;

  /// block: of all blocks of the convolution.
  __device__ __forceinline__ Tile(const SpreadArgs& p, int block) {
    const int tile = block >> p.slice_bits;
    slice = block - (tile << p.slice_bits);
    const int row_tile = p.column_tiles.divide(tile);
    column_tile = tile - row_tile * p.conv.column_tiles;
    first_row = row_tile * kSpreadRows, first_column = column_tile * kSpreadColumns;
    rows = min(p.conv.rows - first_row, kSpreadRows);
  }
};

/// One thread: the tile's weights, which count on `barrier`.
__device__ __forceinline__ void copy_weights(const SpreadArgs& p, const Tile& tile, std::uint32_t to,
                                             std::uint32_t barrier) {
  const int bytes = p.plan.steps * kSpreadStepWeights;
  const auto block = static_cast<std::int64_t>((tile.column_tile << p.slice_bits) + tile.slice);
  ptx::arrive_expecting(barrier, bytes);
  ptx::copy_bytes(to, static_cast<const std::uint8_t*>(p.conv.weights) + block * bytes, bytes, barrier);
}

/// Where the step's pixels lie from a position's first one, in bytes, and by how many rows and columns of x.
__device__ __forceinline__ int2 place_of(const SpreadArgs& p, int step) {
  const ConvShape& s = p.conv.shape;
  const int tap = p.steps_of_tap.divide(step), r = p.conv.kernel_width.divide(tap);
  if (r >= s.kernel_h) return make_int2(0, 0x7FFF << 16);  // below every image: zeros
  const int down = r * s.dilation_h, right = (tap - r * s.kernel_w) * s.dilation_w;
  return make_int2((down * s.in_w + right) * p.plan.pitch +
                       (step - tap * static_cast<int>(p.steps_of_tap.value)) * kSpreadStepBytes,
                   down << 16 | right);
}

/// All of them, and zeros for what lies outside of the image. A block barrier must follow.
__device__ __forceinline__ void store_places(const SpreadArgs& p, const Rooms& rooms) {
  const int thread = static_cast<int>(threadIdx.x);
  for (int step = thread; step < p.plan.steps; step += kSpreadThreads)
    store_pair(rooms.places + step * 8, place_of(p, step));
  if (thread < kSpreadStepBytes / 16) store_four(rooms.zeros + thread * 16, uint4{});
}

/// The pixels that a block holds, and the thread's copies of them: 16 bytes at a constant stride.
struct Pixels {
  int first, count;  // of x, one after the other; gathered: of the positions
  int first_row;     // of x, of all images one after the other
  int mine, stride;
  std::uint32_t to;
  const std::uint8_t* from;
  bool there;  // or beyond a pixel's channels: zeros

  __device__ __forceinline__ Pixels(const SpreadArgs& p, const Tile& tile, const Rooms& rooms) {
    const ConvShape& s = p.conv.shape;
    const SpreadRows rows =
        spread_rows(s, p.conv.positions, p.conv.out_width, tile.first_row, tile.first_row + tile.rows - 1);
    const bool whole = p.plan.held == SpreadPixels::rows;
    first_row = rows.first;
    first = whole ? rows.first * s.in_w : tile.first_row;
    count = whole ? (rows.last - rows.first + 1) * s.in_w : tile.rows;
    mine = static_cast<int>(threadIdx.x) >> p.plan.lane_bits;
    stride = kSpreadThreads >> p.plan.lane_bits;
    const int byte = (static_cast<int>(threadIdx.x) - (mine << p.plan.lane_bits)) * 16;
    if (byte >= p.plan.slice_bytes) count = 0;
    const int pixel_bytes = s.in_c * 2, of_pixel = tile.slice * p.plan.slice_bytes + byte;
    there = of_pixel < pixel_bytes;
    to = rooms.x + mine * p.plan.pitch + byte;
    from = static_cast<const std::uint8_t*>(p.conv.x) + (there ? of_pixel : 0);
    if (p.plan.held != SpreadPixels::gathered) from += static_cast<std::int64_t>(first + mine) * pixel_bytes;
  }

  __device__ __forceinline__ void copy(const SpreadArgs& p) const {
    const ConvShape& s = p.conv.shape;
    const int pixel_bytes = s.in_c * 2;
    if (p.plan.held == SpreadPixels::gathered) {
      std::uint32_t at = to;
      for (int i = mine; i < count; i += stride, at += stride * p.plan.pitch) {
        const PixelOrigin o = pixel_origin(s, p.conv.positions, p.conv.out_width, first + i);
        const int pixel = (o.image * s.in_h + o.h) * s.in_w + o.w;
        ptx::copy_async<16>(at, from + static_cast<std::int64_t>(pixel) * pixel_bytes, there);
      }
    } else {
      const std::uint8_t* next = from;
      std::uint32_t at = to;
      for (int i = mine; i < count; i += stride, at += stride * p.plan.pitch, next += stride * pixel_bytes)
        ptx::copy_async<16>(at, next, there);
    }
  }
};

/// A lane's row of the left operands: its position's first pixel, which may lie outside of the image.
struct LaneRow {
  std::uint32_t first, zeros;  // addresses
  int h, w;                    // of the first tap
  int height, width;           // of the image

  __device__ __forceinline__ LaneRow(const SpreadArgs& p, const Tile& tile, const Pixels& pixels,
                                     const Rooms& rooms) {
    const int row = static_cast<int>(threadIdx.x) % 128 / 32 * 16 + static_cast<int>(threadIdx.x) % 16;
    const int half = static_cast<int>(threadIdx.x) % 32 / 16 * 16;
    zeros = rooms.zeros + half;
    first = rooms.x + half;
    height = p.conv.shape.in_h, width = p.conv.shape.in_w;
    if (p.plan.held == SpreadPixels::rows) {
      const PixelOrigin at =
          pixel_origin(p.conv.shape, p.conv.positions, p.conv.out_width, tile.first_row + row);
      h = at.h, w = at.w;
      first += ((at.image * height + h - pixels.first_row) * width + w) * p.plan.pitch;
    } else {
      h = w = 0;
      first += row * p.plan.pitch;
    }
    if (row >= tile.rows) height = 0;
  }
  __device__ __forceinline__ std::uint32_t operator()(int2 place) const {
    const bool inside = static_cast<unsigned>(h + (place.y >> 16)) < static_cast<unsigned>(height) &&
                        static_cast<unsigned>(w + (place.y & 0xFFFF)) < static_cast<unsigned>(width);
    return inside ? first + place.x : zeros;
  }
};

/// The products of a group's share of the steps, some at once.
template <typename Sum>
struct Products {
  static constexpr int kAtOnce = 10;
  int count;
  std::uint32_t places;
  std::uint64_t weights;        // descriptor of the first step's
  std::uint32_t left[kAtOnce];  // addresses of the next ones

  __device__ __forceinline__ Products(const SpreadArgs& p, const Rooms& rooms)
      : count(p.plan.steps_of_group()) {
    // The same for all lanes, so that descriptors are put together in uniform registers.
    const int first = __shfl_sync(0xFFFFFFFFU, static_cast<int>(threadIdx.x) / 128, 0) * count;
    places = rooms.places + first * 8;
    weights = weights_descriptor(rooms.weights + first * kSpreadStepWeights);
  }
  __device__ __forceinline__ void find(const LaneRow& row, int step) {
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      if (step + u >= count) break;
      left[u] = row(load_pair(places + (step + u) * 8));
    }
  }
  // Without a branch between them, or the compiler would fence every one.
  template <int Count>
  __device__ __forceinline__ void issue(Sum (&sums)[kSpreadColumns / 8][4], int step) const {
    std::uint32_t operands[Count][4];
#pragma unroll
    for (int u = 0; u < Count; ++u) ptx::load_matrices(operands[u], left[u]);
    ptx::begin_products();
#pragma unroll
    for (int u = 0; u < Count; ++u)
      ptx::multiply_group(sums, operands[u], weights + (step + u) * (kSpreadStepWeights >> 4));
    ptx::end_products();
    ptx::wait_products();
  }
  /// After find(row, 0).
  __device__ __forceinline__ void multiply(const LaneRow& row, Sum (&sums)[kSpreadColumns / 8][4]) {
    int step = 0;
    while (true) {
      switch (min(count - step, kAtOnce)) {
        case 1:
          issue<1>(sums, step);
          break;
        case 2:
          issue<2>(sums, step);
          break;
        case 3:
          issue<3>(sums, step);
          break;
        case 4:
          issue<4>(sums, step);
          break;
        case 5:
          issue<5>(sums, step);
          break;
        case 6:
          issue<6>(sums, step);
          break;
        case 7:
          issue<7>(sums, step);
          break;
        case 8:
          issue<8>(sums, step);
          break;
        case 9:
          issue<9>(sums, step);
          break;
        default:
          issue<10>(sums, step);
      }
      step += kAtOnce;
      if (step >= count) return;
      find(row, step);
    }
  }
};

/// The group's sums to its place, channels in their order: a lane has eight neighbouring ones of two rows.
template <typename Sum>
__device__ __forceinline__ void store_sums(std::uint32_t to, const Sum (&sums)[kSpreadColumns / 8][4]) {
  const int thread = static_cast<int>(threadIdx.x);
  const int row = thread / 128 * kSpreadRows + thread % 128 / 32 * 16 + thread % 32 / 4;
  const std::uint32_t at = to + static_cast<std::uint32_t>(row * kSpreadSumPitch + thread % 4 * 32);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
#pragma unroll
    for (int q = 0; q < 2; ++q)
      store_four(at + h * 8 * kSpreadSumPitch + q * 16,
                 make_uint4(bits_of(sums[q * 2][h * 2]), bits_of(sums[q * 2][h * 2 + 1]),
                            bits_of(sums[q * 2 + 1][h * 2]), bits_of(sums[q * 2 + 1][h * 2 + 1])));
  }
}

/// Four neighbouring channels of a row are added up, and finished, by one thread: of kQuads rows, kRowStep apart.
struct Finish {
  static constexpr int kRowStep = kSpreadThreads / (kSpreadColumns / 4), kQuads = kSpreadRows / kRowStep;
  static_assert(kSpreadRows / 2 <= kRowStep);  // a share of two blocks and more is one row of every thread

  bool alone;          // or the cluster's blocks finish a share of the rows each
  int share, rows;     // of this block, those that there are
  int first, channel;  // the thread's first row, of the share
  int left;            // channels to y's end
  int first_at, step;  // in y, in elements

  __device__ __forceinline__ Finish(const SpreadArgs& p, const Tile& tile)
      : alone(p.plan.slices == 1), share(p.plan.share()) {
    rows = alone ? tile.rows : min(max(tile.rows - tile.slice * share, 0), share);
    first = static_cast<int>(threadIdx.x) / 8, channel = static_cast<int>(threadIdx.x) % 8 * 4;
    left = p.conv.shape.out_c - tile.first_column - channel;
    first_at = (tile.first_row + (alone ? 0 : tile.slice * share) + first) * p.conv.shape.out_c +
               tile.first_column + channel;
    step = kRowStep * p.conv.shape.out_c;
  }
  /// Bytes of the sums that the cluster's blocks send to this one: a barrier must not wait for sums that are never
  /// sent.
  __device__ __forceinline__ int received_bytes(const SpreadArgs& p) const {
    return alone ? 0 : rows * kSpreadColumns * 4 * p.plan.slices;
  }
  __device__ __forceinline__ bool has(int u) const { return first + u * kRowStep < rows && left > 0; }
  __device__ __forceinline__ int at(int u) const { return first_at + u * step; }

  /// What the groups have of the thread's row u.
  template <typename Sum>
  __device__ __forceinline__ void add_groups(const Rooms& rooms, int u, Sum (&sum)[4]) const {
#pragma unroll
    for (int g = 0; g < kSpreadGroups; ++g)
      add_words(sum, load_four(rooms.sums + (g * kSpreadRows + first + u * kRowStep) * kSpreadSumPitch +
                               channel * 4));
  }
  /// To the block that finishes the row. first_rank: in the cluster, of the blocks that share the tile; have_sums: the
  /// barrier on which what is sent counts.
  template <typename Sum>
  __device__ __forceinline__ void send(const SpreadArgs& p, const Tile& tile, const Rooms& rooms, int u,
                                       const Sum (&sum)[4], int first_rank, std::uint32_t have_sums) const {
    static_assert(kSpreadRows == 1 << 6);
    const int row = first + u * kRowStep;
    if (row >= tile.rows) return;
    const int bits = 6 - p.slice_bits, rank = row >> bits;
    const std::uint32_t to =
        rooms.received + (tile.slice * share + row - (rank << bits)) * (kSpreadColumns * 4) + channel * 4;
    const std::uint32_t words[4] = {bits_of(sum[0]), bits_of(sum[1]), bits_of(sum[2]), bits_of(sum[3])};
    ptx::send(ptx::in_block(to, first_rank + rank), words, ptx::in_block(have_sums, first_rank + rank));
  }
  /// What was received of the thread's row: always in the same order, so that the result does not depend on timing.
  template <typename Sum>
  __device__ __forceinline__ void add_received(const SpreadArgs& p, const Rooms& rooms, Sum (&sum)[4]) const {
#pragma unroll 4
    for (int slice = 0; slice < p.plan.slices; ++slice)
      add_words(sum,
                load_four(rooms.received + (slice * share + first) * (kSpreadColumns * 4) + channel * 4));
  }
};

}  // namespace spread

}  // namespace pipit::internal::cuda

#endif

namespace pipit::internal::cuda {

// The kernel of "spread_gemm" (plan.h): everything that does not depend on the previous kernel, weights included, is
// done before the wait for it. After the wait a block reads its pixels once, multiplies without waiting for
// anything, and sends its sums to those blocks of its cluster that finish them.

/// Sum: float for halves, BfloatSum for bfloat16, std::int32_t for bytes. Epilogue: SpreadHalf or SpreadInt8.
template <typename Sum, typename Epilogue>
__global__ void __launch_bounds__(kSpreadThreads, 2) spread_gemm(const __grid_constant__ SpreadArgs p) {
#ifdef PIPIT_WARPGROUP_MMA
  extern __shared__ __align__(128) std::uint8_t dynamic[];
  __shared__ __align__(16) typename Epilogue::Columns columns;
  __shared__ __align__(8) std::uint64_t barriers[2];
  const ConvGemmArgs& args = p.conv;
  const std::uint32_t base = ptx::shared_address(dynamic);
  const std::uint32_t have_weights = ptx::shared_address(barriers), have_sums = have_weights + 8;
  const spread::Rooms rooms{base,
                            base + p.plan.x_at(),
                            base + p.plan.zeros_at(),
                            base + p.plan.places_at(),
                            base + p.plan.sums_at(),
                            base + p.plan.received_at()};
  const spread::Tile tile(p, static_cast<int>(blockIdx.x));
  const spread::Finish finish(p, tile);
  if (threadIdx.x == 0) {
    ptx::init_barrier(have_weights, 1);
    ptx::init_barrier(have_sums, 1);
    ptx::publish_barriers();
    spread::copy_weights(p, tile, rooms.weights, have_weights);
    ptx::arrive_expecting(have_sums, finish.received_bytes(p));
  }
  // No block sends before all have their barriers, which publish_barriers() has made visible.
  if (!finish.alone) ptx::arrive_in_cluster();
  Epilogue::load(args, tile.first_column, columns);
  spread::store_places(p, rooms);
  const spread::Pixels pixels(p, tile, rooms);
  const spread::LaneRow row(p, tile, pixels, rooms);
  Sum sums[kSpreadColumns / 8][4] = {};
  __syncthreads();
  spread::Products<Sum> products(p, rooms);
  products.find(row, 0);

  typename Epilogue::Four held[spread::Finish::kQuads];
  const auto fetch_residual = [&] {
#pragma unroll
    for (int u = 0; u < spread::Finish::kQuads; ++u)
      held[u] = Epilogue::fetch_residual(args, finish.has(u), finish.at(u));
  };
  const auto wait = [] {
    ptx::wait_for_previous_kernel();
    ptx::release_next_kernel();
  };
  // Where x is settled only what is added to it, and y, have to wait.
  if (!p.x_is_settled) wait();
  pixels.copy(p);
  ptx::commit_copies();
  if (!p.x_is_settled) fetch_residual();
  if (!finish.alone) ptx::wait_in_cluster();
  ptx::wait_copies<0>();
  ptx::wait_barrier(have_weights, 0);
  __syncthreads();
  products.multiply(row, sums);
  if (p.x_is_settled) {
    wait();
    fetch_residual();
  }
  spread::store_sums(rooms.sums, sums);
  const typename Epilogue::Constants constants = Epilogue::constants(args, columns, finish.channel);
  __syncthreads();
#pragma unroll
  for (int u = 0; u < spread::Finish::kQuads; ++u) {
    Sum sum[4] = {};
    finish.add_groups(rooms, u, sum);
    if (!finish.alone) {
      finish.send(p, tile, rooms, u, sum, 0, have_sums);
    } else if (finish.has(u)) {
      Epilogue::finish(args, columns, constants, sum, held[u], finish.at(u), finish.left);
    }
  }
  if (finish.alone || !finish.has(0)) return;
  ptx::wait_barrier(have_sums, 0);
  Sum sum[4] = {};
  finish.add_received(p, rooms, sum);
  Epilogue::finish(args, columns, constants, sum, held[0], finish.at(0), finish.left);
#endif
}

// From sums to y in "spread_gemm", four neighbouring channels of a position at a time: halves and bfloat16.

/// Bias, residual, clamp and a function in float, one rounding. Function: ConvGemmArgs::function is computed.
template <typename SumType, bool Function>
struct SpreadHalf {
  using Sum = SumType;
  using Element = NarrowOf<Sum>;
  struct Columns {
    __align__(16) float bias[kSpreadColumns];
  };
  using Four = uint2;

  static __device__ __forceinline__ void load(const ConvGemmArgs& args, int first_column, Columns& columns) {
    const int c = static_cast<int>(threadIdx.x) * 4;
    if (c < kSpreadColumns)
      ptx::copy_async<16>(ptx::shared_address(columns.bias + c),
                          static_cast<const float*>(args.bias) + first_column + c, true);
  }
  static __device__ __forceinline__ Four fetch_residual(const ConvGemmArgs& args, bool finishes, int at) {
    if (!finishes || args.residual == nullptr || args.shape.out_c % 4 != 0) return {};
    return __ldcg(reinterpret_cast<const Four*>(static_cast<const Element*>(args.residual) + at));
  }
  struct Constants {
    float bias[4];
  };
  /// The constants of four channels.
  static __device__ __forceinline__ Constants constants(const ConvGemmArgs&, const Columns& columns,
                                                        int channel) {
    Constants c;
    *reinterpret_cast<float4*>(c.bias) = *reinterpret_cast<const float4*>(columns.bias + channel);
    return c;
  }
  static __device__ __forceinline__ void finish(const ConvGemmArgs& args, const Columns&,
                                                const Constants& constants, Sum (&sum)[4], Four held, int at,
                                                int left) {
    const bool whole = args.shape.out_c % 4 == 0;
    const auto* residual = static_cast<const Element*>(args.residual);
    auto* y = static_cast<Element*>(args.y);
    __align__(8) Element r[4];
    *reinterpret_cast<Four*>(r) = held;
    float v[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      v[j] = sum[j] + constants.bias[j];
      if (whole) {
        v[j] += cuda::load(r[j]);
      } else if (residual != nullptr && j < left) {
        v[j] += cuda::load(residual[at + j]);
      }
    }
    if constexpr (Function) {
      apply_clamped(args.function, args.low, args.high, v);
    } else {
#pragma unroll
      for (float& x : v) x = clamp_value(x, args.low, args.high);
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) r[j] = store<Element>(v[j]);
    if (whole) {
      *reinterpret_cast<Four*>(y + at) = *reinterpret_cast<const Four*>(r);
    } else {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (j < left) y[at + j] = r[j];
      }
    }
  }
};

// From sums to y in "spread_gemm", four neighbouring channels of a position at a time: INT8.

/// Int8Epilogue of four neighbouring channels. y is stored as ConvGemmArgs says; LooksUp: i8 through a table.
template <bool LooksUp>
struct SpreadInt8 {
  using Int8 = Int8Epilogue<ConvGemmTraits<kSpreadRows, kSpreadColumns, 2, 2, 4, 8, 4, std::int32_t>,
                            LooksUp ? Int8Result::looked_up : Int8Result::bytes>;
  struct Columns {
    typename Int8::Columns int8;
    __align__(16) int bias[kSpreadColumns];  // in the order of packed_channel, as multipliers are
  };
  using Four = std::uint32_t;

  static __device__ __forceinline__ void load(const ConvGemmArgs& args, int first_column, Columns& columns) {
    const auto copy = [](auto* to, const void* from, int first) {
      ptx::copy_async<16>(ptx::shared_address(to + first),
                          static_cast<const std::decay_t<decltype(*to)>*>(from) + first, true);
    };
    const int quad = static_cast<int>(threadIdx.x);
    if (quad < kSpreadColumns / 4) {
      copy(columns.int8.multiplier, args.multipliers + first_column, quad * 4);
      copy(columns.bias, static_cast<const int*>(args.bias) + first_column, quad * 4);
    }
    if constexpr (Int8::kLooksUp) {
      if (quad < static_cast<int>(sizeof columns.int8.table) / 16)
        copy(columns.int8.table, args.table, quad * 16);
    }
  }
  static __device__ __forceinline__ Four fetch_residual(const ConvGemmArgs& args, bool finishes, int at) {
    if (!finishes || args.residual == nullptr || args.shape.out_c % 4 != 0) return 0;
    return __ldcg(reinterpret_cast<const Four*>(static_cast<const std::uint8_t*>(args.residual) + at));
  }
  struct Constants {
    int first[4];  // the bias, and kMagicBits where sums are small
    float multiplier[4];
  };
  /// The constants of four channels.
  static __device__ __forceinline__ Constants constants(const ConvGemmArgs& args, const Columns& columns,
                                                        int channel) {
    Constants c;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int column = Int8::column_of(channel & ~7, (channel & 4) + j);
      c.first[j] = columns.bias[column] + (args.small ? kMagicBits : 0);
      c.multiplier[j] = columns.int8.multiplier[column];
    }
    return c;
  }
  static __device__ __forceinline__ void finish(const ConvGemmArgs& args, const Columns& columns,
                                                const Constants& constants, const int (&sum)[4], Four held,
                                                int at, int left) {
    const bool whole = args.shape.out_c % 4 == 0;
    float v[4];
#pragma unroll
    for (int j = 0; j < 4; ++j)
      v[j] = scaled(sum[j] + constants.first[j], constants.multiplier[j], args.small);
    if (whole && args.residual != nullptr) {
#pragma unroll
      for (int j = 0; j < 4; ++j)
        v[j] = with_residual(v[j], static_cast<float>(static_cast<signed char>(held >> j * 8)),
                             args.residual_scale);
    }
    const typename Int8::Bounds bounds{args.low, args.high};
    if (!whole) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (j < left) Int8::template store_one<!LooksUp>(args, columns.int8, v[j], at + j);
      }
    } else if (LooksUp || args.stored == StoredType::i8) {
      Int8::template store_run<StoredType::i8>(args, columns.int8, bounds, v, at, args.small);
    } else {
      store_clamped(args.stored, args.y, at, v, args.low, args.high);
    }
  }
};

}  // namespace pipit::internal::cuda
