// The taps of a window over NHWC or NDHWC data. No functions: kernels of every instruction set include it.
#pragma once

#include <cstdint>

namespace pipit::internal {

/// A box of taps, at one channel; steps from slice to slice, row to row and column to column in elements.
template <typename T>
struct Taps {
  const T* data = nullptr;
  std::int64_t slice_step = 0;
  std::int64_t row_step = 0;
  std::int64_t column_step = 0;
  std::int64_t slices = 1;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};

}  // namespace pipit::internal
