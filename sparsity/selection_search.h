// Which whole selections to measure next, where costs of options do not quite add up.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "sparsity/budget.h"

namespace pipit::internal {

struct MeasuredSelection {
  Selection selection;
  double error = 0;    ///< of the whole model
  double speedup = 1;  ///< of the whole model, over the dense one
};

/// A search among selections by their measured errors. Costs of options say where to begin; a model of the error,
/// the sum of costs with a factor for every layer and kind of option, is fitted to what was measured (ridge regression
/// towards one factor for all), and the next selection is the one, not measured yet, that has the least error by this
/// model. The first proposals make single kinds cheaper and dearer, so that what the costs misjudge is found. Of the
/// later ones every second differs by one or two options from the best that was measured. The same measurements lead to
/// the same proposals.
class SelectionSearch {
 public:
  /// As selections() takes them. Option::kind and the layer say which options share a factor; every shared has one.
  SelectionSearch(std::vector<std::vector<Option>> layers, std::vector<std::vector<SharedOption>> shared);

  /// A selection with the given speedup over dense, by the options' times and by how wrong those were so far; where
  /// none is, the fastest there is. Never the dense one. Nothing when no other is left nearby.
  std::optional<Selection> propose(double speedup);
  /// The fastest selection of those that differ from dense by one option that was not proposed yet, though it may be
  /// slower than dense by the options' times: these are short and noisy. Nothing when all were proposed.
  std::optional<Selection> propose_slow();
  void add(const Selection& selection, double error, double speedup);

  const std::vector<MeasuredSelection>& measured() const { return measured_; }
  /// Indices of those whose measured speedup is at least `speedup`, the one of the least error first.
  std::vector<std::size_t> best(double speedup) const;
  /// By the options' times alone.
  double predicted_speedup(const Selection& selection) const { return dense_ms_ / selection.ms; }

 private:
  using Key = std::pair<std::vector<std::size_t>, std::vector<std::size_t>>;
  Selection dense() const;
  std::vector<double> features(const Selection& selection) const;
  std::vector<double> fitted_factors() const;
  std::size_t tilts() const;  // proposals that make a kind cheaper or dearer, after the first
  std::vector<double> next_factors() const;
  double correction() const;

  std::vector<std::vector<Option>> layers_;
  std::vector<std::vector<SharedOption>> shared_;
  std::vector<std::map<int, std::size_t>> feature_of_;  // per layer: of a kind
  std::vector<int> kind_of_;                            // per feature
  double dense_ms_ = 0;
  std::size_t proposed_ = 0;
  std::set<Key> known_;
  std::vector<MeasuredSelection> measured_;
};

}  // namespace pipit::internal
