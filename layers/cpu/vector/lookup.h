// Bytes through a table.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace pipit::internal {

/// y[i] = table[x[i]]; y may be x.
void lookup_span(const std::array<std::uint8_t, 256>& table, const std::byte* x, std::byte* y,
                 std::int64_t count);

}  // namespace pipit::internal
