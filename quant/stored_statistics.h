// What batch normalization stored of the images that a model was trained on, beside what it reads of other images: they
// differ where images are prepared otherwise than in training.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/graph/graph.h"

namespace pipit::internal {

/// The first batch normalization of a model.
struct StoredStatistics {
  std::string layer;  ///< its name
  Graph graph;        ///< from the model's inputs to what it reads, [N, C, ...] in f32, the only output
  std::vector<double> means;      ///< per channel, of training
  std::vector<double> variances;  ///< likewise
  /// Channels with a smaller variance are left out: there epsilon decides.
  double epsilon = 0;
};

/// Of a graph as it was read: fuse() folds batch normalization. Nothing where there is none in f32 that reads what an
/// input decides, or its means and variances are 0 and 1, as before any training.
std::optional<StoredStatistics> first_stored_statistics(const Graph& graph);

/// How the images differ from those of training.
struct StatisticsDifference {
  std::string layer;  ///< whose statistics these are
  std::int64_t images = 0;
  std::int64_t channels = 0;  ///< that were compared
  /// Root of the mean over channels of ((mean of the images - stored mean) / stored standard deviation)^2.
  double mean_deviation = 0;
  /// Median over channels of variance of the images / stored variance.
  double variance_ratio = 1;
};

/// Sums over images and positions.
class ChannelMoments {
 public:
  /// The first `images` of a batch [N, C, ...] in f32. Throws Error for another number of channels than before.
  void add(const ConstTensorView& batch, std::int64_t images);
  /// Nothing where no channel can be compared. Throws Error for another number of channels.
  std::optional<StatisticsDifference> difference(const StoredStatistics& stored) const;

 private:
  std::int64_t images_ = 0;
  double count_ = 0;  // values per channel
  std::vector<double> sums_;
  std::vector<double> squares_;
};

}  // namespace pipit::internal
