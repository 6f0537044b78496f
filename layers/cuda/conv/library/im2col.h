// Patches of a convolution's input as the rows of a matrix.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <vector>

#include "engine/cuda/runtime.h"
#include "layers/ops/window.h"

namespace pipit::internal::cuda {

/// patches [positions, groups, row]: row `p` holds for each group the taps of output position p, per tap the group's
/// channels, 0 where a tap lies in the padding, and zeros up to `row` elements. Of these only what `kept` names.
struct Im2colShape {
  Window window;  ///< of rank 3
  std::int64_t groups = 1;
  std::int64_t group_channels = 1;
  std::int64_t row = 0;  ///< elements of a group's row, at least those that are kept
  /// What a row holds: runs of `block` neighbouring channels of a tap, ascending, each by where it begins in
  /// tap * group_channels + channel. Empty: everything.
  std::vector<std::int64_t> kept;
  std::int64_t block = 1;                ///< divides group_channels
  std::size_t element = 4;               ///< bytes
  std::array<std::int64_t, 3> input{};   ///< extents
  std::array<std::int64_t, 3> output{};  ///< extents
  std::int64_t batch_stride = 0;         ///< strides of the input, in elements
  std::int64_t channel_stride = 0;
  std::array<std::int64_t, 3> stride{};
};

class Im2col {
 public:
  Im2col() = default;
  /// Prepares the table of columns on the current GPU. Throws Error when memory is not to be had.
  explicit Im2col(const Im2colShape& shape);
  /// Why the shape cannot be handled (indices beyond 31 bits); null when it can.
  static const char* problem(const Im2colShape& shape, std::int64_t images);
  /// Gathers the patches of `images` images; all memory on the GPU, the patches 16-byte aligned.
  void run(const void* input, std::int64_t images, void* patches, cudaStream_t stream) const;

 private:
  Im2colShape shape_;
  int vector_ = 1;  // elements that move at once
  std::int64_t columns_ = 0;
  DeviceBuffer table_;
};

}  // namespace pipit::internal::cuda
