// What the candidates that move rows of several tensors have in common: ChannelShuffle and Split.
#pragma once

#include <algorithm>
#include <span>

#include "engine/base/ceil_div.h"
#include "layers/cuda/device/kernel.cuh"
#include "layers/cuda/movement/channel_shuffle_kernel.cuh"

namespace pipit::internal::cuda {

/// A tensor's part of a row, in bytes: those that are moved, and all.
template <typename Pointer>
struct RowPart {
  Pointer data;
  std::int64_t used, width;
};

struct RowMove {
  std::span<const RowPart<const void*>> x;
  std::span<const RowPart<void*>> y;
  std::int64_t groups = 1, element = 1;  ///< element: bytes of what one group follows the other by
  std::int64_t rows = 0;
};

/// Launches kernels that move rows of inputs to rows of outputs.
class RowMover {
 public:
  explicit RowMover(int gpu) {
    PIPIT_CUDA(cudaDeviceGetAttribute(&processors_, cudaDevAttrMultiProcessorCount, gpu));
    PIPIT_CUDA(can_overlap(reinterpret_cast<const void*>(&shuffle_rows<unsigned char, 1>), overlap_));
  }

  void run(const RowMove& move, const RunContext& context) const {
    if (move.rows == 0) return;
    // With one group whole runs of channels are moved, in units as wide as every part of a row allows.
    auto all = static_cast<std::uintptr_t>(move.element);
    if (move.groups == 1) {
      all = 16;
      for (const auto& part : move.x) all |= bits(part) | static_cast<std::uintptr_t>(part.used);
      for (const auto& part : move.y) all |= bits(part) | static_cast<std::uintptr_t>(part.used);
    }
    if (all % 16 == 0) return launch<uint4, 1>(move, context);
    if (all % 8 == 0) return launch<std::uint64_t, 1>(move, context);
    if (all % 4 == 0) return launch_several<unsigned>(move, context);
    if (all % 2 == 0) return launch_several<unsigned short>(move, context);
    launch_several<unsigned char>(move, context);
  }

 private:
  template <typename Pointer>
  static std::uintptr_t bits(const RowPart<Pointer>& part) {
    return reinterpret_cast<std::uintptr_t>(part.data) | static_cast<std::uintptr_t>(part.width);
  }

  // As many neighbours at once as lie within an output and may be written together.
  template <typename T>
  void launch_several(const RowMove& move, const RunContext& context) const {
    std::uintptr_t outputs = 0;
    for (const auto& part : move.y) outputs |= bits(part);
    if (outputs % (4 * sizeof(T)) == 0) return launch<T, 4>(move, context);
    if (outputs % (2 * sizeof(T)) == 0) return launch<T, 2>(move, context);
    launch<T, 1>(move, context);
  }

  template <typename T, int N>
  void launch(const RowMove& move, const RunContext& context) const {
    ShuffleArgs args;
    const Sums channels = side_by_side<T>(move.x, args.x);
    const Sums outputs = side_by_side<T>(move.y, args.y);
    args.groups = static_cast<unsigned>(move.groups);
    args.of_group = static_cast<unsigned>(channels.used) / args.groups;
    args.rows = static_cast<int>(move.rows);
    // As many threads as the GPU holds at once, of a few rows at least.
    constexpr int kResident = 2048;
    args.units = outputs.width / N;
    args.row_step = static_cast<int>(std::min<std::int64_t>(
        ceil_div(args.rows, kShuffleAtOnce),
        std::max<std::int64_t>(std::int64_t{processors_} * kResident / args.units, 1)));
    const dim3 blocks(blocks_for(std::int64_t{args.row_step} * args.units, kShuffleThreads));
    PIPIT_CUDA(launch_kernel(shuffle_rows<T, N>, {blocks, dim3(kShuffleThreads), 0, overlap_},
                             static_cast<cudaStream_t>(context.stream), args));
  }

  struct Sums {
    int used = 0, width = 0;
  };
  template <typename T, typename Pointer>
  static Sums side_by_side(std::span<const RowPart<Pointer>> parts,
                           ShuffledRows<Pointer> (&rows)[kShuffleMax]) {
    constexpr std::int64_t kBytes = sizeof(T);
    Sums sums;
    int count = 0;
    for (const auto& [data, used, width] : parts) {
      sums.used += static_cast<int>(used / kBytes);
      sums.width += static_cast<int>(width / kBytes);
      if (width > 0) rows[count++] = {data, sums.used, static_cast<int>(width / kBytes)};
    }
    return sums;
  }

  int processors_ = 0;
  bool overlap_ = false;
};

}  // namespace pipit::internal::cuda
