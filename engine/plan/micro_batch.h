// Micro-batches: a batch goes through a graph a few samples at a time, so that what one layer writes is still in a
// cache when the next one reads it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/graph/graph.h"

namespace pipit::internal {

/// How a run is cut. The last micro-batch is as large as the others: it computes some samples a second time, with the
/// same bits, where their number leaves a remainder.
struct MicroBatches {
  std::int64_t samples =
      1;  ///< entries of dimension 0 of every graph input and output; 1 where they are not cut
  std::int64_t size = 1;  ///< how many go through all steps together
  std::string why;        ///< what decided the size, for people

  std::int64_t count() const { return (samples + size - 1) / size; }
  bool cut() const { return size < samples; }
  /// The first sample of micro-batch `index`.
  std::int64_t first(std::int64_t index) const { return std::min(index * size, samples - size); }
};

/// Which values hold one entry of dimension 0 per sample.
struct Samples {
  std::int64_t count = 1;
  std::vector<bool> by_sample;  ///< per value of the graph
  std::string obstacle;         ///< why samples cannot be computed apart; empty: they can
};

/// All graph inputs are by sample; from there every layer says whether it treats samples independently
/// (Layer::is_batch_independent). An obstacle is a layer that does not, inputs that disagree, or an output that is not
/// by sample.
Samples find_samples(const Graph& graph);

/// Bytes of the largest set of values that a run of one sample must hold at once.
std::int64_t live_bytes_per_sample(const Graph& graph, const Samples& samples);

/// `wanted` samples together (0: all). Without a wish, about as many as keep what is alive at once near the
/// second-level caches of `threads` threads, but enough that reading all weights for each micro-batch costs little
/// beside their activations; all where they are no more than that or cannot be cut evenly. Throws Error when it cannot
/// be as wanted.
MicroBatches choose_micro_batches(const Graph& graph, const Samples& samples,
                                  std::optional<std::int64_t> wanted, int threads);

}  // namespace pipit::internal
