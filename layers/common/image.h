// A tensor [N, C, spatial...] seen with exactly three spatial dimensions, the missing ones with extent 1 first.
#pragma once

#include <array>

#include "engine/graph/tensor.h"

namespace pipit::internal {

struct Image {
  std::int64_t batch = 0;
  std::int64_t channels = 0;
  std::array<std::int64_t, 3> extent{1, 1, 1};
  // Distances in elements.
  std::int64_t batch_stride = 0;
  std::int64_t channel_stride = 0;
  std::array<std::int64_t, 3> stride{0, 0, 0};

  /// For descs of rank 2 to 5. Weights [O, C, kernel...] fit as well.
  explicit Image(const TensorDesc& desc) {
    const Strides strides = desc.strides();
    batch = desc.shape[0];
    channels = desc.shape[1];
    batch_stride = strides[0];
    channel_stride = strides[1];
    for (int axis = 2; axis < desc.shape.rank(); ++axis) {
      const auto to = static_cast<std::size_t>(3 - desc.shape.rank() + axis);
      extent[to] = desc.shape[axis];
      stride[to] = strides[static_cast<std::size_t>(axis)];
    }
  }

  std::int64_t positions() const { return extent[0] * extent[1] * extent[2]; }
  std::int64_t plane(std::int64_t n, std::int64_t c) const { return n * batch_stride + c * channel_stride; }
  std::int64_t at(std::int64_t d, std::int64_t h, std::int64_t w) const {
    return d * stride[0] + h * stride[1] + w * stride[2];
  }
};

/// Calls body(d, h, w) for every spatial position in row-major order.
template <typename Body>
void for_each_position(const Image& image, Body&& body) {
  for (std::int64_t d = 0; d < image.extent[0]; ++d) {
    for (std::int64_t h = 0; h < image.extent[1]; ++h) {
      for (std::int64_t w = 0; w < image.extent[2]; ++w) body(d, h, w);
    }
  }
}

}  // namespace pipit::internal
