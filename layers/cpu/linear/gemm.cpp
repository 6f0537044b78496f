#include "layers/cpu/linear/gemm.h"

#include <algorithm>

#include "engine/base/ceil_div.h"
#include "layers/cpu/linear/gemm_isa.h"

namespace pipit::internal {

namespace {

// A register panel of B is at most 48 columns wide (three AVX-512 vectors); narrower instruction sets use 16, which
// divides it.
constexpr std::int64_t kPanel = 48;
// 48 columns of this depth are 36 KiB and stay in the first-level cache while the rows of A pass by.
constexpr std::int64_t kMaxDepth = 192;
constexpr std::int64_t kAlignFloats = HostBuffer::kAlignment / sizeof(float);
// About four tasks for each of eight cores, so that the last ones leave few cores idle.
constexpr std::int64_t kMinTasks = 32;

}  // namespace

const GemmIsa& gemm_isa(Isa isa) {
#if PIPIT_ISA_X86
  if (isa >= Isa::avx512) return gemm_avx512;
  if (isa >= Isa::avx2) return gemm_avx2;
#endif
  static_cast<void>(isa);
  return gemm_baseline;
}

GemmBlocking::GemmBlocking(std::int64_t depth_, std::int64_t columns, std::int64_t block_columns)
    : k(depth_), n(columns), n_block(round_up(std::max<std::int64_t>(block_columns, 1), kPanel)) {
  k_block = round_up(ceil_div(k, std::max<std::int64_t>(1, ceil_div(k, kMaxDepth))), 8);
}

std::int64_t GemmBlocking::depth(std::int64_t k_index) const {
  return std::min(k_block, k - k_index * k_block);
}
std::int64_t GemmBlocking::width(std::int64_t n_index) const {
  return std::min(n_block, n - n_index * n_block);
}

std::int64_t GemmBlocking::offset(std::int64_t k_index, std::int64_t n_index) const {
  return n_index * n_block * k + k_index * k_block * round_up(width(n_index), kGemmPadding);
}

std::size_t GemmBlocking::packed_floats() const {
  if (n_blocks() == 0 || k_blocks() == 0) return 0;
  const std::int64_t last = n_blocks() - 1;
  return static_cast<std::size_t>(offset(0, last) + k * round_up(width(last), kGemmPadding));
}

std::size_t GemmBlocking::workspace_floats(std::int64_t m) const {
  return static_cast<std::size_t>(round_up(m * k_block, kAlignFloats));
}

void pack_block_column(const GemmBlocking& blocking, const MatrixView& b, std::int64_t n_index,
                       float* packed) {
  for (std::int64_t i = 0; i < blocking.k_blocks(); ++i) {
    gemm_isa().pack(b.from(i * blocking.k_block, n_index * blocking.n_block), blocking.depth(i),
                    blocking.width(n_index), packed + blocking.offset(i, n_index));
  }
}

void multiply_block_column(const GemmBlocking& blocking, const float* packed, std::int64_t n_index,
                           std::int64_t m, float alpha, const MatrixView& a, float* c, std::int64_t c_stride,
                           float* workspace) {
  for (std::int64_t i = 0; i < blocking.k_blocks(); ++i) {
    gemm_isa().accumulate(m, blocking.width(n_index), blocking.depth(i), alpha,
                          a.from(0, i * blocking.k_block), packed + blocking.offset(i, n_index), c, c_stride,
                          workspace);
  }
}

std::int64_t tile_rows(std::int64_t rows, std::int64_t most) {
  const std::int64_t tiles = std::max<std::int64_t>(1, ceil_div(rows, most));
  return std::max<std::int64_t>(4, round_up(ceil_div(rows, tiles), 4));
}

std::int64_t share_columns(std::int64_t row_tiles, std::int64_t columns) {
  const std::int64_t blocks =
      std::max<std::int64_t>(1, ceil_div(kMinTasks, std::max<std::int64_t>(row_tiles, 1)));
  return std::max(2 * kPanel, round_up(ceil_div(columns, blocks), kPanel));
}

}  // namespace pipit::internal
