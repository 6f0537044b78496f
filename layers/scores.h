// From a classifier's scores to probabilities.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <vector>

#include "pipit/scores.h"

namespace pipit::internal {

/// All in [0, 1], and their sum is 1 within 1e-3.
inline bool are_probabilities(std::span<const float> scores) {
  const auto [low, high] = std::minmax_element(scores.begin(), scores.end());
  return *low >= 0 && *high <= 1 && std::abs(std::accumulate(scores.begin(), scores.end(), 0.0) - 1) < 1e-3;
}

/// The probabilities of the classes of one image, from all its scores (at least one). Scores of kind logits for which
/// are_probabilities() holds are taken as probabilities: not every graph that ends in them is recognized.
inline std::vector<double> probabilities(ScoreKind kind, std::span<const float> scores) {
  std::vector<double> values(scores.begin(), scores.end());
  if (kind == ScoreKind::log_softmax) {
    for (double& value : values) value = std::exp(value);
  } else if (kind == ScoreKind::sigmoid_logits) {
    for (double& value : values) value = 1 / (1 + std::exp(-value));
  } else if (kind == ScoreKind::logits && !are_probabilities(scores)) {
    const double most = *std::max_element(values.begin(), values.end());
    double sum = 0;
    for (double& value : values) sum += value = std::exp(value - most);
    for (double& value : values) value /= sum;
  }
  return values;
}

}  // namespace pipit::internal
