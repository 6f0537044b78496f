// Kernels over rows of NHWC data with fused multiply-add, compiled once per instruction set.
#pragma once

#include <cstdint>
#include <type_traits>

#include "engine/graph/dtype.h"
#include "layers/cpu/vector/taps.h"

namespace pipit::internal {

/// What INT8 does with its sums, as layers/ops/qconv.h has it; arrays reach to the end of the last register.
struct ByteFinish {
  const std::int32_t* bias = nullptr;
  const float* multiplier = nullptr;
  float x_zero_point = 0;
  float residual_zero_point = 0;
  float residual_scale = 0;
  float* real = nullptr;  ///< where results go that are not quantized, instead of y
  int zero_point = 0;     ///< of y
};

/// Tiles of a depthwise convolution: `columns` neighbouring output pixels of one row, channels [0, channels).
/// T is what activations are stored in; arithmetic is f32, also of u8: its sums are integers, exact below 2^24.
template <typename T>
struct DepthwiseTile {
  /// Where every row of taps has a column of its own choice, at the first channel, and how many elements after that
  /// the first pixel is. With `pixels` these are ignored and pixels[row * row_pixels + i] is pixel i of that row:
  /// outside the image a row of zeros.
  const T* const* row_starts = nullptr;
  std::int64_t first = 0;
  const T* const* pixels = nullptr;
  std::int64_t row_pixels = 0;
  std::int64_t pixel_step = 0;  ///< elements from pixel to pixel of x (without `pixels`)
  std::int64_t rows = 0;        ///< rows of taps to add up
  const float* weights =
      nullptr;  ///< [channel vectors][kernel rows][kernel columns][lanes], at the first row of taps
  std::int64_t weights_step = 0;  ///< floats from channel vector to channel vector
  const float* bias = nullptr;    ///< may be null
  const T* residual = nullptr;    ///< may be null; steps as y
  T* y = nullptr;
  std::int64_t y_step = 0;  ///< elements from pixel to pixel
  std::int64_t channels = 0;
  std::int64_t columns = 0;  ///< pixels to store, at most the function's tile width
  /// Without `pixels`: how many tiles lie side by side, of the whole width if there are several.
  std::int64_t tiles = 1;
  float low = 0;
  float high = 0;
  std::int64_t kernel = 0;  ///< taps in a row; read by the general function only
  ByteFinish bytes;         ///< u8: instead of the bias; low and high are in steps of y
};

/// Output pixels of a wide and of a narrow tile.
inline constexpr int kWideTile = 7;
inline constexpr int kNarrowTile = 4;

template <typename T>
struct DepthwiseKernels {
  using Function = void (*)(const DepthwiseTile<T>& tile);
  /// Dilation 1: [(kernel columns - 3) / 2: 3, 5, 7][stride - 1: 1, 2][wide, narrow][through `pixels`].
  Function special[3][2][2][2];
  /// Any kernel, stride and dilation, wide tiles. Only through `pixels`, where a row of taps holds a tile's pixels of
  /// the first tap, of the second and so on.
  Function general;
};

/// A register of outputs in some evenly spaced pixels of a row: where they begin, in elements from what WindowTile and
/// WindowOutput begin with.
struct WindowJob {
  std::int64_t x = 0;
  std::int64_t weights = 0;
  std::int64_t y = 0;
  std::int64_t channel = 0;
  std::int64_t count = 0;  ///< elements of y
};

/// Sums of a convolution of small groups, of any window, for some jobs. Input pixel p of a chain meets tap k for output
/// p - k, so that it is loaded once for all taps of a chain. Where a group has several channels, or a register several
/// pixels, lanes take their operand from where `lanes` says, one channel of every group a pass.
struct WindowTile {
  const WindowJob* jobs = nullptr;
  std::int64_t job_count = 0;
  const float* const* rows = nullptr;  ///< every row of taps
  std::int64_t row_count = 0;
  std::int64_t x_offset = 0;       ///< floats, added to every row
  std::int64_t x_step = 0;         ///< floats from output to output, and from tap to tap of a chain
  std::int64_t x_link = 0;         ///< from chain to chain
  const float* weights = nullptr;  ///< [passes][lanes] of the first tap in the first row
  std::int64_t weights_row = 0;    ///< floats from row to row of taps
  std::int64_t weights_step = 0;   ///< from tap to tap of a chain
  std::int64_t weights_link = 0;   ///< from chain to chain
  std::int64_t links = 1;          ///< chains that follow each other
  std::int64_t passes = 1;
  const std::int32_t* lanes = nullptr;  ///< [passes][lanes]; null: pass 0 alone, every lane its own element
  bool more = false;                    ///< add to what is in `sums`
  float* sums = nullptr;                ///< [jobs][columns][lanes]
};

struct WindowKernels {
  using Function = void (*)(const WindowTile& tile);
  static constexpr int kWidths = 3;
  static constexpr int kMaxTaps = 7;
  int columns[kWidths];                      ///< of a tile, the widest first; 0: there is none
  int taps;                                  ///< most of a chain
  Function chain[kWidths][kMaxTaps + 1][2];  ///< [width][taps of a chain][with `lanes`]
};

/// Pixels that are copied as floats; steps from pixel to pixel in elements.
template <typename T>
struct StagedPixels {
  const T* x = nullptr;
  std::int64_t x_step = 0;
  float* y = nullptr;
  std::int64_t y_step = 0;
  std::int64_t pixels = 0;
  std::int64_t channels = 0;
  float zero_point = 0;  ///< of bytes; taken off
};

/// What becomes of the sums of jobs.
template <typename T>
struct WindowOutput {
  const WindowJob* jobs = nullptr;
  std::int64_t job_count = 0;
  const float* sums = nullptr;
  const std::int32_t* whole = nullptr;  ///< null, or bytes: likewise, to be added; of one job
  std::int64_t sums_step = 0;           ///< floats from job to job
  DepthwiseTile<T> tile;                ///< columns, operands and results, less what a job says
};

/// What is done by the type T of activations in memory.
template <typename T>
struct WindowStorage {
  void (*stage)(const StagedPixels<T>& pixels);
  void (*finish)(const WindowOutput<T>& output);
};

/// Dot products of a tile of neighbouring output pixels of one row, for a few outputs: along the channels of all taps.
struct DotTile {
  const float* x = nullptr;  ///< the first tap of the first pixel
  std::int64_t x_step = 0;   ///< floats from pixel to pixel
  std::int64_t x_row = 0;    ///< from row to row of taps
  std::int64_t x_run = 0;    ///< from run to run
  std::int64_t rows = 0;
  std::int64_t runs = 0;            ///< of a row of taps
  std::int64_t run = 0;             ///< contiguous floats
  const float* weights = nullptr;   ///< of the first output; runs of a row follow each other
  std::int64_t weights_row = 0;     ///< floats from row to row of taps
  std::int64_t weights_output = 0;  ///< from output to output
  const float* bias = nullptr;
  float* y = nullptr;
  std::int64_t y_step = 0;  ///< floats from pixel to pixel
};

struct DotKernels {
  using Function = void (*)(const DotTile& tile);
  static constexpr int kPixels = 4;
  static constexpr int kOutputs = 4;
  Function tile[2][kOutputs];  ///< [one pixel, kPixels][outputs - 1]
};

/// Rows of elements that follow each other; `step` from row to row.
struct SpanRows {
  std::int64_t count = 0;  ///< of a row
  std::int64_t rows = 1;
  std::int64_t step = 0;
};

/// y[i] = f(x[i]) for all elements of the rows, which lie alike in x and y; y may be x.
template <typename T>
struct ActivationSpans {
  using Function = void (*)(const T* x, T* y, const SpanRows& span);
  Function sigmoid;
  Function silu;
  Function hard_swish;
  Function gelu;
  Function exp;
  Function tanh;
  Function erf;
};

/// Reductions of the same taps for neighbouring outputs of a row, of `count` elements each.
template <typename T>
struct PoolRow {
  Taps<T> taps;             ///< of the first output
  std::int64_t x_step = 0;  ///< elements from output to output
  std::int64_t outputs = 1;
  std::int64_t count = 0;
  float* y = nullptr;
  std::int64_t y_step = 0;  ///< floats from output to output
  float factor = 1;         ///< what sums are multiplied by
};

template <typename T>
struct PoolKernels {
  using Function = void (*)(const PoolRow<T>& row);
  Function max;  ///< -infinity of no taps; NaN if one is
  Function sum;  ///< 0 of none, as all sums
  Function sum_absolute;
  Function sum_squares;
};

/// Kernels over activations that are stored as T: float, Half or BFloat16.
template <typename T>
struct StoredKernels {
  DepthwiseKernels<T> depthwise;
  WindowStorage<T> windows;
  ActivationSpans<T> activations;
  PoolKernels<T> pools;
};

/// Elements that follow each other, between f32 and T, which is Half or BFloat16.
template <typename T>
struct StoredConversion {
  void (*widen)(const T* x, float* y, std::int64_t count);
  void (*narrow)(const float* x, T* y, std::int64_t count);  ///< to_stored<T>()
};

/// The kernels of one instruction set.
struct RowKernels {
  int lanes;  ///< floats in a register
  StoredKernels<float> f32;
  StoredKernels<Half> f16;
  StoredKernels<BFloat16> bf16;
  StoredConversion<Half> convert_f16;
  StoredConversion<BFloat16> convert_bf16;
  DepthwiseKernels<std::uint8_t> depthwise_u8;
  WindowKernels windows;
  WindowStorage<std::uint8_t> windows_u8;
  DotKernels dots;
  /// y[i] = x[i] * factors[i] + shifts[i] for i in [0, span.count) of every row; rows lie alike in x and y; y may be x.
  void (*affine)(const float* x, const float* factors, const float* shifts, float* y, const SpanRows& span);
};

/// The kernels of the instruction set that PIPIT_ISA names, or of the best that this CPU has.
const RowKernels& row_kernels();

template <typename T>
const StoredKernels<T>& stored_kernels() {
  if constexpr (std::is_same_v<T, float>) {
    return row_kernels().f32;
  } else if constexpr (std::is_same_v<T, Half>) {
    return row_kernels().f16;
  } else {
    return row_kernels().bf16;
  }
}

/// Elements that follow each other, as f32.
inline void widen_row(const Half* x, float* y, std::int64_t count) {
  row_kernels().convert_f16.widen(x, y, count);
}
inline void widen_row(const BFloat16* x, float* y, std::int64_t count) {
  row_kernels().convert_bf16.widen(x, y, count);
}
/// Floats as they are stored, rounded to nearest, ties to even.
inline void narrow_row(const float* x, Half* y, std::int64_t count) {
  row_kernels().convert_f16.narrow(x, y, count);
}
inline void narrow_row(const float* x, BFloat16* y, std::int64_t count) {
  row_kernels().convert_bf16.narrow(x, y, count);
}

/// The same for elements of a type that is known at run time, from element `first` on; stored: f16 or bf16.
void widen_row(DType stored, const void* x, std::int64_t first, float* y, std::int64_t count);
void narrow_row(const float* x, DType stored, void* y, std::int64_t first, std::int64_t count);

}  // namespace pipit::internal
