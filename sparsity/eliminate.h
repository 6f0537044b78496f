// In which order groups of a layer's weights are best removed.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/platform/thread_pool.h"
#include "sparsity/gram.h"

namespace pipit::internal {

/// How the loss of a group of weights is judged.
enum class Importance : std::uint8_t {
  l1,          ///< sum of magnitudes
  l2,          ///< sum of squares
  activation,  ///< sum of squares times the mean square of what the weight multiplies (Wanda, Sun et al. 2023)
  second_order,  ///< what the outputs lose when the weights that stay take over as far as they can
};
std::string_view importance_name(Importance importance);

struct EliminationOptions {
  Importance importance = Importance::second_order;
  /// The path ends when this share of the groups is left.
  double least = 0.05;
  /// Added to the diagonal, as a share of the mean variance.
  double ridge = 1e-3;
};

/// Groups in the order in which they fall, with what the fall of each adds to the mean squared error of the outputs.
struct Elimination {
  std::vector<int> order;
  std::vector<double> loss;
};

/// What the same groups are in one layer.
struct EliminationPart {
  std::vector<double> inverse;           ///< covariance_inverse(), read for second_order only
  std::vector<double> squares;           ///< [depth]: mean_squares(), read for the other importances
  std::vector<double> weights;           ///< [outputs, depth]
  std::vector<std::vector<int>> groups;  ///< disjoint lists of positions in a column
  double scale = 1;                      ///< factor of its losses
};

/// The path of groups that fall from all parts (at least one, with as many groups each) at once. Second order is the
/// group form of Optimal Brain Surgeon (Hassibi and Stork 1993) on the layer's squared error, whose Hessian is the
/// covariance of its columns (Optimal Brain Compression, Frantar and Alistarh 2022): a group costs
/// w_g^T ((H^-1)_gg)^-1 w_g; once it falls the other weights move by H^-1, and H^-1 is updated. Up to 1/32 of the
/// groups that are left fall at a time. Losses of the parts are added up.
Elimination eliminate(std::vector<EliminationPart> parts, const EliminationOptions& options);

/// The elimination of one panel of outputs. `weights`: [outputs, depth] of the panel.
Elimination eliminate(const Gram& gram, const std::vector<double>& inverse, std::vector<double> weights,
                      const std::vector<std::vector<int>>& groups, const EliminationOptions& options);

/// [depth]: of the columns; 1 without any.
std::vector<double> mean_squares(const Gram& gram);

/// [depth, depth]: the inverse of the covariance of the columns with its ridge.
std::vector<double> covariance_inverse(const Gram& gram, const EliminationOptions& options, ThreadPool& pool);

/// The paths of several panels as one, the least loss first: (panel, group) in the order in which they fall.
struct PanelStep {
  int panel = 0;
  int group = 0;
  double loss = 0;
};
std::vector<PanelStep> merge_paths(const std::vector<Elimination>& panels);

/// The same for single outputs and weights, so that all outputs of a panel of `outputs` keep as many in each block of
/// `neighbours` input channels of a tap, which is what kernels leave out that pick inputs (N:M sparsity, Mishra et al.,
/// "Accelerating sparse deep neural networks", 2021, N being free for every panel and block). The n-th of every
/// output of the panel to fall from a block fall together; losses of a block never fall along the path,
/// and what the path of one output has no n-th for stays in all.
/// Groups of a path are numbered tap * channels + channel.
std::vector<PanelStep> balance_paths(const std::vector<Elimination>& paths, std::int64_t channels,
                                     std::int64_t outputs, std::int64_t neighbours);

}  // namespace pipit::internal
