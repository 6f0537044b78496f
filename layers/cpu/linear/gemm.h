// Single-precision matrix product, blocked as in Goto & van de Geijn, "Anatomy of High-Performance Matrix
// Multiplication", 2008. Constant matrices are packed once, and no run allocates. The kernel (gemm_kernel.h) is
// compiled for several instruction sets in one binary and chosen at run time.
#pragma once

#include <cstdint>

#include "engine/graph/tensor.h"
#include "engine/platform/isa.h"

namespace pipit::internal {

/// A matrix in memory: element (row, column) lies at row * stride + column, or if transposed at
/// column * stride + row.
struct MatrixView {
  const float* data = nullptr;
  std::int64_t stride = 0;
  bool transposed = false;

  /// The part that starts at (row, column).
  MatrixView from(std::int64_t row, std::int64_t column) const {
    return {data + (transposed ? column * stride + row : row * stride + column), stride, transposed};
  }
};

/// Rows of a packed matrix are filled up with zeros to a multiple of this: whole cache lines.
inline constexpr std::int64_t kGemmPadding = 16;

/// The inner product kernel of one instruction set.
struct GemmIsa {
  const char* name;  ///< "baseline", "avx2" or "avx512"
  /// Packs B [k, n] at `packed` (64-byte aligned; k times n rounded up to kGemmPadding), as this instruction set reads
  /// it.
  void (*pack)(const MatrixView& b, std::int64_t k, std::int64_t n, float* packed);
  /// C [m, n] (row-major, `c_stride` floats from row to row) += alpha * A [m, k] * packed B. `workspace` holds
  /// m * k floats, 64-byte aligned.
  void (*accumulate)(std::int64_t m, std::int64_t n, std::int64_t k, float alpha, const MatrixView& a,
                     const float* packed_b, float* c, std::int64_t c_stride, float* workspace);
  /// The same with B as it lies, `b_stride` floats from row to row, for a multiple of kGemmPadding columns: for few
  /// rows of A, which packing would take longer than.
  void (*accumulate_unpacked)(std::int64_t m, std::int64_t n, std::int64_t k, float alpha,
                              const MatrixView& a, const float* b, std::int64_t b_stride, float* c,
                              std::int64_t c_stride, float* workspace);
};

/// The product kernel for `isa`, which must be available, or the best that it contains.
const GemmIsa& gemm_isa(Isa isa = chosen_isa());

/// How a [k, n] matrix is cut: n into equal column blocks that different workers may take, k into depths whose
/// packed panels stay in the cache. The last block of each is smaller.
struct GemmBlocking {
  std::int64_t k = 0;
  std::int64_t n = 0;
  std::int64_t k_block = 0;
  std::int64_t n_block = 0;

  GemmBlocking() = default;
  /// n_block is rounded up to whole register panels.
  GemmBlocking(std::int64_t k, std::int64_t n, std::int64_t n_block);

  std::int64_t k_blocks() const { return k == 0 ? 0 : (k + k_block - 1) / k_block; }
  std::int64_t n_blocks() const { return n == 0 ? 0 : (n + n_block - 1) / n_block; }
  std::int64_t depth(std::int64_t k_index) const;
  std::int64_t width(std::int64_t n_index) const;
  /// Floats of the packed matrix.
  std::size_t packed_floats() const;
  /// Where block (k_index, n_index) starts in it.
  std::int64_t offset(std::int64_t k_index, std::int64_t n_index) const;
  /// Floats of workspace that a product with m rows needs.
  std::size_t workspace_floats(std::int64_t m) const;
};

/// Packs block column `n_index` of B [blocking.k, blocking.n] into `packed` (64-byte aligned, of
/// packed_floats() floats in all).
void pack_block_column(const GemmBlocking& blocking, const MatrixView& b, std::int64_t n_index,
                       float* packed);

/// C [m, width(n_index)] += alpha * A [m, k] * block column n_index of the packed B.
void multiply_block_column(const GemmBlocking& blocking, const float* packed, std::int64_t n_index,
                           std::int64_t m, float alpha, const MatrixView& a, float* c, std::int64_t c_stride,
                           float* workspace);

/// Equal tiles of at most `most` rows (a multiple of 4, the columns of a register block), so that the last one
/// is not much smaller: 196 rows with at most 96 make 3 tiles of 68, 68 and 60.
std::int64_t tile_rows(std::int64_t rows, std::int64_t most);

/// Columns per block such that `row_tiles` row tiles times the column blocks make enough tasks to share out on
/// many cores, but no block is too narrow to use the vector units well. Depends on the shape alone: results do
/// not change with the number of threads.
std::int64_t share_columns(std::int64_t row_tiles, std::int64_t columns);

}  // namespace pipit::internal
