// Device time of launches, with operands in memory and in the L2 cache.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "engine/cuda/runtime.h"
#include "engine/graph/dtype.h"

namespace pipit::sweep {

/// Microseconds a launch: medians over replays of a CUDA graph of many.
struct Times {
  double memory = 0;  ///< every launch on other operands, the L2 cache emptied before each replay
  double cached = 0;  ///< all launches on the same operands
};

/// Operands are slices of memory that is filled with random elements once.
class Timer {
 public:
  Timer();
  /// Launches on a stream, without waiting for it.
  using Launch = std::function<void(const std::byte* x, std::byte* y, cudaStream_t stream)>;
  /// x_type: i8 or f16. Throws Error where an operand is larger than the memory that is kept for it.
  Times measure(DType x_type, std::size_t x_bytes, std::size_t y_bytes, const Launch& launch) const;
  /// Memory that kernels may scribble on between launches, at least this large.
  std::byte* scratch(std::size_t bytes);

 private:
  double replay(const cuda::Graph& graph, int launches, bool flush) const;

  cuda::Stream stream_;
  cuda::DeviceBuffer bytes_, halves_, results_, flushed_, scratch_;
};

}  // namespace pipit::sweep
