// How "unpacked_gemm" multiplies many rows by weights that are stored in 8 or 4 bits (WLinear, WConv): a launch writes
// the weights as halves into the step's scratch memory, and cuBLASLt multiplies these. No CUDA: tested without a GPU.
//
// A weight is rounded to a half once, half(integer * scale * 2^e). The power of two is the same for the whole matrix,
// brings its largest weight just below 2^15, and is undone by the product's alpha: so small weights are normal halves,
// and none overflows. Roundings are relative, at most 2^-11 of each weight, where the sums of "packed_gemm" are of
// exact products. A result in f16 is rounded by as much.
//
// Rows of weights, and of x where that is copied, are as long as a multiple of eight, with zeros at their ends: the
// library has no fast algorithm for others.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "layers/cuda/device/fast_division.h"
#include "layers/ops/weight_only.h"

namespace pipit::internal::cuda {

inline constexpr int kUnpackThreads = 256;
inline constexpr int kUnpackUnits = 4;  ///< of eight neighbours of a row, of each thread
inline constexpr int kUnpackUnit = 8;

constexpr std::int64_t unpack_units(std::int64_t depth) {
  return (depth + kUnpackUnit - 1) / kUnpackUnit;
}

/// Rows as the file stores them (WeightFormat), with zeros after each, up to a multiple of eight weights.
inline std::vector<std::uint8_t> padded_rows(const WeightFormat& format, std::int64_t outputs,
                                             std::int64_t depth, const std::byte* integers) {
  const auto from = static_cast<std::size_t>(format.row_bytes(depth));
  const auto to =
      static_cast<std::size_t>(unpack_units(depth) * format.bits);  // eight weights of so many bits
  std::vector<std::uint8_t> rows(static_cast<std::size_t>(outputs) * to);
  for (std::size_t o = 0; o < static_cast<std::size_t>(outputs); ++o)
    std::memcpy(rows.data() + o * to, integers + o * from, from);
  return rows;
}

/// e above. 0 where no scale is finite and not zero. The bounds keep 2^-e a normal float.
inline int unpack_exponent(const WeightFormat& format, std::span<const float> scales) {
  float largest = 0;
  for (const float scale : scales) {
    if (std::isfinite(scale)) largest = std::max(largest, std::abs(scale));
  }
  if (largest == 0) return 0;
  int exponent = 0;
  std::frexp(largest, &exponent);  // largest < 2^exponent
  return std::clamp(15 - (format.bits - 1) - exponent, -100, 100);
}

/// scales times 2^e.
inline std::vector<float> unpack_scales(std::span<const float> scales, int e) {
  std::vector<float> raised(scales.begin(), scales.end());
  for (float& scale : raised) scale = std::ldexp(scale, e);
  return raised;
}

/// Blocks below `weight_blocks` unpack weights, the others copy rows of x.
struct UnpackArgs {
  const void* weights = nullptr;  ///< padded_rows()
  const float* scales = nullptr;  ///< [outputs, groups], unpack_scales()
  void* unpacked = nullptr;       ///< halves [outputs, 8 * units of a row]
  int bits = 8;                   ///< which kernel
  int weight_units = 0, groups = 1;
  int weight_blocks = 0;
  Divisor units_of_row;
  Divisor units_of_group;  ///< of a row, if it has one group

  const void* x = nullptr;      ///< halves
  void* copied = nullptr;       ///< halves [rows, 8 * units of a row]
  const int* pixels = nullptr;  ///< of each position of an image of y, where its pixel begins in one of x, in
                                ///< elements, or -1 in the padding; null: row r of x begins at r * depth
  int copied_units = 0, depth = 0;  ///< depth: of x and the weights, without zeros
  int copy_blocks = 0;
  int image = 0;      ///< elements of an image of x
  Divisor positions;  ///< of an image of y
};

/// All but pointers, and what `pixels` needs. copies: rows of x are copied, else they are left where they are.
inline UnpackArgs unpack_args(const WeightFormat& format, std::int64_t outputs, std::int64_t depth,
                              std::int64_t rows, bool copies) {
  constexpr int kOfBlock = kUnpackThreads * kUnpackUnits;
  const std::int64_t units = unpack_units(depth);
  const auto blocks = [](std::int64_t count) { return static_cast<int>((count + kOfBlock - 1) / kOfBlock); };
  UnpackArgs args;
  args.bits = format.bits;
  args.weight_units = static_cast<int>(outputs * units);
  args.weight_blocks = blocks(args.weight_units);
  args.groups = static_cast<int>(format.groups(depth));
  args.units_of_row = Divisor(units);
  args.units_of_group = Divisor(unpack_units(format.group(depth)));
  args.depth = static_cast<int>(depth);
  args.copied_units = copies ? static_cast<int>(rows * units) : 0;
  args.copy_blocks = blocks(args.copied_units);
  return args;
}

/// overlap: whether launches may overlap with the kernel before.
cudaError_t prepare_unpack(const UnpackArgs& args, bool& overlap);
cudaError_t launch_unpack(const UnpackArgs& args, bool overlap, cudaStream_t stream);

}  // namespace pipit::internal::cuda
