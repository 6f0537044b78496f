#include "layers/cpu/conv/winograd_tiles.h"

#include <algorithm>

#include "engine/base/ceil_div.h"

namespace pipit::internal {

WinogradTiles::WinogradTiles(const Shape& y, int m, WinogradBorder border)
    : m_(m),
      points_(m + 2),
      height_(y[2]),
      width_(y[3]),
      rows_(ceil_div(y[2], m)),
      columns_(ceil_div(y[3], m)),
      count_(y[0] * rows_ * columns_),
      short_down_(border == WinogradBorder::fewer_points && height_ % m != 0),
      short_along_(border == WinogradBorder::fewer_points && width_ % m != 0) {}

WinogradTiles::Place WinogradTiles::place(std::int64_t tile) const {
  const std::int64_t row = tile / columns_ % rows_ * m_;
  const std::int64_t column = tile % columns_ * m_;
  return {tile / (columns_ * rows_), row, column, std::min(m_, height_ - row), std::min(m_, width_ - column)};
}

WinogradTiles::Kinds WinogradTiles::kinds_before(std::int64_t tile) const {
  if (tile == 0) return {};  // there may be none
  const std::int64_t image = tile / (columns_ * rows_);
  const std::int64_t row = tile / columns_ % rows_;
  const std::int64_t column = tile % columns_;
  const std::int64_t whole_rows = rows_ - (short_down_ ? 1 : 0);
  const std::int64_t whole_columns = columns_ - (short_along_ ? 1 : 0);
  Kinds kinds;
  if (short_along_) kinds.of[0] = image * whole_rows + std::min(row, whole_rows);
  if (short_down_)
    kinds.of[2] = image * whole_columns + (row == whole_rows ? std::min(column, whole_columns) : 0);
  if (short_down_ && short_along_) kinds.of[3] = image;
  kinds.of[1] = tile - kinds.of[0] - kinds.of[2] - kinds.of[3];
  return kinds;
}

int WinogradTiles::kind(std::int64_t tile) const {
  const bool down = short_down_ && tile / columns_ % rows_ == rows_ - 1;
  const bool along = short_along_ && tile % columns_ == columns_ - 1;
  if (down) return along ? 3 : 2;
  return along ? 0 : 1;
}

WinogradTiles::Band WinogradTiles::band(std::int64_t first, std::int64_t end) const {
  Band band{first, end, kinds_before(first), kinds_before(end)};
  for (int k = 0; k < 4; ++k) band.within.of[k] -= band.before.of[k];
  return band;
}

std::int64_t WinogradTiles::row(const Band& band, std::int64_t tile) const {
  if (!short_down_ && !short_along_) return tile - band.first;
  const int k = kind(tile);
  std::int64_t row = kinds_before(tile).of[k] - band.before.of[k];
  for (int earlier = 0; earlier < k; ++earlier) row += band.within.of[earlier];
  return row;
}

WinogradTiles::Rows WinogradTiles::rows(const Band& band, int product) const {
  const bool short_rows = !short_down_ || takes(height_ % m_, product / points_, points_);
  const bool short_columns = !short_along_ || takes(width_ % m_, product % points_, points_);
  const auto& of = band.within.of;
  const std::int64_t begin = short_columns ? 0 : of[0];
  std::int64_t end = of[0] + of[1];
  if (short_rows) end += of[2];
  if (short_rows && short_columns) end += of[3];
  return {begin, end};
}

std::int64_t WinogradTiles::plane_rows() const {
  const Band all = band(0, count_);
  std::int64_t sum = 0;
  for (int i = 0; i < products(); ++i) sum += rows(all, i).size();
  return sum;
}

}  // namespace pipit::internal
