// How long pools are expected to take, and how global averages are divided among blocks. Plain C++.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "layers/cuda/cost/launch_cost.h"
#include "layers/cuda/device/gpu_info.h"
#include "layers/ops/pool.h"

namespace pipit::internal::cuda {

/// Of f32, f16 and bf16: blocks add up chunks of the positions; a second kernel adds the chunks where there are
/// several.
struct ChunkedAverage {
  static constexpr int kRows = 32;          ///< threads along the positions
  static constexpr int kChunk = 8 * kRows;  ///< positions of a block

  static std::int64_t chunks(std::int64_t positions) { return (positions + kChunk - 1) / kChunk; }
};

/// Of integers: four channels a thread, or sixteen, the positions shared by the threads of a block and, where there are
/// many, by the blocks of a cluster.
struct IntegerAverage {
  static constexpr int kThreads = 512;
  static constexpr int kMaxWords = 16;  ///< of a block
  static constexpr int kSixteen = 4;    ///< words that a thread reads at once where there are many positions
  static constexpr int kMaxSplits = 8;  ///< widest cluster that every GPU with clusters can launch
  static constexpr int kLoadsInFlight =
      8;  ///< of a thread that reads words; fewer do not hide memory's latency

  int all_words = 1;  ///< of a position
  int words = 1;      ///< of a block, a power of two
  int positions = 1;
  int splits = 1;  ///< blocks of a cluster, along x

  IntegerAverage() = default;
  /// shape: [batch, channels, ...], channels a multiple of 4; clusters: they can be launched.
  IntegerAverage(const Shape& shape, int processors, bool clusters)
      : all_words(static_cast<int>(shape[1] / 4)),
        positions(static_cast<int>(shape.elements() / (shape[0] * shape[1]))) {
    // Blocks of 64 bytes a position where they leave little idle, else of 32.
    while (words < std::min(all_words, kMaxWords / 2)) words *= 2;
    if (all_words % kMaxWords == 0 || all_words > 4 * kMaxWords) words = kMaxWords;
    const std::int64_t blocks = shape[0] * ((all_words + words - 1) / words);
    const auto worth = [&](int count) {
      return count <= kMaxSplits && steps() >= kLoadsInFlight * count && blocks * count <= 4LL * processors;
    };
    while (clusters && worth(splits * 2)) splits *= 2;
  }
  /// Positions of a thread that reads words, without other blocks.
  std::int64_t steps() const { return std::int64_t{positions} * words / kThreads; }
  bool reads_sixteen() const {
    return all_words % kSixteen == 0 && words >= kSixteen && steps() >= 3 * kLoadsInFlight * splits;
  }
};

/// Of "windows": a thread reads the taps of its outputs one after another, also those of a global pool.
inline Estimate windows_estimate(const NodeSpec& spec, const PoolAttributes& pool) {
  LaunchTerms terms;
  terms.megabytes = operand_megabytes(spec);
  terms.steps = static_cast<double>(pool_window(pool, spec.inputs[0]->shape).taps());
  return estimate_of("windows", terms);
}

/// Of a global average that a kernel takes.
inline Estimate global_average_estimate(const NodeSpec& spec) {
  const TensorDesc& x = *spec.inputs[0];
  LaunchTerms terms;
  terms.megabytes = operand_megabytes(spec);
  if (x.elements() == 0) return estimate_of("global_average", terms);
  if (x.dtype == DType::f32 || is_stored_float(x.dtype)) {
    const std::int64_t positions = x.elements() / (x.shape[0] * x.shape[1]);
    const std::int64_t chunks = ChunkedAverage::chunks(positions);
    terms.steps = static_cast<double>(std::min<std::int64_t>(positions, ChunkedAverage::kChunk)) /
                      ChunkedAverage::kRows +
                  static_cast<double>(chunks);
    terms.copies = chunks > 1 ? 1 : 0;
    return estimate_of("global_average", terms);
  }
  const IntegerAverage average(x.shape, processors_of(spec.gpu), hopper_processors(spec.gpu) > 0);
  terms.steps = static_cast<double>(average.steps()) / average.splits;
  terms.shared = average.splits > 1 ? 1 : 0;
  return estimate_of("global_average i8", terms);
}

}  // namespace pipit::internal::cuda
