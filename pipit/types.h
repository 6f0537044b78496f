/// @file
/// The words that every part of pipit shares: devices, precisions, element types, shapes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "pipit/export.h"

namespace pipit {

/// Where a model runs.
enum class DeviceKind : std::uint8_t {
  cpu,   ///< this machine's CPU
  cuda,  ///< an NVIDIA GPU of compute capability 8.0 or later
};

/// What a model computes in.
enum class Precision : std::uint8_t {
  fp32,          ///< 32-bit floating point; on a model that is quantized already, INT8 where it says so
  fp16,          ///< activations and most weights are stored as halves (f16)
  bf16,          ///< the same as bfloat16: the range of f32 and 8 bits of precision, products summed in f32
  int8,          ///< static: scales from a quantization plan, which calibration makes
  int8_dynamic,  ///< scales of activations found at run time
  w8,  ///< weights of fully connected layers and 1x1 convolutions in 8 bits; all else is f32, on a GPU fp16
  w4,  ///< the same in 4 bits
};

/// "cpu" or "cuda".
PIPIT_API std::string_view device_name(DeviceKind device);
/// "fp32", "fp16", "bf16", "int8", "int8-dynamic", "w8" or "w4".
PIPIT_API std::string_view precision_name(Precision precision);

/// Element types. Those of 16 bits (f16, bf16) stay inside: inputs and outputs of models that have them are f32.
enum class DType : std::uint8_t {
  f32,      ///< float
  f64,      ///< double
  i8,       ///< std::int8_t
  u8,       ///< std::uint8_t
  i32,      ///< std::int32_t
  i64,      ///< std::int64_t
  boolean,  ///< one byte, 0 or 1
  f16,      ///< IEEE binary16
  bf16,     ///< bfloat16: the upper half of a float
};

/// Bytes of one element.
constexpr std::size_t dtype_bytes(DType type) {
  switch (type) {
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::f64:
    case DType::i64:
      return 8;
    case DType::f16:
    case DType::bf16:
      return 2;
    case DType::i8:
    case DType::u8:
    case DType::boolean:
      return 1;
  }
  return 0;
}

/// "f32", "f64", "i8", "u8", "i32", "i64", "bool", "f16" or "bf16".
constexpr std::string_view dtype_name(DType type) {
  switch (type) {
    case DType::f32:
      return "f32";
    case DType::f64:
      return "f64";
    case DType::i8:
      return "i8";
    case DType::u8:
      return "u8";
    case DType::i32:
      return "i32";
    case DType::i64:
      return "i64";
    case DType::boolean:
      return "bool";
    case DType::f16:
      return "f16";
    case DType::bf16:
      return "bf16";
  }
  return "?";
}

/// The DType of a C++ type: DTypeOf<float>::value.
template <typename T>
struct DTypeOf;
/// @cond
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::f64;
};
template <>
struct DTypeOf<std::int8_t> {
  static constexpr DType value = DType::i8;
};
template <>
struct DTypeOf<std::uint8_t> {
  static constexpr DType value = DType::u8;
};
template <>
struct DTypeOf<std::int32_t> {
  static constexpr DType value = DType::i32;
};
template <>
struct DTypeOf<std::int64_t> {
  static constexpr DType value = DType::i64;
};
template <>
struct DTypeOf<bool> {
  static constexpr DType value = DType::boolean;
};
/// @endcond

/// Most dimensions that a tensor may have.
inline constexpr int kMaxRank = 6;

/// Extents in logical (ONNX) order, for images N, C, H, W. Fixed capacity, no heap. Rank 0 is a scalar of one element.
/// An extent may be 0 (an empty tensor) but never negative; the element count never overflows int64.
class PIPIT_API Shape {
 public:
  /// A scalar.
  Shape() = default;
  /// Throws Error on more than kMaxRank dimensions, a negative extent, or an element count above 2^62.
  explicit Shape(std::span<const std::int64_t> dims);
  /// The same from a list: Shape{1, 3, 224, 224}.
  Shape(std::initializer_list<std::int64_t> dims) : Shape(std::span(dims.begin(), dims.size())) {}

  /// Number of dimensions.
  int rank() const { return rank_; }
  /// The extent of dimension `axis`, which must be in [0, rank).
  std::int64_t operator[](int axis) const { return dims_[static_cast<std::size_t>(axis)]; }
  /// Product of the extents; 1 for a scalar.
  std::int64_t elements() const { return elements_; }
  /// All extents; valid as long as the shape.
  std::span<const std::int64_t> dims() const { return {dims_.data(), static_cast<std::size_t>(rank_)}; }
  /// A copy with one extent replaced. Throws as the constructor does.
  Shape with(int axis, std::int64_t extent) const;
  /// "1x3x224x224"; "scalar" for rank 0.
  std::string str() const;

  /// Equal ranks and extents.
  friend PIPIT_API bool operator==(const Shape& a, const Shape& b);

 private:
  std::array<std::int64_t, kMaxRank> dims_{};
  int rank_ = 0;
  std::int64_t elements_ = 1;
};

}  // namespace pipit
