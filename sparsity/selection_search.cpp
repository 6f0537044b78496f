#include "sparsity/selection_search.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/base/statistics.h"
#include "sparsity/linear_algebra.h"

namespace pipit::internal {

namespace {

constexpr int kSharedKind = -1;
constexpr double kPrior = 0.3;  // weight of the one factor for all, in measurements per factor
constexpr double kMin = 0.1;    // of a factor, over the one for all
constexpr double kTilt = 4;     // by which kinds are made cheaper and dearer
// Selections that a correction of times is taken from: those that are proposed drift to what is slower than it is said
// to be.
constexpr std::size_t kRecent = 9;
constexpr double kMinCost = 1e-6;
constexpr int kMaxSteps = 200;  // of a descent

// Options under factors: a selection, what differs from it by one or two options, and the best of these.
class Descent {
 public:
  Descent(const std::vector<std::vector<Option>>& layers,
          const std::vector<std::vector<SharedOption>>& shared, double most_ms)
      : layers_(layers), shared_(shared), most_ms_(most_ms) {}

  void sum(Selection& selection) const {
    selection.ms = selection.cost = 0;
    for (std::size_t l = 0; l < layers_.size(); ++l) {
      selection.ms += factor(selection, l) * layers_[l][selection.chosen[l]].ms;
      selection.cost += layers_[l][selection.chosen[l]].cost;
    }
    for (std::size_t s = 0; s < shared_.size(); ++s) selection.cost += shared_[s][selection.shared[s]].cost;
  }

  // The cheapest neighbour that is fast enough and that `allowed` accepts, if there is one.
  template <typename Allowed>
  std::optional<Selection> best_neighbour(const Selection& from, const Allowed& allowed) const {
    std::optional<Selection> best;
    const auto offer = [&](const Selection& selection) {
      if (!allowed(selection)) return;
      best = selection;
      sum(*best);
    };
    visit(from, best, offer);
    for (std::size_t s = 0; s < shared_.size(); ++s) {
      for (std::size_t o = 0; o < shared_[s].size(); ++o) {
        if (o == from.shared[s]) continue;
        Selection other = from;
        other.shared[s] = o;
        sum(other);
        if (other.ms <= most_ms_ && (!best || other.cost < best->cost)) offer(other);
        visit(other, best, offer);
      }
    }
    return best;
  }

  Selection descend(Selection at) const {
    for (int step = 0; step < kMaxSteps; ++step) {
      const double cost = at.ms <= most_ms_ ? at.cost : 1e300;
      const auto next = best_neighbour(at, [](const Selection&) { return true; });
      if (!next || next->cost >= cost - 1e-12) break;
      at = *next;
    }
    return at;
  }

 private:
  struct Change {
    std::size_t layer = 0, option = 0;
    double ms = 0, cost = 0;
  };

  double factor(const Selection& selection, std::size_t layer) const {
    double product = 1;
    for (std::size_t s = 0; s < shared_.size(); ++s)
      product *= shared_[s][selection.shared[s]].factors[layer];
    return product;
  }

  // Options of single layers, those left out that another one of the layer betters in time and cost.
  std::vector<Change> changes(const Selection& from) const {
    std::vector<Change> all;
    for (std::size_t l = 0; l < layers_.size(); ++l) {
      const double f = factor(from, l);
      const Option& now = layers_[l][from.chosen[l]];
      for (std::size_t o = 0; o < layers_[l].size(); ++o) {
        const Option& option = layers_[l][o];
        if (o == from.chosen[l]) continue;
        const bool worse = std::any_of(layers_[l].begin(), layers_[l].end(), [&](const Option& other) {
          return other.ms <= option.ms && other.cost <= option.cost &&
                 (other.ms < option.ms || other.cost < option.cost);
        });
        if (!worse) all.push_back({l, o, f * (option.ms - now.ms), option.cost - now.cost});
      }
    }
    return all;
  }

  template <typename Offer>
  void visit(const Selection& from, const std::optional<Selection>& best, const Offer& offer) const {
    const std::vector<Change> all = changes(from);
    const auto improves = [&](double ms, double cost) {
      return from.ms + ms <= most_ms_ && (!best || from.cost + cost < best->cost - 1e-15);
    };
    for (std::size_t a = 0; a < all.size(); ++a) {
      if (improves(all[a].ms, all[a].cost)) {
        Selection one = from;
        one.chosen[all[a].layer] = all[a].option;
        offer(one);
      }
      for (std::size_t b = a + 1; b < all.size(); ++b) {
        if (all[a].layer == all[b].layer || !improves(all[a].ms + all[b].ms, all[a].cost + all[b].cost))
          continue;
        Selection two = from;
        two.chosen[all[a].layer] = all[a].option;
        two.chosen[all[b].layer] = all[b].option;
        offer(two);
      }
    }
  }

