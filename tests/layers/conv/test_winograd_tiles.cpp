#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "layers/cpu/conv/winograd_tiles.h"
#include "tests/layers/conformance.h"

namespace pipit::internal {
namespace {

bool takes(std::int64_t outputs, int point, int m) {
  return point <= outputs || point == m + 1;
}

// In every plane of a band the tiles that take the product are neighbours, each in a row of its own.
TEST(WinogradTiles, ProductsHaveTheRowsOfTheirTiles) {
  test::Random random;
  for (int i = 0; i < 200 && !HasFailure(); ++i) {
    const int m = random.coin() ? 4 : 2;
    const auto border = random.coin() ? WinogradBorder::fewer_points : WinogradBorder::whole;
    const Shape y{random.integer(1, 4), 8, random.integer(1, 17), random.integer(1, 17)};
    const WinogradTiles tiles(y, m, border);
    const std::int64_t band_size = random.integer(1, tiles.count());
    std::int64_t outputs = 0;
    std::int64_t rows_of_all = 0;
    for (std::int64_t first = 0; first < tiles.count(); first += band_size) {
      const WinogradTiles::Band band = tiles.band(first, std::min(tiles.count(), first + band_size));
      for (int product = 0; product < tiles.products(); ++product) {
        std::set<std::int64_t> expected;
        for (std::int64_t t = band.first; t < band.end; ++t) {
          const WinogradTiles::Place at = tiles.place(t);
          const bool whole = border == WinogradBorder::whole;
          if (whole || (takes(at.rows, product / (m + 2), m) && takes(at.columns, product % (m + 2), m))) {
            EXPECT_TRUE(expected.insert(tiles.row(band, t)).second) << "two tiles have one row";
          }
        }
        const WinogradTiles::Rows rows = tiles.rows(band, product);
        EXPECT_EQ(rows.size(), static_cast<std::int64_t>(expected.size()));
        if (!expected.empty()) {
          EXPECT_EQ(rows.begin, *expected.begin());
          EXPECT_EQ(rows.end, *expected.rbegin() + 1);
          EXPECT_GE(rows.begin, 0);
          EXPECT_LE(rows.end, band.end - band.first);
        }
        rows_of_all += rows.size();
      }
      for (std::int64_t t = band.first; t < band.end; ++t)
        outputs += tiles.place(t).rows * tiles.place(t).columns;
    }
    EXPECT_EQ(outputs, y[0] * y[2] * y[3]);
    EXPECT_EQ(tiles.plane_rows(), rows_of_all);
    // Where all tiles are whole, both are the same.
    if (y[2] % m == 0 && y[3] % m == 0) {
      EXPECT_EQ(rows_of_all, tiles.count() * tiles.products());
    }
  }
}

TEST(WinogradTiles, FewerPointsAtTheBorder) {
  // 14 = 4 + 4 + 4 + 2: three tiles of 6 points and one of 4 along each axis.
  EXPECT_EQ(WinogradTiles(Shape{1, 8, 14, 14}, 4, WinogradBorder::fewer_points).plane_rows(), 22 * 22);
  EXPECT_EQ(WinogradTiles(Shape{1, 8, 14, 14}, 4, WinogradBorder::whole).plane_rows(), 24 * 24);
  EXPECT_EQ(WinogradTiles(Shape{2, 8, 7, 13}, 4, WinogradBorder::fewer_points).plane_rows(), 2 * 11 * 21);
  EXPECT_EQ(WinogradTiles(Shape{0, 8, 7, 13}, 4, WinogradBorder::fewer_points).plane_rows(), 0);
}

}  // namespace
}  // namespace pipit::internal
