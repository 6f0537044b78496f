// Products of a warpgroup: 64 rows and n columns, with a depth of 32 bytes (PTX ISA, "Asynchronous Warpgroup Level
// Matrix Instructions"). wgmma.cpp issues them, matrix_unit.cpp does them, late and in order.
#pragma once

#include <cstdint>

#include "tests/cuda/emulation/machine.h"

namespace pipit::internal::test::emulation {

constexpr int kProductRows = 64;

/// A matrix descriptor ("Matrix Descriptor Format"): K-major, bytes.
struct Matrix {
  std::uint32_t start, leading, stride;
  int swizzle;
};
Matrix matrix_of(std::uint64_t descriptor);
/// Where the 16 bytes lie that are the first or second half of a row's depth.
std::uint32_t chunk_address(const Matrix& m, int row, int half);

/// All chunks that a product reads from shared memory.
template <typename F>
void for_chunks(const Product& p, F f) {
  const auto rows = [&](std::uint64_t descriptor, int count) {
    const Matrix m = matrix_of(descriptor);
    for (int r = 0; r < count; ++r) f(chunk_address(m, r, 0)), f(chunk_address(m, r, 1));
  };
  if (!p.left_in_registers) rows(p.left, kProductRows);
  if (!p.right_unread) rows(p.right, p.n);
}

/// Whether the left operand is nothing but integer zeros in shared memory.
bool left_is_zero(const Block& b, const Product& p);

/// The next product of the group, all of whose threads have issued it.
std::uint64_t first_product_due();
void run_first_product();
/// Whether the i-th of the groups that multiply had a product that was due; those after it may have run as well.
bool run_products_if_due(std::size_t i);

}  // namespace pipit::internal::test::emulation
