// How "packed_gemm" multiplies by weights that are stored in 8 or 4 bits (WLinear, WConv), and in which order they lie.
// No CUDA: tested without a GPU.
//
// A warp multiplies a tile of 16 outputs by groups of 8 rows of x (pixels, of a convolution) with the tensor cores'
// product of halves (m16n8k16): integers of 8 bits are exact as halves, so products are exact, and sums are f32. A
// scale is applied to the sum of its group. By count, a weight takes more than three instructions on CUDA cores (two to
// decode it, one for each row to multiply it), and about one here for up to eight rows; four can be issued in the time
// in which half a byte comes from memory.
//
// k is cut so that a lane reads 16 neighbouring bytes of x and of weights: of every 32, lane t of four has those from
// 8 t on, which are k 2t, 2t + 1, 2t + 8 and 2t + 9 of two products.
//
// With few rows the kernel is bound by the memory that weights come from. Each warp copies the weights and scales of
// spans to come into a ring in shared memory, from before the wait for the previous kernel on, and reads x one span
// ahead. Registers would hold too little: by latency times bandwidth, 32 to 64 KB must be on their way to each
// multiprocessor of a Hopper card.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "layers/cuda/device/fast_division.h"
#include "layers/cuda/epilogue/functions.h"
#include "layers/ops/weight_only.h"

namespace pipit::internal::cuda {

inline constexpr int kPackedOutputs = 16;  ///< of a warp
inline constexpr int kPackedRows = 8;      ///< of a product
inline constexpr int kPackedChunk = 32;    ///< of k, in two products
inline constexpr int kPackedSpan = 128;    ///< of k, for which a warp reads weights at once

/// Bytes of a span of one tile in shared memory: integers, then the scales of its groups (0: none there).
constexpr int packed_span_bytes(int bits, int scales) {
  return kPackedOutputs * (kPackedSpan * bits / 8 + 4 * scales);
}
/// Spans in the ring of a warp with that many tiles, all but one of which are on their way while it multiplies. Blocks
/// of 8 warps take less than half of a Hopper multiprocessor's shared memory, so that the next kernel's also begin to
/// read; blocks of 16 fit once.
constexpr int packed_stages(int bits, int out_tiles) {
  return bits == 4 ? 5 : out_tiles == 1 ? 4 : 3;
}

/// Warps of a block, at most.
constexpr int packed_most_warps(int row_tiles) {
  return row_tiles <= 2 ? 16 : 8;
}

constexpr int packed_parts(int whole, int part) {
  return whole / part + (whole % part != 0 ? 1 : 0);
}

/// A matrix of weights as the kernels read it.
struct PackedShape {
  int bits = 8;
  int outputs = 1;
  int depth = 1;
  int group = 1;  ///< weights of a row that share a scale; depth: all

  PackedShape() = default;
  PackedShape(const WeightFormat& format, std::int64_t o, std::int64_t k)
      : bits(format.bits),
        outputs(static_cast<int>(o)),
        depth(static_cast<int>(k)),
        group(static_cast<int>(format.group(k))) {}

