// Second moments of what a layer reads and of what it should compute: all that selection and refit know of images.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/graph/graph.h"
#include "engine/platform/thread_pool.h"

namespace pipit::internal {

/// Sums over sampled columns of the im2col product of one layer, or of one group of a grouped convolution. A column x
/// has depth K = I * taps, in the order of a row of the weights [I, kernel...], and a 1 after it, for the bias; y are
/// the outputs that the layer should compute from it, before its activation.
struct Gram {
  std::size_t depth = 0;    ///< K
  std::size_t outputs = 0;  ///< of the group
  double count = 0;         ///< columns
  std::vector<double> xx;   ///< [K + 1, K + 1], sum of x x^T; symmetric, in full
  std::vector<double> xy;   ///< [K + 1, outputs], sum of x y^T
  std::vector<double> yy;   ///< [outputs], sum of y^2

  Gram() = default;
  Gram(std::size_t depth, std::size_t outputs);
  /// Adds the sums of other columns. Throws Error for sums of another layer.
  void merge(const Gram& other);
  /// Forgets xy and yy.
  void clear_outputs();
  /// Sets xy and yy to what weights [outputs, K] and biases (or none) compute from the columns.
  void set_outputs(std::span<const float> weights, std::span<const float> bias);
  /// The variance of y, summed over outputs but those that `skip` marks (none where it is empty).
  double variance(std::span<const std::uint8_t> skip = {}) const;
  /// Mean square of the difference between y and what weights and biases compute, summed over outputs but those that
  /// `skip` marks.
  double error(std::span<const float> weights, std::span<const float> bias,
               std::span<const std::uint8_t> skip = {}) const;
  /// error() over variance(); 0 where y is constant.
  double relative_error(std::span<const float> weights, std::span<const float> bias,
                        std::span<const std::uint8_t> skip = {}) const;
};

/// Adds columns to a Gram. Rows are summed in f32 within chunks of a fixed number and in f64 across them, every sum by
/// one thread: the same columns in the same order give the same bits for any number of threads.
class GramBuilder {
 public:
  /// What is added to: xx and the count; xy and yy; or all.
  enum class Sums { inputs, outputs, all };
  GramBuilder(Gram& gram, ThreadPool& pool, Sums sums);
  ~GramBuilder();
  GramBuilder(const GramBuilder&) = delete;
  GramBuilder& operator=(const GramBuilder&) = delete;

  /// Where the next columns go: `count` rows of K values, `stride` apart, and, where outputs are added, as many of
  /// `outputs` values, without gaps. Valid until the next call.
  struct Rows {
    float* x;
    float* y;
    std::size_t count;
    std::size_t stride;
  };
  /// At least one row and at most `wanted` (> 0), all of which the caller fills.
  Rows next(std::size_t wanted);
  /// Adds what is left. To be called once, after the last row.
  void finish();

 private:
  void flush();
  Gram& gram_;
  ThreadPool& pool_;
  Sums sums_;
  std::size_t rows_ = 0;
  std::vector<float> x_;  // [chunk, K + 1]
  std::vector<float> y_;  // [chunk, outputs]
};

}  // namespace pipit::internal
