// The measured time and the cost of every variant of pruning a part of a network.
#pragma once

#include <array>
#include <map>
#include <string>
#include <vector>

#include "pipit/pruning/pruning.h"

namespace pipit::internal::detail {

/// Shares that are kept, of candidates; the first one is dense.
inline constexpr std::array kShares{1.0, 0.85, 0.75, 0.65, 0.5, 0.35, 0.25, 0.15};

using StepTimes = std::map<std::string, double>;  ///< ms per node
double time_of(const StepTimes& times, const std::string& node);
double time_of(const StepTimes& times, const std::set<std::string>& nodes);

/// A residual stream, with the shares at which it becomes smaller.
struct StreamCandidates {
  std::size_t family = 0;  ///< in Paths::channels
  std::vector<double> shares;
  std::vector<StepTimes> times;  ///< per share, of the whole model
  std::vector<double> cost;      ///< per share
};

/// Costs are shares of the output's variance, in the mean over the images that they are measured on.
struct Candidates {
  /// By index() of the kind of rows, per share of kShares, of uniform(). Not empty: kinds that some layer has besides
  /// another one, and single taps if any layer has rows.
  std::array<std::vector<StepTimes>, kRowKinds.size()> rows;
  std::vector<StepTimes> channels;      ///< per share of kShares; empty if there are rows alone
  std::map<std::string, double> noise;  ///< per layer that reads: cost per loss (PruningPath, ChannelPath)
  std::vector<std::vector<double>> channel_cost;  ///< per family and share; empty for streams
  std::map<std::string, double> without;          ///< cost of leaving a branch out, by its last node
  std::vector<StreamCandidates> streams;

  const StepTimes& dense() const {
    const std::vector<StepTimes>& taps = rows[index(RowKind::taps)];
    return taps.empty() ? channels.at(0) : taps[0];
  }
};

/// Measures candidates (Pruning::budget()) of all layers, families and streams of the paths, and of these branches.
Candidates measure_candidates(const Pruning& pruning, const std::vector<Branch>& branches,
                              PreparedImages& probe, const ImagesDone& progress);

}  // namespace pipit::internal::detail
