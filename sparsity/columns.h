// The columns of the im2col product of one layer: what its weights are multiplied by at an output position.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/graph/graph.h"

namespace pipit::internal {

/// Reads columns from the values around a layer with constant weights (has_constant_weights). A position is a sample
/// and a place in space: of a convolution sample * places + place, of a matrix product a row.
class Columns {
 public:
  /// The columns of a node of the graph, which has to outlive this.
  Columns(const Graph& graph, const Node& node);

  std::int64_t positions() const { return positions_; }  ///< in one run
  std::size_t groups() const { return groups_; }
  std::size_t depth() const { return depth_; }      ///< of a column of one group: I * taps
  std::size_t outputs() const { return outputs_; }  ///< of one group

  /// The column of group `group` at `position` of the row-major input 0: depth() values, 0 where taps see padding.
  void read(const float* input, std::int64_t position, std::size_t group, float* column) const;
  /// Where output `output` of the layer is at `position`, in its row-major output and in its residual input.
  std::size_t offset(std::int64_t position, std::size_t output) const;

 private:
  std::int64_t positions_ = 0;
  std::size_t groups_ = 1;
  std::size_t depth_ = 0;
  std::size_t outputs_ = 0;
  std::size_t all_outputs_ = 0;
  std::int64_t places_ = 1;  // output places of a sample; 1 for a matrix product
  // Convolutions only: window and extents as three spatial dimensions.
  bool convolution_ = false;
  std::int64_t channels_ = 0;
  std::array<std::int64_t, 3> in_{1, 1, 1}, out_{1, 1, 1}, kernel_{1, 1, 1}, stride_{1, 1, 1},
      dilation_{1, 1, 1}, pad_{0, 0, 0};
};

/// `wanted` of `positions`, chosen by `seed` and `run` alone, sorted; all of them when there are no more.
std::vector<std::int64_t> sample_positions(std::int64_t positions, std::int64_t wanted, std::uint64_t seed,
                                           std::uint64_t run);
/// The same of each of `samples`, of which a run has the `positions` together: chosen by the sample's number in all
/// runs, so that they are the same ones whatever a batch is. wanted: of one.
std::vector<std::int64_t> sample_positions_of_each(std::int64_t positions, std::int64_t samples,
                                                   std::int64_t wanted, std::uint64_t seed,
                                                   std::uint64_t run);

}  // namespace pipit::internal
