// A kernel whose output another one computes on piece by piece, so that it never lies in memory as a whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/graph/tensor.h"

namespace pipit::internal {

/// Computes pieces of an output [N, C, H, W]: some rows of one image, one block of channels. Several threads may
/// compute pieces at once, also the same one. What a kernel is whose candidate computes pieces.
class RowSource {
 public:
  virtual ~RowSource() = default;
  /// Channels of a block; the last one has what is left.
  virtual std::int64_t piece_channels() const = 0;
  /// Scratch that compute_piece() needs, at a multiple of 64 bytes.
  virtual std::size_t piece_scratch_bytes() const = 0;
  /// Writes rows [begin, end) of image `image`, block `block`, to y [end - begin][W][channels of the block], in the
  /// type of the kernel's output; from row to row there are `columns` >= W pixels. `inputs`: as Kernel::run has them.
  virtual void compute_piece(std::span<const ConstTensorView> inputs, std::int64_t image, std::int64_t begin,
                             std::int64_t end, std::int64_t block, std::byte* y, std::int64_t columns,
                             std::byte* scratch) const = 0;
};

}  // namespace pipit::internal