  int tiles() const { return packed_parts(outputs, kPackedOutputs); }
  int spans() const { return packed_parts(depth, kPackedSpan); }
  /// 16 bytes of each lane hold this much of k.
  int unit() const { return bits == 4 ? 2 * kPackedChunk : kPackedChunk; }
  int units() const { return packed_parts(depth, unit()); }
  int groups() const { return packed_parts(depth, group); }
  /// Scales of a span: 1, 2 or 4; 0 for a group that the kernels do not handle.
  int scales() const {
    if (groups() == 1) return 1;
    if (bits != 4) return 0;
    if (group % kPackedSpan == 0) return 1;
    return group == 32 || group == 64 ? kPackedSpan / group : 0;
  }
  /// Spans that a scale holds for, where there is one for a span.
  int spans_of_scale() const { return groups() == 1 ? std::max(1, spans()) : group / kPackedSpan; }
};

/// The weights in the order of lanes: [tiles][units][32 lanes][16 bytes], zeros after the last output and k. Integers
/// are stored as unsigned ones, 128 or 8 larger. Lane 4 g + t has outputs g and g + 8.
///  - 8 bits: byte 8 j + 4 h + 2 r + e is weight (g + 8 r, 8 t + 4 j + 2 h + e) of the 32;
///  - 4 bits: half-byte 16 c + 8 j + 2 h + r + 4 e is weight (g + 8 r, 32 c + 8 t + 4 j + 2 h + e) of the 64.
inline std::vector<std::uint8_t> pack_weights(const PackedShape& shape, const WeightFormat& format,
                                              const std::byte* integers) {
  const int unit = shape.unit(), zero = shape.bits == 4 ? 8 : 128;
  std::vector<std::uint8_t> packed(static_cast<std::size_t>(shape.tiles()) *
                                   static_cast<std::size_t>(shape.units()) * 512);
  const auto weight = [&](int o, int k) {
    if (o >= shape.outputs || k >= shape.depth) return zero;
    return format.at(integers + o * format.row_bytes(shape.depth), k) + zero;
  };
  std::uint8_t* to = packed.data();
  for (int tile = 0; tile < shape.tiles(); ++tile) {
    for (int u = 0; u < shape.units(); ++u) {
      for (int lane = 0; lane < 32; ++lane, to += 16) {
        for (int i = 0; i < 16 * 8 / shape.bits; ++i) {
          const bool bytes = shape.bits == 8;
          const int c = i / 16, j = i / 8 % 2, h = i / (bytes ? 4 : 2) % 2, r = i / (bytes ? 2 : 1) % 2;
          const int e = bytes ? i % 2 : i / 4 % 2;
          const int value = weight(tile * kPackedOutputs + lane / 4 + 8 * r,
                                   u * unit + 32 * c + lane % 4 * 8 + 4 * j + 2 * h + e);
          const int at = bytes ? i : i / 2, shift = bytes ? 0 : i % 2 * 4;
          to[at] = static_cast<std::uint8_t>(to[at] | value << shift);
        }
      }
    }
  }
  return packed;
}

/// scales [outputs, groups] as [tiles][groups][8][2]: of outputs g and g + 8; zeros after the last output.
inline std::vector<float> pack_scales(const PackedShape& shape, const float* scales) {
  std::vector<float> packed;
  packed.reserve(static_cast<std::size_t>(shape.tiles()) * static_cast<std::size_t>(shape.groups()) *
                 kPackedOutputs);
  for (int tile = 0; tile < shape.tiles(); ++tile) {
    for (int group = 0; group < shape.groups(); ++group) {
      for (int i = 0; i < kPackedOutputs; ++i) {
        const std::int64_t o = tile * kPackedOutputs + i / 2 + i % 2 * 8;
        packed.push_back(o < shape.outputs ? scales[o * shape.groups() + group] : 0);
      }
    }
  }
  return packed;
}

/// How the warps of a block share the work: those along k add up their sums, the others have outputs of their own.
struct PackedVariant {
  int row_tiles = 1;  ///< 1, 2, 4 or 8: of 8 rows each, multiplied by the same decoded weights
  int k_warps = 8;    ///< 1, 2, 4, 8 or 16
  int out_tiles = 1;  ///< of a warp, 1 or 2, multiplied by the same registers of x