  const std::vector<std::vector<Option>>& layers_;
  const std::vector<std::vector<SharedOption>>& shared_;
  double most_ms_;
};

}  // namespace

SelectionSearch::SelectionSearch(std::vector<std::vector<Option>> layers,
                                 std::vector<std::vector<SharedOption>> shared)
    : layers_(std::move(layers)), shared_(std::move(shared)) {
  // What seems to cost nothing would never be corrected.
  for (std::vector<Option>& options : layers_) {
    std::map<int, std::size_t>& features = feature_of_.emplace_back();
    for (std::size_t o = 1; o < options.size(); ++o) {
      options[o].cost = std::max(options[o].cost, kMinCost);
      if (features.try_emplace(options[o].kind, kind_of_.size()).second) kind_of_.push_back(options[o].kind);
    }
    dense_ms_ += options.at(0).ms;
  }
  for (std::vector<SharedOption>& options : shared_) {
    for (std::size_t o = 1; o < options.size(); ++o) options[o].cost = std::max(options[o].cost, kMinCost);
    kind_of_.push_back(kSharedKind);
  }
  known_.insert({dense().chosen, dense().shared});
}

Selection SelectionSearch::dense() const {
  return {std::vector<std::size_t>(layers_.size(), 0), std::vector<std::size_t>(shared_.size(), 0), dense_ms_,
          0};
}

std::vector<double> SelectionSearch::features(const Selection& selection) const {
  std::vector<double> x(kind_of_.size(), 0);
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    const Option& option = layers_[l][selection.chosen[l]];
    if (selection.chosen[l] > 0) x[feature_of_[l].at(option.kind)] = option.cost;
  }
  const std::size_t first = kind_of_.size() - shared_.size();
  for (std::size_t s = 0; s < shared_.size(); ++s) x[first + s] = shared_[s][selection.shared[s]].cost;
  return x;
}

// Least squares of relative errors: sum over measurements of (sum_f s_f x_f / e - 1)^2 + prior * (s_f / g - 1)^2.
std::vector<double> SelectionSearch::fitted_factors() const {
  const std::size_t n = kind_of_.size();
  std::vector<double> ratios;
  for (const MeasuredSelection& m : measured_) {
    const std::vector<double> x = features(m.selection);
    const double sum = std::accumulate(x.begin(), x.end(), 0.0);
    if (sum > 0 && m.error > 0) ratios.push_back(m.error / sum);
  }
  if (ratios.empty()) return std::vector<double>(n, 1);
  const double common = quantile(ratios, 0.5);
  std::vector<double> a(n * n, 0), b(n, kPrior);  // in units of `common`
  for (std::size_t f = 0; f < n; ++f) a[f * n + f] = kPrior;
  for (const MeasuredSelection& m : measured_) {
    if (m.error <= 0) continue;
    std::vector<double> x = features(m.selection);
    for (double& value : x) value *= common / m.error;
    for (std::size_t i = 0; i < n; ++i) {
      b[i] += x[i];
      for (std::size_t j = 0; j < n; ++j) a[i * n + j] += x[i] * x[j];
    }
  }
  if (linear_algebra().factor(a.data(), n)) linear_algebra().solve(a.data(), n, b.data(), 1, 1);
  for (double& factor : b) factor = common * std::max(factor, kMin);
  return b;
}

std::size_t SelectionSearch::tilts() const {
  return 2 * std::set<int>(kind_of_.begin(), kind_of_.end()).size();
}

std::vector<double> SelectionSearch::next_factors() const {
  std::vector<double> factors = fitted_factors();
  if (proposed_ == 0 || proposed_ > tilts()) return factors;
  const std::set<int> kinds(kind_of_.begin(), kind_of_.end());
  const int kind = *std::next(kinds.begin(), static_cast<std::ptrdiff_t>((proposed_ - 1) / 2));
  for (std::size_t f = 0; f < factors.size(); ++f) {
    if (kind_of_[f] == kind) factors[f] *= proposed_ % 2 == 1 ? 1 / kTilt : kTilt;
  }
  return factors;
}

