#include "sparsity/divergence.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/base/error.h"
#include "layers/scores.h"

namespace pipit::internal {

namespace {

constexpr double kMinProbability = 1e-7;

bool are_all_probabilities(std::span<const float> outputs, std::size_t classes) {
  for (std::size_t first = 0; first < outputs.size(); first += classes) {
    if (!are_probabilities(outputs.subspan(first, classes))) return false;
  }
  return true;
}

// Logarithms of the classes' probabilities.
std::vector<double> log_probabilities(std::span<const float> values, bool are_given) {
  std::vector<double> logs(values.begin(), values.end());
  if (are_given) {
    for (double& value : logs) value = std::log(std::max(value, kMinProbability));
    return logs;
  }
  const double most = *std::max_element(logs.begin(), logs.end());
  double sum = 0;
  for (const double value : logs) sum += std::exp(value - most);
  for (double& value : logs) value -= most + std::log(sum);
  return logs;
}

// Logarithms of yes and of no.
struct LogOdds {
  double yes, no;
};
LogOdds log_odds(float score, ScoreKind kind) {
  if (kind == ScoreKind::sigmoid) {
    const double p = std::clamp(static_cast<double>(score), kMinProbability, 1 - kMinProbability);
    return {std::log(p), std::log1p(-p)};
  }
  const double x = score;
  const double less = std::log1p(std::exp(-std::abs(x)));  // what the larger of both lacks to 1
  return {std::min(x, 0.0) - less, std::min(-x, 0.0) - less};
}

double independent_divergence(std::span<const float> outputs, std::span<const float> reference,
                              ScoreKind kind) {
  double sum = 0;
  for (std::size_t i = 0; i < reference.size(); ++i) {
    const LogOdds p = log_odds(reference[i], kind), q = log_odds(outputs[i], kind);
    sum += std::exp(p.yes) * (p.yes - q.yes) + std::exp(p.no) * (p.no - q.no);
  }
  return sum;
}

}  // namespace

double divergence(std::span<const float> outputs, std::span<const float> reference, std::size_t classes,
                  ScoreKind kind) {
  if (classes == 0 || reference.empty() || outputs.size() != reference.size() ||
      reference.size() % classes != 0)
    fail("{} outputs cannot be compared with {} of {} classes", outputs.size(), reference.size(), classes);
  const double images = static_cast<double>(reference.size()) / static_cast<double>(classes);
  if (are_independent(kind)) return std::max(independent_divergence(outputs, reference, kind) / images, 0.0);
  const bool probabilities =
      kind == ScoreKind::softmax || (kind == ScoreKind::logits && are_all_probabilities(reference, classes));
  double sum = 0;
  for (std::size_t first = 0; first < reference.size(); first += classes) {
    const std::vector<double> p = log_probabilities(reference.subspan(first, classes), probabilities);
    const std::vector<double> q = log_probabilities(outputs.subspan(first, classes), probabilities);
    for (std::size_t i = 0; i < classes; ++i) sum += std::exp(p[i]) * (p[i] - q[i]);
  }
  return std::max(sum / images, 0.0);
}

}  // namespace pipit::internal
