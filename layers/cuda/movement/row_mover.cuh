// What the candidates that move rows of several tensors have in common: ChannelShuffle and Split.
#pragma once

#include <algorithm>

#include "engine/base/ceil_div.h"
#include "layers/cuda/device/early_launch.cuh"
#include "layers/cuda/movement/channel_shuffle_kernel.cuh"

namespace pipit::cuda {

/// Launches kernels that move rows of inputs to rows of outputs.
class RowMover {
 public:
  explicit RowMover(int gpu) {
    PIPIT_CUDA(cudaDeviceGetAttribute(&processors_, cudaDevAttrMultiProcessorCount, gpu));
    PIPIT_CUDA(can_overlap(reinterpret_cast<const void*>(&shuffle_rows<unsigned char, 1>), overlap_));
  }

  /// Everything but units and steps is set, in elements of T. width: of all outputs.
  template <typename T, int N>
  void launch(ShuffleArgs args, int width, const RunContext& context) const {
    // As many threads as the GPU holds at once, of a few rows at least.
    constexpr int kResident = 2048;
    args.units = width / N;
    args.row_step = static_cast<int>(std::min<std::int64_t>(
        ceil_div(args.rows, kShuffleAtOnce),
        std::max<std::int64_t>(std::int64_t{processors_} * kResident / args.units, 1)));
    PIPIT_CUDA(launch_overlapping(
        shuffle_rows<T, N>, dim3(blocks_for(std::int64_t{args.row_step} * args.units, kShuffleThreads)),
        dim3(kShuffleThreads), overlap_, static_cast<cudaStream_t>(context.stream), args));
  }

 private:
  int processors_ = 0;
  bool overlap_ = false;
};

struct RowPart {
  std::int64_t used, width;  ///< that are moved, and all
};

/// The views' rows one behind the other, by part(index, desc); returns the sum of their widths.
template <typename View, typename Pointer, typename Part>
int side_by_side(std::span<const View> views, ShuffledRows<Pointer> (&rows)[kShuffleMost], const Part& part) {
  int count = 0, end = 0, width = 0;
  for (std::size_t i = 0; i < views.size(); ++i) {
    const RowPart p = part(i, views[i].desc);
    const int first = end;
    end += static_cast<int>(p.used);
    width += static_cast<int>(p.width);
    if (p.width > 0) rows[count++] = {views[i].data, first, end, static_cast<int>(p.width)};
  }
  return width;
}

}  // namespace pipit::cuda