double SelectionSearch::correction() const {
  std::vector<double> ratios;
  for (std::size_t i = measured_.size() - std::min(measured_.size(), kRecent); i < measured_.size(); ++i)
    ratios.push_back(measured_[i].speedup / predicted_speedup(measured_[i].selection));
  return ratios.empty() ? 1 : quantile(std::move(ratios), 0.5);
}

std::optional<Selection> SelectionSearch::propose(double speedup) {
  const std::vector<double> factors = next_factors();
  std::vector<std::vector<Option>> layers = layers_;
  std::vector<std::vector<SharedOption>> shared = shared_;
  for (std::size_t l = 0; l < layers.size(); ++l) {
    for (Option& option : layers[l]) {
      if (option.cost > 0) option.cost *= factors[feature_of_[l].at(option.kind)];
    }
  }
  for (std::size_t s = 0; s < shared.size(); ++s) {
    for (SharedOption& option : shared[s]) option.cost *= factors[kind_of_.size() - shared.size() + s];
  }
  const auto unknown = [&](const Selection& selection) {
    return !known_.contains({selection.chosen, selection.shared});
  };
  const auto proposed = [&](const std::optional<Selection>& selection) {
    if (selection) known_.insert({selection->chosen, selection->shared});
    return selection;
  };
  const std::vector<std::size_t> ranked = best(speedup);
  const bool nearby = proposed_ > tilts() && proposed_ % 2 == 1;
  ++proposed_;
  if (nearby && !ranked.empty()) {
    // What the model of the error holds to be the best of all is where it errs to the good side. Next to a selection
    // that was measured it errs less, and so do times.
    Selection from = measured_[ranked[0]].selection;
    const double ratio = std::min(measured_[ranked[0]].speedup / predicted_speedup(from), correction());
    const Descent around(layers, shared, dense_ms_ * ratio / speedup);
    around.sum(from);
    if (const auto next = around.best_neighbour(from, unknown)) return proposed(next);
  }
  const double most_ms = dense_ms_ * correction() / speedup;
  const Descent descent(layers, shared, most_ms);
  std::vector<Selection> starts{within(selections(layers, shared), most_ms)};
  if (!ranked.empty()) {
    starts.push_back(measured_[ranked[0]].selection);
    descent.sum(starts.back());
  }
  std::optional<Selection> found;
  const auto offer = [&](const std::optional<Selection>& selection) {
    if (!selection || !unknown(*selection)) return;
    const bool fast = selection->ms <= most_ms;
    if (!found) {
      found = selection;
    } else if (fast != (found->ms <= most_ms)) {
      if (fast) found = selection;
    } else if (fast ? selection->cost < found->cost : selection->ms < found->ms) {
      found = selection;
    }
  };
  for (const Selection& start : starts) {
    const Selection end = descent.descend(start);
    offer(end);
    offer(descent.best_neighbour(end, unknown));
  }
  return proposed(found);
}

std::optional<Selection> SelectionSearch::propose_slow() {
  const Descent descent(layers_, shared_, dense_ms_);
  std::optional<Selection> fastest;
  const auto offer = [&](Selection one) {
    descent.sum(one);
    if (!known_.contains({one.chosen, one.shared}) && (!fastest || one.ms < fastest->ms))
      fastest = std::move(one);
  };
  const auto offer_each = [&](std::vector<std::size_t> Selection::*chosen, const auto& options) {
    for (std::size_t i = 0; i < options.size(); ++i) {
      for (std::size_t o = 1; o < options[i].size(); ++o) {
        Selection one = dense();
        (one.*chosen)[i] = o;
        offer(std::move(one));
      }
    }
  };
  offer_each(&Selection::chosen, layers_);
  offer_each(&Selection::shared, shared_);
  if (fastest) known_.insert({fastest->chosen, fastest->shared});
  return fastest;
}

void SelectionSearch::add(const Selection& selection, double error, double speedup) {
  known_.insert({selection.chosen, selection.shared});
  measured_.push_back({selection, error, speedup});
}

std::vector<std::size_t> SelectionSearch::best(double speedup) const {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < measured_.size(); ++i) {
    if (measured_[i].speedup >= speedup) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return measured_[a].error < measured_[b].error; });
  return order;
}

}  // namespace pipit::internal
