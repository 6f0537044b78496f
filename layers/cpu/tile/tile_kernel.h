// The register-tile kernel: a few pixels times a panel of outputs, summed over K in registers, finished and
// stored once. Dense and pruned convolutions, Winograd's products and fully connected layers all run on it.
//
// It reads A where it lies: K is a list of *segments*, contiguous runs at given offsets from a pixel (after the
// indirect convolution of Dukhan, "The Indirect Convolution Algorithm", 2019, with an offset list instead of
// pointers). The pixels of a tile are two strips, each of evenly spaced pixels, with bases of their own: two
// output rows, or two pieces of one. All instruction sets sum up in the order of K, so a result does not depend
// on how pixels are cut into tiles.
//
// fp32, int8, fp16 and bf16 are one loop: a step of K is 4 bytes of A, that is one float, four u8 that meet four s8
// (without VNNI two of each, widened to 16 bits), or two halves or bfloat16 that meet two. Products of halves are
// summed up in halves, even and odd K apart, for a stretch of steps; then both are added, and their sum to an f32 total
// outside the registers. Products of bfloat16 are summed up in f32.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/graph/dtype.h"
#include "engine/platform/isa.h"

namespace pipit::internal {

/// Most pixels in a strip, and most vectors of outputs in a panel, of any instruction set.
inline constexpr int kMaxTileStrip = 16;
inline constexpr int kMaxTileVectors = 2;

/// Steps of K whose products are summed up in halves: twice as many products for an output. An addition in halves is
/// off by at most 2^-11 of its result, and a sum of n terms therefore, whatever they are, by n * 2^-11 of the sum of
/// their magnitudes; sums of random terms by about sqrt(n / 6) * 2^-11 of their own size.
inline constexpr int kHalfStretch = 32;

/// Element type of outputs and residuals.
enum class TileType : std::uint8_t { f32, u8, s8, f16, bf16 };

/// One call: 1 or 2 strips of pixels times one panel. Strides and offsets are in bytes.
/// C may be neither A nor the residual: pixels of overlapping strips are computed twice.
struct TileCall {
  const std::byte* a[2] = {};  ///< first pixel of each strip
  std::int64_t a_stride = 0;   ///< from pixel to pixel
  const std::int32_t* segments =
      nullptr;  ///< offsets from a pixel; multiples of an element's size from each other
  std::int32_t segment_count = 0;
  std::int32_t run = 0;  ///< steps (of 4 bytes) in every segment; 1 is as fast as many
  /// For segments of one step: each has `lanes` elements, and the last bits of an output's weight say which one it is
  /// multiplied by (picked_steps.h). For kernels that can.
  bool picks = false;
  /// The panel: [segment_count][run][vectors * lanes] steps, see pack order in tile_pack.h; 64-byte aligned.
  const std::byte* weights = nullptr;
  /// Where to prefetch (into the second-level cache) while computing, one line a step; may be any address.
  const std::byte* prefetch = nullptr;
  std::int64_t prefetch_step = 0;
  std::byte* c[2] = {};  ///< first output of the panel at the first pixel of each strip
  std::int64_t c_stride = 0;
  std::int32_t columns = 0;  ///< outputs to store: in ((vectors - 1) * lanes, vectors * lanes]

  // f32: c = clamp(sum + bias + residual, low, high). f16: c = clamp(sum * multiplier + bias + residual, low, high),
  // where c is stored as output_type says, f16 or f32, and the residual is f16. bf16: the same without a multiplier.
  const float* bias = nullptr;        ///< [columns], or null: 0
  const std::byte* residual[2] = {};  ///< of c's first outputs, or null
  std::int64_t residual_stride = 0;
  float low = 0;
  float high = 0;

  // u8 * s8, the arithmetic of layers/ops/quantization.h: value = float(sum + sum_bias) * multiplier, times
  // pixel_scale, plus bias, plus float(r - residual_zero_point) * residual_scale, or for f32 the residual; clamped, for
  // int8 rounded to nearest even and moved by the zero point. The zero point of A is the caller's to fold into
  // sum_bias.
  const std::int32_t* sum_bias = nullptr;  ///< [columns]
  const float* multiplier = nullptr;       ///< [columns]; f16: powers of two
  const float* pixel_scale[2] = {};        ///< of the first pixel of each strip, or null: 1
  std::int64_t pixel_scale_step = 0;       ///< floats from pixel to pixel
  float residual_scale = 0;
  std::int32_t residual_zero_point = 0;
  TileType residual_type = TileType::u8;
  TileType output_type = TileType::u8;
  std::int32_t zero_point = 0;
  bool small = false;  ///< results before they are clamped lie within 2^30 of 0, whatever the sums are
};

/// The tile kernels of one instruction set and one element type.
struct TileKernels {
  using Function = void (*)(const TileCall& call);
  Isa isa;
  int lanes;    ///< outputs in a vector
  int strip;    ///< most pixels in a strip; two such strips and two vectors fill the registers
  int step;     ///< elements of A in a step of K: 1 (f32), 2 (f16, bf16, s16, widened int8) or 4 (int8)
  int stretch;  ///< f16: steps that are summed up in halves
  bool picks;   ///< see TileCall::picks
  /// [strips - 1][pixels in a strip - 1][vectors - 1]
  Function tile[2][kMaxTileStrip][kMaxTileVectors];
  /// The tile's arithmetic without its memory: `steps` steps of K of the largest tile, on registers. What it reaches is
  /// this core's peak.
  void (*spin)(std::int64_t steps);
  /// See done(); null where there is nothing to do.
  void (*release)() = nullptr;

