// How "spread_gemm" shares a convolution of few output positions among the multiprocessors: a block computes 64
// positions x 32 outputs for a slice of the input channels and all taps, and the blocks of a cluster, one for each
// slice, add their sums up. Plain C++, so that it is tested without a GPU.
//
// A block holds all that it reads: the weights of its outputs and slice, and every pixel of x that its positions read,
// once for all taps. So nothing waits between the first product and the last.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "layers/cuda/conv/conv_tile.h"
#include "layers/cuda/conv/gemm_args.h"

namespace pipit::internal::cuda {

inline constexpr int kSpreadRows = 64;     ///< output positions of a block
inline constexpr int kSpreadColumns = 32;  ///< outputs of a block
inline constexpr int kSpreadGroups = 2;    ///< of four warps, which share the steps of a block
inline constexpr int kSpreadThreads = kSpreadGroups * 128;
inline constexpr int kSpreadStepBytes = 32;  ///< of a pixel's channels: the depth of one product
/// Bytes of the weights of one step: two halves of 16 bytes of k, in each the 32 outputs one after the other.
inline constexpr int kSpreadStepWeights = kSpreadColumns * kSpreadStepBytes;
inline constexpr int kSpreadMaxSteps = 512;
inline constexpr int kSpreadMaxSlices = 8;  ///< the widest cluster that every GPU with clusters launches
/// Shared memory of a block: half of a Hopper multiprocessor's, so that the next kernel's blocks find room beside it.
inline constexpr int kSpreadShared = (228 << 10) / 2 - 1024;
/// The part of it that is not dynamic: multipliers, biases, a table, barriers.
inline constexpr int kSpreadReserved = 2 << 10;
/// Sums of a row in shared memory, and what keeps two rows that are written together in different banks.
inline constexpr int kSpreadSumPitch = kSpreadColumns * 4 + 16;

/// Which pixels of x a block holds.
enum class SpreadPixels : std::uint8_t {
  rows,  ///< whole rows, for any window
  positions,  ///< one tap without stride and padding: those of the positions, which lie one after the other in x too
  gathered,  ///< the same with a stride
};

struct SpreadPlan {
  int slices = 1;       ///< blocks of a cluster, a power of two
  int slice_bytes = 0;  ///< of a pixel's channels, a multiple of kSpreadStepBytes
  int steps = 0;   ///< of a block: taps, and in them steps of the slice; then zeros, as many for every group
  int pixels = 0;  ///< of x that a block holds, at most
  int pitch = 0;   ///< bytes from one to the next
  int lane_bits = 0;  ///< 2^lane_bits threads copy a pixel, 16 bytes each
  SpreadPixels held = SpreadPixels::rows;

