// TensorDesc says what a tensor is, TensorView where it lies, Tensor owns its memory. Keep the three apart.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <string>

#include "engine/base/error.h"
#include "engine/graph/dtype.h"
#include "engine/graph/shape.h"

namespace pipit::internal {

/// Memory order of the logical dimensions. Shapes are always written in ONNX order (N, C, spatial…);
/// the layout only says how they lie in memory.
enum class Layout : std::uint8_t {
  row_major,      ///< last logical dimension fastest (NCHW for images)
  channels_last,  ///< dimension 1 fastest (NHWC for images); meaningful for rank >= 3
};

std::string_view layout_name(Layout layout);

/// Shape, element type and memory order. Dense: no gaps between elements.
struct TensorDesc {
  Shape shape;
  DType dtype = DType::f32;
  Layout layout = Layout::row_major;

  std::int64_t elements() const { return shape.elements(); }
  /// Throws Error when the size overflows.
  std::size_t bytes() const;
  /// Distance in elements between neighbours along each logical dimension.
  Strides strides() const;
  /// True when both layouts put the elements of this shape in the same order (for example H = W = 1).
  bool layouts_coincide() const;
  std::string str() const;

  friend bool operator==(const TensorDesc&, const TensorDesc&) = default;
};

/// A desc and a pointer that may be read. Owns nothing. A default view stands for an absent optional input.
struct ConstTensorView {
  TensorDesc desc;
  const std::byte* data = nullptr;

  bool present() const { return data != nullptr; }
  /// The elements; throws Error when T is not the view's dtype.
  template <typename T>
  const T* as() const {
    if (DTypeOf<T>::value != desc.dtype) {
      fail("tensor of {} read as {}", dtype_name(desc.dtype), dtype_name(DTypeOf<T>::value));
    }
    return reinterpret_cast<const T*>(data);
  }
};

/// A desc and a pointer that may be written. Owns nothing.
struct TensorView {
  TensorDesc desc;
  std::byte* data = nullptr;

  bool present() const { return data != nullptr; }
  template <typename T>
  T* as() const {
    if (DTypeOf<T>::value != desc.dtype) {
      fail("tensor of {} written as {}", dtype_name(desc.dtype), dtype_name(DTypeOf<T>::value));
    }
    return reinterpret_cast<T*>(data);
  }
  operator ConstTensorView() const { return {desc, data}; }
};

/// 64-byte aligned host memory, contents unspecified. Never null, also for 0 bytes. Large buffers are mappings of their
/// own: freed, they go back to the system at once (malloc raises its threshold when the first is freed, and keeps the
/// others), and they lie on huge pages where the system grants them.
class HostBuffer {
 public:
  static constexpr std::size_t kAlignment = 64;
  HostBuffer() = default;
  /// Throws Error (with the size) when the memory is not to be had.
  explicit HostBuffer(std::size_t bytes);
  std::byte* data() const { return data_.get(); }
  std::size_t bytes() const { return bytes_; }

 private:
  struct Free {
    std::size_t mapped;  // bytes of the mapping; 0: operator new
    void operator()(std::byte* p) const;
  };
  std::unique_ptr<std::byte, Free> data_;
  std::size_t bytes_ = 0;
};

/// Memory that holds zeros.
HostBuffer zeroed_host_buffer(std::size_t bytes);

/// A tensor that owns host memory. Move-only; uninitialized after construction from a desc.
class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(const TensorDesc& desc) : desc_(desc), buffer_(desc.bytes()) {}

  /// A row-major tensor with the given elements; throws Error when their count is not the shape's.
  template <typename T>
  static Tensor from(const Shape& shape, std::span<const T> values) {
    Tensor t(TensorDesc{shape, DTypeOf<T>::value, Layout::row_major});
    if (static_cast<std::int64_t>(values.size()) != shape.elements()) {
      fail("{} values given for a tensor of shape {}", values.size(), shape.str());
    }
    if (!values.empty()) std::memcpy(t.buffer_.data(), values.data(), values.size_bytes());
    return t;
  }
  template <typename T>
  static Tensor scalar(T value) {
    return from<T>(Shape{}, std::span<const T>(&value, 1));
  }

  const TensorDesc& desc() const { return desc_; }
  const Shape& shape() const { return desc_.shape; }
  TensorView view() { return {desc_, buffer_.data()}; }
  ConstTensorView view() const { return {desc_, buffer_.data()}; }
  template <typename T>
  std::span<T> values() {
    return {view().as<T>(), static_cast<std::size_t>(desc_.elements())};
  }
  template <typename T>
  std::span<const T> values() const {
    return {view().as<T>(), static_cast<std::size_t>(desc_.elements())};
  }
  Tensor clone() const;

 private:
  TensorDesc desc_;
  HostBuffer buffer_;
};

/// The same elements in another layout.
Tensor to_layout(const ConstTensorView& source, Layout layout);

}  // namespace pipit::internal
