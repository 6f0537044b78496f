#include "engine/graph/shape.h"

#include <algorithm>
#include <array>

#include "engine/base/error.h"

namespace pipit::internal {

int normalize_axis(std::int64_t axis, int rank, const char* what) {
  if (axis < -rank || axis >= rank) {
    fail("{}: axis {} is outside [{}, {}) of a tensor with {} dimensions", what, axis, -rank, rank, rank);
  }
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

Shape broadcast_shapes(const Shape& a, const Shape& b) {
  const int rank = std::max(a.rank(), b.rank());
  std::array<std::int64_t, kMaxRank> dims{};
  for (int i = 0; i < rank; ++i) {
    const int ia = i - (rank - a.rank());
    const int ib = i - (rank - b.rank());
    const std::int64_t ea = ia < 0 ? 1 : a[ia];
    const std::int64_t eb = ib < 0 ? 1 : b[ib];
    if (ea != eb && ea != 1 && eb != 1) fail("shapes {} and {} do not broadcast", a.str(), b.str());
    dims[static_cast<std::size_t>(i)] = ea == 1 ? eb : ea;
  }
  return Shape(std::span(dims.data(), static_cast<std::size_t>(rank)));
}

}  // namespace pipit::internal
