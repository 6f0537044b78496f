// From a DType at run time to a C++ type at compile time.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include "engine/base/error.h"
#include "engine/graph/dtype.h"

namespace pipit::internal {

/// f(std::type_identity<T>{}) with the C++ type of `type`.
template <typename F>
decltype(auto) with_dtype(DType type, F&& f) {
  switch (type) {
    case DType::f32:
      return f(std::type_identity<float>{});
    case DType::f64:
      return f(std::type_identity<double>{});
    case DType::i8:
      return f(std::type_identity<std::int8_t>{});
    case DType::u8:
      return f(std::type_identity<std::uint8_t>{});
    case DType::i32:
      return f(std::type_identity<std::int32_t>{});
    case DType::i64:
      return f(std::type_identity<std::int64_t>{});
    case DType::boolean:
      return f(std::type_identity<bool>{});
    case DType::f16:
    case DType::bf16:
      fail("{} is stored, not computed with, on the CPU", dtype_name(type));
  }
  fail("an element type numbered {} does not exist", static_cast<int>(type));
}

/// f(std::type_identity<T>{}) with Half or BFloat16. `type` is f16 or bf16.
template <typename F>
decltype(auto) with_stored_float(DType type, F&& f) {
  if (type == DType::f16) return f(std::type_identity<Half>{});
  return f(std::type_identity<BFloat16>{});
}

/// f(std::integral_constant<std::size_t, bytes>{}) with the size of one element of `type`: for code that moves
/// elements without looking at them.
template <typename F>
decltype(auto) with_element_size(DType type, F&& f) {
  switch (dtype_bytes(type)) {
    case 1:
      return f(std::integral_constant<std::size_t, 1>{});
    case 2:
      return f(std::integral_constant<std::size_t, 2>{});
    case 4:
      return f(std::integral_constant<std::size_t, 4>{});
    case 8:
      return f(std::integral_constant<std::size_t, 8>{});
    default:
      fail("no element is {} bytes large", dtype_bytes(type));
  }
}

/// The unsigned integer that moves one element of that many bytes.
template <std::size_t Bytes>
using Element =
    std::conditional_t<Bytes == 1, std::uint8_t,
                       std::conditional_t<Bytes == 2, std::uint16_t,
                                          std::conditional_t<Bytes == 4, std::uint32_t, std::uint64_t>>>;

}  // namespace pipit::internal