  /// Gives back what tiles have set up in their thread: to be called after the last one, before anything else runs.
  void done() const {
    if (release != nullptr) release();
  }
  /// Multiply-accumulates in a step of K of the largest tile.
  double step_macs() const { return 2.0 * strip * kMaxTileVectors * lanes * step; }
  int panel() const { return kMaxTileVectors * lanes; }
  /// Bytes of an element of A.
  std::int64_t element() const { return 4 / step; }
  /// Vectors that a panel of `columns` outputs takes.
  int vectors(std::int64_t columns) const { return columns > lanes ? 2 : 1; }
  /// Multiply-accumulates of a pixel with a step of K of such a panel.
  std::int64_t panel_macs(std::int64_t columns) const {
    return std::int64_t{vectors(columns)} * lanes * step;
  }
};

/// For `isa`, or the best that it contains. isa must be available.
const TileKernels& f32_tiles(Isa isa = chosen_isa());
/// Where step is 2, u8 and s8 come widened to 16 bits: only VNNI multiplies bytes without saturating.
const TileKernels& u8s8_tiles(Isa isa = chosen_isa());
/// The same for sums over `segments` segments of `run` steps: AMX is slower where there are few of them, or few that it
/// can multiply at a time; then these are the tiles of the instruction set below, which read the same bytes.
const TileKernels& u8s8_tiles_for(std::int64_t segments, std::int64_t run, Isa isa = chosen_isa());
/// Steps of K that AMX takes at a time from runs of `run` steps: as many as a tile register holds, 16, or fewer that
/// divide the run.
constexpr int amx_steps(std::int64_t run) {
  int steps = 16;
  while (run % steps != 0) --steps;
  return steps;
}
/// What AMX takes for sums over `runs` runs of `run` steps, in steps of VNNI for as many pixels.
double amx_cost(double runs, std::int64_t run);
/// Two s16 that meet two s16 in a step; sums are int32, modulo 2^32, and stored as they are: of the epilogue only
/// `columns` counts. Null for the baseline.
const TileKernels* s16_tiles(Isa isa = chosen_isa());
/// Null where the instruction set has no arithmetic on halves.
const TileKernels* f16_tiles(Isa isa = chosen_isa());
/// Null where this CPU has no products of bfloat16; for `isa`, which does not say so, or below.
const TileKernels* bf16_tiles(Isa isa = chosen_isa());
/// What u8s8_tiles_for() is to u8s8_tiles(); bf16_tiles() must not be null.
const TileKernels& bf16_tiles_for(std::int64_t segments, std::int64_t run, Isa isa = chosen_isa());
/// Tiles that multiply elements of this type, f16 or bf16, as they are stored; null where there are none.
const TileKernels* stored_tiles(DType stored);

/// How a row of pixels is cut into strips of equal size, of which the last may overlap its neighbour.
struct TileStrips {
  std::int64_t count = 0;
  std::int64_t size = 0;  ///< pixels in each
  std::int64_t pixels = 0;

  TileStrips(const TileKernels& kernels, std::int64_t row_pixels)
      : count((row_pixels + kernels.strip - 1) / kernels.strip),
        size(count == 0 ? 0 : (row_pixels + count - 1) / count),
        pixels(row_pixels) {}
  /// First pixel of strip i.
  std::int64_t start(std::int64_t i) const { return i * size < pixels - size ? i * size : pixels - size; }
};

/// How a single row of pixels is cut into pairs of strips. Strips of a pair are of one size, those of two pairs may
/// differ by a pixel: at most one pixel of the row is computed twice.
struct TilePairs {
  struct Pair {
    int strips = 0;  ///< 1 where the row is no longer than that
    std::int64_t size = 0;
    std::int64_t start[2] = {};
  };

  std::int64_t count = 0;
  std::int64_t pixels = 0;

  TilePairs(const TileKernels& kernels, std::int64_t row_pixels)
      : count((row_pixels + 2 * kernels.strip - 1) / (2 * kernels.strip)),
        pixels(row_pixels),
        single_(row_pixels <= kernels.strip) {}
  Pair pair(std::int64_t i) const {
    if (single_) return {1, pixels, {0, 0}};
    const std::int64_t halves = (pixels + 1) / 2;
    const std::int64_t begin = 2 * (halves * i / count);
    const std::int64_t size = halves * (i + 1) / count - halves * i / count;
    return {2, size, {begin, begin + 2 * size <= pixels ? begin + size : pixels - size}};
  }
  /// Pixels that are computed, those that are computed twice included.
  std::int64_t computed() const { return single_ ? pixels : (pixels + 1) / 2 * 2; }

 private:
  bool single_;
};

/// Runs `call` for pixels [0, pixels) of evenly spaced rows: pixel i of A, C and the residual lies i strides after
/// a[0], c[0] and residual[0] (a[1], c[1] and residual[1] are ignored). Prefetching goes on from tile to tile.
void run_tile_row(const TileKernels& kernels, const TileCall& call, std::int64_t pixels);

}  // namespace pipit::internal
