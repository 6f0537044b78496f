// The matrix product below the layers: every instruction set that this machine has.
#include <gmock/gmock.h>

#include <cfloat>
#include <cmath>
#include <set>

#include "engine/base/ceil_div.h"
#include "layers/cpu/linear/gemm.h"
#include "tests/layers/conformance.h"

namespace pipit::internal {
namespace {

using test::Random;

std::vector<const GemmIsa*> gemm_instruction_sets() {
  std::set<const GemmIsa*> result;
  for (const Isa isa : all_isas()) {
    if (isa_available(isa)) result.insert(&gemm_isa(isa));
  }
  return {result.begin(), result.end()};
}

HostBuffer poisoned(std::size_t floats) {
  HostBuffer buffer(floats * sizeof(float));
  std::memset(buffer.data(), 0xFF, buffer.bytes());
  return buffer;
}

float* floats(const HostBuffer& buffer) {
  return reinterpret_cast<float*>(buffer.data());
}

TEST(GemmIsa, EveryOneMultipliesAndAccumulates) {
  Random random;
  ASSERT_FALSE(gemm_instruction_sets().empty());
  for (int i = 0; i < 40; ++i) {
    const std::int64_t m = random.integer(1, 21);
    const std::int64_t n = random.integer(1, 120);
    const std::int64_t k = random.integer(1, 40);
    const bool transpose_a = random.coin();
    const bool transpose_b = random.coin();
    const std::int64_t c_stride = n + random.integer(0, 3);
    const std::int64_t a_gap = random.coin() ? 0 : 512 - (transpose_a ? m : k) % 512;  // rows that are copied
    const auto alpha = static_cast<float>(random.real(-2, 2));
    const auto a = random.tensor(transpose_a ? Shape{k, m + a_gap} : Shape{m, k + a_gap});
    const auto b = random.tensor(transpose_b ? Shape{n, k} : Shape{k, n});
    const auto c = random.tensor(Shape{m, c_stride});
    const auto at = [](const Tensor& t, bool transposed, std::int64_t row, std::int64_t column) {
      const std::int64_t index = transposed ? column * t.shape()[1] + row : row * t.shape()[1] + column;
      return t.values<float>()[static_cast<std::size_t>(index)];
    };
    for (const GemmIsa* isa : gemm_instruction_sets()) {
      SCOPED_TRACE(fmt::format("{} m {} n {} k {} {}{} seed {}", isa->name, m, n, k, transpose_a, transpose_b,
                               test::test_seed()));
      const HostBuffer packed = poisoned(static_cast<std::size_t>(k * round_up(n, kGemmPadding)));
      const HostBuffer workspace = poisoned(static_cast<std::size_t>(m * k));
      Tensor y = c->clone();
      isa->pack({b->values<float>().data(), b->shape()[1], transpose_b}, k, n, floats(packed));
      isa->accumulate(m, n, k, alpha, {a->values<float>().data(), a->shape()[1], transpose_a}, floats(packed),
                      y.values<float>().data(), c_stride, floats(workspace));
      for (std::int64_t row = 0; row < m; ++row) {
        for (std::int64_t column = 0; column < c_stride; ++column) {
          const float start = at(*c, false, row, column);
          if (column >= n) {
            ASSERT_EQ(at(y, false, row, column), start) << "wrote between the rows";
            continue;
          }
          double sum = 0;
          double magnitude = 0;
          for (std::int64_t j = 0; j < k; ++j) {
            const double product =
                static_cast<double>(at(*a, transpose_a, row, j)) * at(*b, transpose_b, j, column);
            sum += product;
            magnitude += std::abs(product);
          }
          const double expected = start + alpha * sum;
          const double allowed =
              static_cast<double>(k + 3) * FLT_EPSILON * (std::abs(start) + std::abs(alpha) * magnitude);
          ASSERT_NEAR(at(y, false, row, column), expected, allowed) << row << ", " << column;
        }
      }
    }
  }
}

// Blocks lie one after the other, each on a cache line, and cover the matrix once.
TEST(GemmBlocking, BlocksAreAlignedAndDisjoint) {
  Random random;
  for (int i = 0; i < 300; ++i) {
    const std::int64_t k = random.integer(0, 1000);
    const std::int64_t n = random.integer(0, 1000);
    const GemmBlocking blocking(k, n, random.integer(1, 400));
    std::int64_t end = 0;
    std::int64_t covered = 0;
    for (std::int64_t column = 0; column < blocking.n_blocks(); ++column) {
      for (std::int64_t row = 0; row < blocking.k_blocks(); ++row) {
        ASSERT_GT(blocking.depth(row), 0);
        ASSERT_GT(blocking.width(column), 0);
        ASSERT_EQ(blocking.offset(row, column) % 16, 0);
        ASSERT_GE(blocking.offset(row, column), end);
        end = blocking.offset(row, column) +
              blocking.depth(row) * round_up(blocking.width(column), kGemmPadding);
        covered += blocking.depth(row) * blocking.width(column);
      }
    }
    ASSERT_EQ(covered, k * n);
    ASSERT_LE(end, static_cast<std::int64_t>(blocking.packed_floats()));
    ASSERT_LE(blocking.packed_floats(), static_cast<std::size_t>(k * round_up(n, kGemmPadding)));
  }
}

TEST(GemmBlocking, TilesAreOfNearlyEqualSize) {
  EXPECT_EQ(tile_rows(196, 96), 68);
  EXPECT_EQ(tile_rows(96, 96), 96);
  EXPECT_EQ(tile_rows(49, 96), 52);
  EXPECT_EQ(tile_rows(1, 96), 4);
  EXPECT_EQ(tile_rows(0, 96), 4);
  EXPECT_EQ(share_columns(100, 512) % 48, 0);
  EXPECT_GE(share_columns(100, 512), 512);  // rows alone make enough tasks
  EXPECT_LT(share_columns(1, 2048), 2048);
  EXPECT_GE(share_columns(1, 64), 64);
}

}  // namespace
}  // namespace pipit::internal
