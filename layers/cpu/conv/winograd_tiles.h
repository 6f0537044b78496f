// The tiles of a Winograd convolution, and which of its products each of them takes.
#pragma once

#include <cstdint>

#include "engine/graph/shape.h"

namespace pipit::internal {

/// How tiles at the border are computed that have e < m outputs along an axis: like all others (`whole`), or by F(e, 3)
/// along that axis, whose points are the first e + 1 of m and the last (`fewer_points`).
enum class WinogradBorder { whole, fewer_points };

/// Tiles of F(m x m, 3 x 3) that cover images y [N, O, H, W]: image by image, row by row. Product i * (m + 2) + j is
/// that of points i (down) and j (along).
class WinogradTiles {
 public:
  WinogradTiles(const Shape& y, int m, WinogradBorder border);

  std::int64_t count() const { return count_; }
  int products() const { return points_ * points_; }

  /// A tile's first output, and how many there are.
  struct Place {
    std::int64_t image, row, column;
    std::int64_t rows, columns;
  };
  Place place(std::int64_t tile) const;

  // Four kinds of tiles, in this order: whole down and short along, whole in both, short down and whole along, short in
  // both. So the tiles that take a product are neighbours, whatever it is.
  struct Kinds {
    std::int64_t of[4] = {};
  };
  /// Tiles [first, end) and how they are sorted: each has one row in the planes of all its products.
  struct Band {
    std::int64_t first = 0;
    std::int64_t end = 0;
    Kinds before;  ///< tiles 0 to first
    Kinds within;
  };
  Band band(std::int64_t first, std::int64_t end) const;
  std::int64_t row(const Band& band, std::int64_t tile) const;

  /// Rows of a band that take a product.
  struct Rows {
    std::int64_t begin, end;
    std::int64_t size() const { return end - begin; }
  };
  Rows rows(const Band& band, int product) const;
  /// Rows of all tiles and products.
  std::int64_t plane_rows() const;

 private:
  Kinds kinds_before(std::int64_t tile) const;
  int kind(std::int64_t tile) const;
  static bool takes(std::int64_t outputs, std::int64_t point, std::int64_t points) {
    return point <= outputs || point == points - 1;
  }

  std::int64_t m_;
  int points_;
  std::int64_t height_, width_;
  std::int64_t rows_, columns_, count_;
  bool short_down_, short_along_;  // the last tiles take fewer points
};

}  // namespace pipit::internal
