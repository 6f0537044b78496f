#include "engine/tensor.h"

#include <limits>
#include <new>

#include <fmt/format.h>

namespace pipit {

std::string_view layout_name(Layout layout) {
  return layout == Layout::row_major ? "row_major" : "channels_last";
}

std::size_t TensorDesc::bytes() const {
  const auto count = static_cast<std::size_t>(elements());
  if (count > std::numeric_limits<std::size_t>::max() / 2 / dtype_bytes(dtype)) {
    fail("a tensor of shape {} and type {} is too large for memory", shape.str(), dtype_name(dtype));
  }
  return count * dtype_bytes(dtype);
}

Strides TensorDesc::strides() const {
  Strides strides{};
  const int rank = shape.rank();
  std::int64_t step = 1;
  const auto place = [&](int axis) {
    strides[static_cast<std::size_t>(axis)] = step;
    if (shape[axis] != 0) step *= shape[axis];
  };
  const bool last = layout == Layout::channels_last && rank >= 3;
  if (last) place(1);
  for (int axis = rank - 1; axis >= 0; --axis) {
    if (!(last && axis == 1)) place(axis);
  }
  return strides;
}

bool TensorDesc::layouts_coincide() const {
  if (shape.rank() < 3 || elements() == 0 || shape[1] == 1) return true;
  for (int axis = 2; axis < shape.rank(); ++axis) {
    if (shape[axis] != 1) return false;
  }
  return true;
}

std::string TensorDesc::str() const {
  return fmt::format("{} {}", dtype_name(dtype), shape.str());
}

HostBuffer::HostBuffer(std::size_t bytes) : bytes_(bytes) {
  // Whole cache lines, so that vector kernels may read a full line at the tail.
  const std::size_t rounded = (bytes / kAlignment + 1) * kAlignment;
  void* memory = ::operator new (rounded, std::align_val_t{kAlignment}, std::nothrow);
  if (memory == nullptr) fail("out of memory: {} bytes were not to be had", bytes);
  data_.reset(static_cast<std::byte*>(memory));
}

Tensor Tensor::clone() const {
  Tensor copy(desc_);
  std::memcpy(copy.buffer_.data(), buffer_.data(), desc_.bytes());
  return copy;
}

namespace {

template <std::size_t Bytes>
void copy_strided(const TensorDesc& from, const std::byte* source, const TensorDesc& to, std::byte* target) {
  const Strides si = from.strides();
  const Strides so = to.strides();
  std::array<std::int64_t, kMaxRank> index{};
  const int rank = from.shape.rank();
  for (std::int64_t n = from.elements(); n > 0; --n) {
    std::int64_t i = 0;
    std::int64_t o = 0;
    for (std::size_t d = 0; d < static_cast<std::size_t>(rank); ++d) {
      i += index[d] * si[d];
      o += index[d] * so[d];
    }
    std::memcpy(target + static_cast<std::size_t>(o) * Bytes, source + static_cast<std::size_t>(i) * Bytes,
                Bytes);
    for (int d = rank - 1; d >= 0; --d) {
      if (++index[static_cast<std::size_t>(d)] < from.shape[d]) break;
      index[static_cast<std::size_t>(d)] = 0;
    }
  }
}

}  // namespace

Tensor to_layout(const ConstTensorView& source, Layout layout) {
  TensorDesc desc = source.desc;
  desc.layout = layout;
  Tensor result(desc);
  std::byte* target = result.view().data;
  if (layout == source.desc.layout || desc.layouts_coincide()) {
    std::memcpy(target, source.data, desc.bytes());
    return result;
  }
  switch (dtype_bytes(desc.dtype)) {
    case 1:
      copy_strided<1>(source.desc, source.data, desc, target);
      break;
    case 2:
      copy_strided<2>(source.desc, source.data, desc, target);
      break;
    case 4:
      copy_strided<4>(source.desc, source.data, desc, target);
      break;
    default:
      copy_strided<8>(source.desc, source.data, desc, target);
  }
  return result;
}

}  // namespace pipit
