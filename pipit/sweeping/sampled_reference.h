// What a convolution should give, at some of its outputs: summed in double precision.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "pipit/sweeping/sparse_layer.h"

namespace pipit::internal::detail {

struct SampledError {
  double mae = 0;
  double max = 0;
  double relative_l2 = 0;
};

/// All channels of up to `pixels` outputs that are drawn at random, always the same.
class SampledReference {
 public:
  /// `x`: row-major f32 of layer.x.
  SampledReference(const SparseLayer& layer, const Tensor& x, std::size_t pixels, ThreadPool& pool);

  /// Positions in [pixels][O].
  const std::vector<std::size_t>& elements() const { return elements_; }
  /// The largest magnitude there.
  double largest() const;
  /// The error of what a kernel gives at these.
  SampledError error(std::span<const float> results) const;

 private:
  std::vector<std::size_t> elements_;
  std::vector<double> values_;
};

}  // namespace pipit::internal::detail
