// Memory whose content is held once in a process, however many kernels made it for themselves.
#pragma once

#include <memory>

#include "engine/graph/tensor.h"

namespace pipit {

/// What a kernel has packed and does not change any more. Where another one that is alive packed the same bytes (a
/// weight that several nodes of a graph share, two plans of one model), both hold the same memory. May be used by
/// several threads at once.
class SharedBuffer {
 public:
  SharedBuffer() = default;
  /// Takes over the buffer, or gives it up for an equal one.
  explicit SharedBuffer(HostBuffer buffer);
  const std::byte* data() const { return buffer_ == nullptr ? nullptr : buffer_->data(); }
  std::size_t bytes() const { return buffer_ == nullptr ? 0 : buffer_->bytes(); }

 private:
  std::shared_ptr<const HostBuffer> buffer_;
};

}  // namespace pipit
