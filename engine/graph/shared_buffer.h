// Memory whose content is held once in a process, however many kernels made it for themselves.
#pragma once

#include <cstddef>
#include <memory>
#include <set>

#include "engine/graph/tensor.h"

namespace pipit::internal {

/// What a kernel has packed and does not change any more. Where another one that is alive packed the same bytes (a
/// weight that several nodes of a graph share, two plans of one model), both hold the same memory. May be used by
/// several threads at once.
class SharedBuffer {
 public:
  SharedBuffer() = default;
  /// Takes over the buffer, or gives it up for an equal one.
  explicit SharedBuffer(HostBuffer buffer);
  const std::byte* data() const { return buffer_ == nullptr ? nullptr : buffer_->data(); }
  /// While a CountedOnce lives, 0 where the same memory was asked about before.
  std::size_t bytes() const;

  /// For sums of what many kernels hold (Kernel::packed_bytes): while it lives, this thread counts memory that they
  /// share for the first of them. One at a time in a thread.
  class CountedOnce {
   public:
    CountedOnce();
    ~CountedOnce();
    CountedOnce(const CountedOnce&) = delete;
    CountedOnce& operator=(const CountedOnce&) = delete;

   private:
    friend class SharedBuffer;
    std::set<const HostBuffer*> seen_;
  };

 private:
  std::shared_ptr<const HostBuffer> buffer_;
};

}  // namespace pipit::internal
