// Copies between two memory orders of one index space, for elements of 1, 4 or 8 bytes.
#pragma once

#include "engine/platform/thread_pool.h"
#include "layers/common/strided_loop.h"

namespace pipit::internal {

/// Prepared once, then run without allocating. Contiguous runs are moved as blocks, transpositions in tiles that
/// stay in the cache, anything else element by element.
class StridedCopy {
 public:
  /// The loop's operands are (target, source), strides in elements. The target's offsets must be distinct.
  StridedCopy(const StridedLoop<2>& loop, DType type);

  /// The loop starts at the given addresses. Target and source must not overlap.
  void run(std::byte* target, const std::byte* source, ThreadPool& pool) const;

 private:
  template <std::size_t Bytes>
  void copy_rows(std::byte* target, const std::byte* source, ThreadPool& pool) const;
  template <std::size_t Bytes>
  void transpose(std::byte* target, const std::byte* source, ThreadPool& pool) const;

  DType type_;
  StridedLoop<2> loop_;  // collapsed
  /// The dimension along which the source is contiguous, where that is not the target's; else -1.
  int source_dim_ = -1;
  StridedLoop<2> outer_;  // the dimensions besides source_dim_ and the innermost
};

}  // namespace pipit::internal
