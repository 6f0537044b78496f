// How "spread_gemm" shares a convolution of few output positions among the multiprocessors: a block computes 64
// positions x 32 outputs for a slice of the input channels and all taps, and the blocks of a cluster, one for each
// slice, add their sums up. Plain C++, so that it is tested without a GPU.
//
// A block holds all that it reads: the weights of its outputs and slice, and every pixel of x that its positions read,
// once for all taps. So nothing waits between the first product and the last.
#pragma once

#include <cstddef>
#include <cstdint>
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
  std::string name() const;  ///< "64x32/8"
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

/// Why there is no plan; nothing where spread_plans is not empty. shape: in_c in units of 16 bits, as in memory.
std::optional<std::string> refuse_spread(const ConvShape& shape);
/// The plans that there are, the one that is likely to be fastest first.
std::vector<SpreadPlan> spread_plans(const ConvShape& shape, int processors);

/// Weights [out_c][in_c][kernel_h][kernel_w] of elements, in_c as in the shape (times two in INT8), for every column
/// tile and every slice of it: step by step, as the products read them. Outputs are in the order of packed_channel.
std::vector<std::byte> pack_spread(const ConvShape& shape, const SpreadPlan& plan, int element_bytes,
                                   const std::byte* weights);

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
