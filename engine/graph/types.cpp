// What pipit/types.h declares.
#include "pipit/types.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/base/error.h"

namespace pipit {

using internal::fail;

std::string_view device_name(DeviceKind device) {
  return device == DeviceKind::cpu ? "cpu" : "cuda";
}

std::string_view precision_name(Precision precision) {
  switch (precision) {
    case Precision::fp32:
      return "fp32";
    case Precision::fp16:
      return "fp16";
    case Precision::bf16:
      return "bf16";
    case Precision::int8:
      return "int8";
    case Precision::int8_dynamic:
      return "int8-dynamic";
    case Precision::w8:
      return "w8";
    case Precision::w4:
      return "w4";
  }
  return "?";
}

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

}  // namespace pipit
