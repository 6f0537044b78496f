#include "engine/graph/shape.h"

#include <fmt/format.h>

#include "engine/base/error.h"

namespace pipit {

namespace {
constexpr std::int64_t kMaxElements = std::int64_t{1} << 62;
}

Shape::Shape(std::span<const std::int64_t> dims) {
  if (dims.size() > static_cast<std::size_t>(kMaxRank)) {
    fail("shape [{}] has {} dimensions; at most {} are supported", fmt::join(dims, "x"), dims.size(),
         kMaxRank);
  }
  rank_ = static_cast<int>(dims.size());
  bool empty = false;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] < 0) fail("shape [{}] has a negative extent", fmt::join(dims, "x"));
    dims_[i] = dims[i];
    empty = empty || dims[i] == 0;
  }
  // The product of the non-zero extents is bounded too, so that strides never overflow.
  for (const std::int64_t extent : dims) {
    if (extent == 0) continue;
    if (elements_ > kMaxElements / extent)
      fail("shape [{}] overflows the element count", fmt::join(dims, "x"));
    elements_ *= extent;
  }
  if (empty) elements_ = 0;
}

Shape Shape::with(int axis, std::int64_t extent) const {
  std::array<std::int64_t, kMaxRank> dims = dims_;
  dims[static_cast<std::size_t>(axis)] = extent;
  return Shape(std::span(dims.data(), static_cast<std::size_t>(rank_)));
}

std::string Shape::str() const {
  return rank_ == 0 ? std::string("scalar") : fmt::format("{}", fmt::join(dims(), "x"));
}

bool operator==(const Shape& a, const Shape& b) {
  return a.rank_ == b.rank_ && std::equal(a.dims().begin(), a.dims().end(), b.dims().begin());
}

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

}  // namespace pipit