  // Offsets in dynamic shared memory, whose first bytes are the weights.
  PIPIT_HOST_DEVICE int x_at() const { return steps * kSpreadStepWeights; }
  PIPIT_HOST_DEVICE int zeros_at() const { return x_at() + pixels * pitch; }
  PIPIT_HOST_DEVICE int places_at() const { return zeros_at() + kSpreadStepBytes; }
  PIPIT_HOST_DEVICE int sums_at() const { return (places_at() + steps * 8 + 127) & ~127; }
  PIPIT_HOST_DEVICE int received_at() const {
    return sums_at() + kSpreadGroups * kSpreadRows * kSpreadSumPitch;
  }
  PIPIT_HOST_DEVICE int shared_bytes() const {
    return received_at() + (slices > 1 ? kSpreadRows * kSpreadColumns * 4 : 0);
  }
  /// Positions of a tile that each of the cluster's blocks finishes.
  PIPIT_HOST_DEVICE int share() const { return kSpreadRows / slices; }
  PIPIT_HOST_DEVICE int steps_of_group() const { return steps / kSpreadGroups; }
  /// "64x32/8"
  std::string name() const { return fmt::format("{}x{}/{}", kSpreadRows, kSpreadColumns, slices); }
};

/// The first and the last row of pixels of x, of all images one after the other, that positions [first, last] read.
struct SpreadRows {
  int first = 0, last = 0;
};
PIPIT_HOST_DEVICE inline SpreadRows spread_rows(const ConvShape& s, const Divisor& positions,
                                                const Divisor& width, int first, int last) {
  const PixelOrigin a = pixel_origin(s, positions, width, first), b = pixel_origin(s, positions, width, last);
  const int end = b.h + (s.kernel_h - 1) * s.dilation_h;
  const int begin_h = a.h < 0 ? 0 : a.h < s.in_h ? a.h : s.in_h - 1;
  const int end_h = end < 0 ? 0 : end < s.in_h ? end : s.in_h - 1;
  const int begin = a.image * s.in_h + begin_h, until = b.image * s.in_h + end_h;
  return {begin, until > begin ? until : begin};
}

// Tiles of more positions than this are not looked at one by one: such layers are not for this kernel.
inline constexpr std::int64_t kSpreadMaxTiles = 4096;

inline int spread_taps(const ConvShape& s) {
  return s.kernel_h * s.kernel_w;
}

inline SpreadPixels spread_held(const ConvShape& s) {
  // Padding after the last pixel is a position without one.
  const bool of_positions = spread_taps(s) == 1 && s.pad_h == 0 && s.pad_w == 0 &&
                            (s.out_h - 1) * s.stride_h < s.in_h && (s.out_w - 1) * s.stride_w < s.in_w;
  if (!of_positions) return SpreadPixels::rows;
  return s.out_h == s.in_h && s.out_w == s.in_w ? SpreadPixels::positions : SpreadPixels::gathered;
}

inline int spread_pixels(const ConvShape& s) {
  if (spread_held(s) != SpreadPixels::rows) return kSpreadRows;
  const Divisor positions(s.out_h * s.out_w), width(s.out_w);
  const auto rows = static_cast<int>(s.rows());
  int most = 0;
  for (int first = 0; first < rows; first += kSpreadRows) {
    const SpreadRows r = spread_rows(s, positions, width, first, std::min(first + kSpreadRows, rows) - 1);
    most = std::max(most, r.last - r.first + 1);
  }
  return most * s.in_w;
}

inline SpreadPlan spread_plan_of(const ConvShape& s, int slices) {
  SpreadPlan plan;
  plan.held = spread_held(s);
  plan.slices = slices;
  const int steps = static_cast<int>(ceil_div(s.in_c * 2, kSpreadStepBytes));
  const int of_slice = static_cast<int>(ceil_div(steps, slices));
  plan.slice_bytes = of_slice * kSpreadStepBytes;
  plan.steps = static_cast<int>(ceil_div(of_slice * spread_taps(s), kSpreadGroups)) * kSpreadGroups;
  plan.pixels = spread_pixels(s);
  // An odd number of 16 bytes: eight pixels that are read at once lie in different banks.
  plan.pitch = plan.slice_bytes + 16;
  while ((16 << plan.lane_bits) < plan.slice_bytes) ++plan.lane_bits;
  return plan;
}

inline bool spread_fits(const SpreadPlan& plan) {
  return plan.steps <= kSpreadMaxSteps && 1 << plan.lane_bits <= kSpreadThreads &&
         std::int64_t{plan.pixels} * plan.pitch + plan.steps * (kSpreadStepWeights + 8) <= kSpreadShared &&
         plan.shared_bytes() <= kSpreadShared - kSpreadReserved;
}

inline std::int64_t spread_tiles(const ConvShape& s) {
  return ceil_div(s.rows(), kSpreadRows) * ceil_div(s.out_c, kSpreadColumns);
}

/// The plans that there are, the one that is likely to be fastest first.
inline std::vector<SpreadPlan> spread_plans(const ConvShape& shape, int processors) {
  std::vector<SpreadPlan> plans;
  const std::int64_t steps = ceil_div(shape.in_c * 2, kSpreadStepBytes);
  for (int slices = 1; slices <= kSpreadMaxSlices && (slices == 1 || slices <= steps); slices *= 2) {
    if (SpreadPlan plan = spread_plan_of(shape, slices); spread_fits(plan)) plans.push_back(plan);
  }
  // As many blocks as there are multiprocessors; a few steps for each group are enough, since exchanging a cluster's
  // sums costs as much as several steps, and more for wider clusters (fitted on an H100 to clusters of four and eight
  // for 480 to 672 bytes at 14x14).
  const auto cost = [&](const SpreadPlan& plan) {
    const std::int64_t waves = ceil_div(spread_tiles(shape) * plan.slices, processors);
    return static_cast<double>(waves) * (8 + plan.steps) + (plan.slices > 1 ? 6 + plan.slices : 0);
  };
  std::stable_sort(plans.begin(), plans.end(),
                   [&](const SpreadPlan& a, const SpreadPlan& b) { return cost(a) < cost(b); });
  return plans;
}

/// Why there is no plan; nothing where spread_plans is not empty. shape: in_c in units of 16 bits, as in memory.
inline std::optional<std::string> refuse_spread(const ConvShape& shape) {
  if (shape.in_c % 8 != 0)
    return fmt::format("a pixel's channels must be a multiple of 16 bytes, not {}", shape.in_c * 2);
  if (ceil_div(shape.rows(), kSpreadRows) > kSpreadMaxTiles)
    return fmt::format("{} output positions are too many", shape.rows());
  if (shape.rows() * shape.out_c > std::numeric_limits<int>::max())
    return "the output is too large for 32-bit offsets";
  if (spread_taps(shape) > kSpreadMaxSteps)
    return fmt::format("a window of {} taps is too large", spread_taps(shape));
  if (spread_plans(shape, 1).empty()) return "shared memory has no room for weights and pixels of a tile";
  return std::nullopt;
}

/// Weights [out_c][in_c][kernel_h][kernel_w] of elements, in_c as in the shape (times two in INT8), for every column
/// tile and every slice of it: step by step, as the products read them. Outputs are in the order of packed_channel.
inline std::vector<std::byte> pack_spread(const ConvShape& s, const SpreadPlan& plan, int element_bytes,
                                          const std::byte* weights) {
  const int in_c = s.in_c * 2 / element_bytes, taps = spread_taps(s);
  const int of_slice = plan.slice_bytes / kSpreadStepBytes, of_step = kSpreadStepBytes / element_bytes;
  const auto tiles = static_cast<int>(ceil_div(s.out_c, kSpreadColumns));
  const std::size_t block_bytes = static_cast<std::size_t>(plan.steps) * kSpreadStepWeights;
  std::vector<std::byte> packed(block_bytes * static_cast<std::size_t>(tiles * plan.slices));
  const auto bytes = static_cast<std::size_t>(element_bytes);
  for (int tile = 0; tile < tiles; ++tile) {
    for (int row = 0; row < kSpreadColumns; ++row) {
      const int output = tile * kSpreadColumns + packed_channel(row);
      if (output >= s.out_c) continue;
      for (int c = 0; c < in_c; ++c) {
        const int step = c / of_step, slice = step / of_slice, byte = c % of_step * element_bytes;
        std::byte* block = packed.data() + block_bytes * static_cast<std::size_t>(tile * plan.slices + slice);
        for (int tap = 0; tap < taps; ++tap) {
          const int at = (tap * of_slice + step % of_slice) * kSpreadStepWeights +
                         byte / 16 * (kSpreadStepWeights / 2) + row * 16 + byte % 16;
          const std::size_t from = (static_cast<std::size_t>(output) * static_cast<std::size_t>(in_c) +
                                    static_cast<std::size_t>(c)) *
                                       static_cast<std::size_t>(taps) +
                                   static_cast<std::size_t>(tap);
          std::memcpy(block + at, weights + from * bytes, bytes);
        }
      }
    }
  }
  return packed;
}

// What the candidates ask of their kernels (launch.cu).

struct SpreadArgs {
  ConvGemmArgs conv;  ///< weights: pack_spread; of its depth nothing counts
  SpreadPlan plan;
  int slice_bits = 0;                  ///< plan.slices is a power of two
  bool x_is_settled = false;           ///< x may be read before the previous kernel has finished (RunContext)
  Divisor column_tiles, steps_of_tap;  ///< of conv.column_tiles, and of the steps that a slice's channels are
};

/// All but pointers and what the epilogue reads.
inline SpreadArgs spread_args(const ConvShape& shape, const SpreadPlan& plan) {
  SpreadArgs args;
  args.conv = conv_gemm_args(shape, KeptDepth(shape), {kSpreadRows, kSpreadColumns, 1});
  args.plan = plan;
  while (1 << args.slice_bits < plan.slices) ++args.slice_bits;
  args.column_tiles = Divisor(args.conv.column_tiles);
  args.steps_of_tap = Divisor(plan.slice_bytes / kSpreadStepBytes);
  return args;
}

/// Lets the kernel use its shared memory on the current GPU; of args only whether there is a function or, in INT8, a
/// table and what y is stored as count.
cudaError_t prepare_spread_gemm(const SpreadArgs& args);
/// After prepare_spread_gemm: launches only.
cudaError_t launch_spread_gemm(const SpreadArgs& args, cudaStream_t stream);

}  // namespace pipit::internal::cuda
