// What multiplies, as far as it has a speed of its own.
#pragma once

#include <cstdint>
#include <string_view>

namespace pipit::internal {

/// Operands of multiply-accumulates. int8 are bytes, also where an instruction set widens them; int16 pairs of 16 bits.
enum class Products : std::uint8_t { fp32, fp16, int8, int16, bf16 };

/// "fp32", "fp16", "int8", "int16", "bf16".
std::string_view products_name(Products products);
/// Throws Error for another name.
Products find_products(std::string_view name);

}  // namespace pipit::internal
