#include "quant/mixed_search.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/base/error.h"

namespace pipit::internal {

DropEstimate measured_drop(const PairedAnswers& answers) {
  const DropInterval interval = drop_interval(answers, 0.5);
  return {paired_drop(answers), (interval.high - interval.low) / 2 / normal_quantile(0.75)};
}

DropEstimate expected_drop(std::span<const float> fp32_margins, std::span<const float> margins,
                           double width) {
  if (fp32_margins.size() != margins.size() || margins.empty())
    fail("{} and {} margins: expected as many, and at least 1", fp32_margins.size(), margins.size());
  if (!(width > 0)) fail("a width of {}: expected above 0", width);
  const auto right = [&](float margin) { return 1 / (1 + std::exp(-margin / width)); };
  const auto n = static_cast<double>(margins.size());
  double sum = 0;
  double squares = 0;
  for (std::size_t i = 0; i < margins.size(); ++i) {
    const double drop = right(fp32_margins[i]) - right(margins[i]);
    sum += drop;
    squares += drop * drop;
  }
  const double mean = sum / n;
  return {mean, std::sqrt(std::max(0.0, squares / n - mean * mean) / n)};
}

double margin_width(std::span<const float> fp32_margins, std::span<const float> int8_margins) {
  const auto n = static_cast<double>(std::max<std::size_t>(fp32_margins.size(), 1));
  double changes = 0;
  double sum = 0;
  double squares = 0;
  for (std::size_t i = 0; i < fp32_margins.size(); ++i) {
    const double margin = fp32_margins[i];
    changes += (int8_margins[i] - margin) * (int8_margins[i] - margin);
    sum += margin;
    squares += margin * margin;
  }
  const double deviation = std::sqrt(std::max(0.0, squares / n - sum / n * (sum / n)));
  return std::max(std::min(2 * std::sqrt(changes / n), deviation / 4),
                  static_cast<double>(std::numeric_limits<float>::min()));
}

std::vector<std::string> keeping_order(std::vector<LayerCost> costs) {
  const auto density = [](const LayerCost& cost) {
    if (cost.benefit <= 0) return 0.0;
    return cost.extra_ms > 0 ? cost.benefit / cost.extra_ms : std::numeric_limits<double>::infinity();
  };
  std::stable_sort(costs.begin(), costs.end(), [&](const LayerCost& a, const LayerCost& b) {
    const double da = density(a);
    const double db = density(b);
    return da != db ? da > db : std::isinf(da) && a.benefit > b.benefit;
  });
  std::vector<std::string> order;
  for (LayerCost& cost : costs) order.push_back(std::move(cost.layer));
  return order;
}

void mark_pareto(std::vector<MixedStep>& steps) {
  for (MixedStep& step : steps) {
    step.pareto = std::none_of(steps.begin(), steps.end(), [&](const MixedStep& other) {
      const bool no_worse = other.ms <= step.ms && other.drop.mean <= step.drop.mean;
      return no_worse && (other.ms < step.ms || other.drop.mean < step.drop.mean);
    });
  }
}

int first_good_step(const std::vector<MixedStep>& steps, double max_drop, double confidence) {
  if (!(confidence >= 0.5 && confidence < 1))
    fail("a confidence of {}: expected at least 0.5 and below 1", confidence);
  const double errors = normal_quantile(confidence);
  int first = static_cast<int>(steps.size());
  const auto good_enough = [&](const MixedStep& step) {
    return step.drop.mean + errors * step.drop.standard_error <= max_drop &&
           (step.answers.images == 0 || drop_interval(step.answers, 0.95).low <= max_drop);
  };
  while (first > 0 && good_enough(steps[static_cast<std::size_t>(first - 1)])) --first;
  return first;
}

int choose_step(const std::vector<MixedStep>& steps, double max_drop, double confidence) {
  int first = first_good_step(steps, max_drop, confidence);
  if (first == static_cast<int>(steps.size())) return -1;
  double fastest = std::numeric_limits<double>::infinity();
  for (auto s = static_cast<std::size_t>(first); s < steps.size(); ++s)
    fastest = std::min(fastest, steps[s].ms);
  while (steps[static_cast<std::size_t>(first)].ms > 1.01 * fastest) ++first;
  return first;
}

std::vector<int> kept_counts(int layers) {
  std::vector<int> counts;
  for (int n = 0; n < layers; n += n < 6 ? 1 : n < 12 ? 2 : std::max(3, n / 4)) counts.push_back(n);
  counts.push_back(layers);
  return counts;
}

}  // namespace pipit::internal