  int warps() const { return std::max(8, k_warps); }
  int rows() const { return row_tiles * kPackedRows; }
  int outputs() const { return warps() / k_warps * out_tiles * kPackedOutputs; }
  std::string name() const {
    return std::to_string(rows()) + " rows x " + std::to_string(outputs()) + " outputs, " +
           std::to_string(k_warps) + " warps along k";
  }
};

/// Those that make sense: no rows that are all missing, no warp along k without a span. With few rows, where reading x
/// costs as much as weights, a warp has two tiles if registers suffice, and one only for the fewest outputs of a block;
/// and there may be 16 warps, because a warp waits for its own products most of the time. Names are unique.
inline std::vector<PackedVariant> packed_variants(const PackedShape& shape, std::int64_t rows) {
  std::vector<PackedVariant> variants;
  for (const int row_tiles : {1, 2, 4, 8}) {
    if (row_tiles > 1 && row_tiles / 2 * kPackedRows >= rows) break;
    const bool pairs = row_tiles == 1 || (row_tiles == 2 && shape.scales() < 4);
    bool fewest = true;
    for (const int k_warps : {16, 8, 4, 2, 1}) {
      if (k_warps > shape.spans() || k_warps > packed_most_warps(row_tiles)) continue;
      if (fewest || !pairs) variants.push_back({row_tiles, k_warps, 1});
      if (pairs) variants.push_back({row_tiles, k_warps, 2});
      fewest = fewest && k_warps > 8;
    }
  }
  return variants;
}

struct PackedGemmArgs {
  const void* weights = nullptr;  ///< pack_weights()
  const float* scales = nullptr;  ///< pack_scales()
  const float* bias = nullptr;    ///< [tiles * 16]
  const int* pixels =
      nullptr;  ///< of each position of an image of y, where its pixel begins in one of x, in elements,
                ///< or -1 in the padding; null: row r of x begins at r * depth
  const void* x = nullptr;                        ///< halves
  const void* residual = nullptr;                 ///< halves like y, or null
  void* y = nullptr;                              ///< [rows, outputs], halves or floats
  int bits = 8, scales_of_span = 1;               ///< which kernel
  int row_tiles = 1, out_tiles = 1, k_warps = 1;  ///< PackedVariant
  int rows = 0, outputs = 0, depth = 0;
  int tiles = 0, spans = 0, units = 0, groups = 1;
  int image = 0;           ///< elements of an image of x
  Divisor positions;       ///< of an image of y
  Divisor spans_of_scale;  ///< where a span has one scale
  bool vectors = false;    ///< 16 bytes of x at once: depth is a multiple of 8
  bool wide = false;       ///< y is f32
  float low = 0, high = 0;
  HalfFunction function;  ///< of what y would be, after the clamp
};

/// What the kernel takes of a matrix of weights, `rows` rows of x, and a variant. Pointers, pixels, and what is done to
/// a sum before it is stored, are left to the caller.
inline PackedGemmArgs packed_args(const PackedShape& shape, const PackedVariant& variant, int rows) {
  PackedGemmArgs args;
  args.bits = shape.bits, args.scales_of_span = shape.scales();
  args.row_tiles = variant.row_tiles, args.out_tiles = variant.out_tiles, args.k_warps = variant.k_warps;
  args.rows = rows, args.outputs = shape.outputs, args.depth = shape.depth;
  args.tiles = shape.tiles(), args.spans = shape.spans();
  args.units = shape.units(), args.groups = shape.groups();
  args.spans_of_scale = Divisor(std::max(1, shape.spans_of_scale()));
  args.vectors = shape.depth % 8 == 0;
  return args;
}

/// Of dynamic shared memory: the rings of all warps, and then sums of up to 32 rows.
inline int packed_shared_bytes(const PackedGemmArgs& args) {
  const int span = packed_span_bytes(args.bits, args.bits == 4 ? args.scales_of_span : 0);
  const int ring = packed_stages(args.bits, args.out_tiles) * args.out_tiles * span;
  const int sums = std::min(args.row_tiles, 4) * kPackedRows * (args.out_tiles * kPackedOutputs + 1) * 4;
  return PackedVariant{args.row_tiles, args.k_warps, args.out_tiles}.warps() * std::max(ring, sums);
}
/// The most that any launch of the same kernel takes: what a kernel may take is set once for all of them.
inline int packed_most_shared_bytes(PackedGemmArgs args) {
  args.k_warps = packed_most_warps(args.row_tiles);
  return packed_shared_bytes(args);
}

/// overlap: whether launches may overlap with the kernel before.
cudaError_t prepare_packed_gemm(const PackedGemmArgs& args, bool& overlap);
cudaError_t launch_packed_gemm(const PackedGemmArgs& args, bool overlap, cudaStream_t stream);

}  // namespace pipit::internal::cuda
