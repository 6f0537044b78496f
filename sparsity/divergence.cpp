#include "sparsity/divergence.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/base/error.h"

namespace pipit {

namespace {

constexpr double kSumOff = 1e-3;  // of probabilities, which are floats
constexpr double kLeastProbability = 1e-7;

bool are_probabilities(std::span<const float> outputs, std::size_t classes) {
  for (std::size_t first = 0; first < outputs.size(); first += classes) {
    double sum = 0;
    for (const float value : outputs.subspan(first, classes)) {
      if (value < 0) return false;
      sum += static_cast<double>(value);
    }
    if (std::abs(sum - 1) > kSumOff) return false;
  }
  return true;
}

// Logarithms of the classes' probabilities.
std::vector<double> log_probabilities(std::span<const float> values, bool probabilities) {
  std::vector<double> logs(values.begin(), values.end());
  if (probabilities) {
    for (double& value : logs) value = std::log(std::max(value, kLeastProbability));
    return logs;
  }
  const double most = *std::max_element(logs.begin(), logs.end());
  double sum = 0;
  for (const double value : logs) sum += std::exp(value - most);
  for (double& value : logs) value -= most + std::log(sum);
  return logs;
}

}  // namespace

double divergence(std::span<const float> outputs, std::span<const float> reference, std::size_t classes) {
  if (classes == 0 || reference.empty() || outputs.size() != reference.size() ||
      reference.size() % classes != 0)
    fail("{} outputs cannot be compared with {} of {} classes", outputs.size(), reference.size(), classes);
  const bool probabilities = are_probabilities(reference, classes);
  double sum = 0;
  for (std::size_t first = 0; first < reference.size(); first += classes) {
    const std::vector<double> p = log_probabilities(reference.subspan(first, classes), probabilities);
    const std::vector<double> q = log_probabilities(outputs.subspan(first, classes), probabilities);
    for (std::size_t i = 0; i < classes; ++i) sum += std::exp(p[i]) * (p[i] - q[i]);
  }
  return std::max(sum * static_cast<double>(classes) / static_cast<double>(reference.size()), 0.0);
}

}  // namespace pipit
