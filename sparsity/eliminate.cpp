#include "sparsity/eliminate.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <queue>

#include "engine/base/error.h"
#include "sparsity/linear_algebra.h"

namespace pipit::internal {

namespace {

constexpr std::size_t kShare = 32;  // 1 / kShare of the groups fall at a time

// What is left of a panel: positions, their inverse covariance and weights.
struct Rest {
  std::size_t outputs = 0;
  std::vector<std::vector<int>> groups;  // positions below are counted among what is left
  std::vector<int> names;                // the groups' own numbers
  std::size_t size = 0;
  std::vector<double> inverse;  // [size, size]
  std::vector<double> weights;  // [outputs, size]
};

// w_g^T ((H^-1)_gg)^-1 w_g, summed over outputs; ((H^-1)_gg)^-1 W_g^T is left in `moved` [group, outputs].
double loss_of(const Rest& rest, const std::vector<int>& group, std::vector<double>& small,
               std::vector<double>& moved) {
  const std::size_t n = group.size();
  small.resize(n * n);
  moved.resize(n * rest.outputs);
  for (std::size_t i = 0; i < n; ++i) {
    const auto row = static_cast<std::size_t>(group[i]);
    for (std::size_t j = 0; j < n; ++j)
      small[i * n + j] = rest.inverse[row * rest.size + static_cast<std::size_t>(group[j])];
    for (std::size_t o = 0; o < rest.outputs; ++o)
      moved[i * rest.outputs + o] = rest.weights[o * rest.size + row];
  }
  if (n == 1) {
    if (!(small[0] > 0)) fail("the inverse covariance of a layer's columns has no positive diagonal");
    for (double& x : moved) x /= small[0];
  } else {
    if (!linear_algebra().factor(small.data(), n))
      fail("the inverse covariance of {} rows of a layer's columns is not positive definite", n);
    linear_algebra().solve(small.data(), n, moved.data(), rest.outputs, rest.outputs);
  }
  double loss = 0;
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t o = 0; o < rest.outputs; ++o)
      loss += moved[i * rest.outputs + o] * rest.weights[o * rest.size + static_cast<std::size_t>(group[i])];
  }
  return loss;
}

// Removes the marked groups: W -= ..., H^-1 -= ..., of what is left. Returns their loss together.
double fall(Rest& rest, const std::vector<std::uint8_t>& falls, std::vector<double>& small,
            std::vector<double>& moved) {
  std::vector<int> gone;
  std::vector<std::uint8_t> goes(rest.size, 0);
  Rest next;
  next.outputs = rest.outputs;
  for (std::size_t g = 0; g < rest.groups.size(); ++g) {
    if (falls[g] == 0) continue;
    gone.insert(gone.end(), rest.groups[g].begin(), rest.groups[g].end());
  }
  for (const int p : gone) goes[static_cast<std::size_t>(p)] = 1;
  std::vector<int> place(rest.size, -1);
  std::vector<std::size_t> stay;
  for (std::size_t p = 0; p < rest.size; ++p) {
    if (goes[p] != 0) continue;
    place[p] = static_cast<int>(stay.size());
    stay.push_back(p);
  }
  for (std::size_t g = 0; g < rest.groups.size(); ++g) {
    if (falls[g] != 0) continue;
    next.groups.push_back(rest.groups[g]);
    for (int& p : next.groups.back()) p = place[static_cast<std::size_t>(p)];
    next.names.push_back(rest.names[g]);
  }
  const std::size_t m = gone.size();
  const std::size_t n = next.size = stay.size();
  const double loss =
      loss_of(rest, gone, small, moved);  // moved: S^-1 W_gone^T [m, outputs]; small: the factor of S
  std::vector<double> cross(m * n);       // H^-1 [gone, stay]
  for (std::size_t i = 0; i < m; ++i) {
    for (std::size_t j = 0; j < n; ++j)
      cross[i * n + j] = rest.inverse[static_cast<std::size_t>(gone[i]) * rest.size + stay[j]];
  }
  std::vector<double> turned(m * rest.outputs);  // [outputs, m]
  for (std::size_t i = 0; i < m; ++i) {
    for (std::size_t o = 0; o < rest.outputs; ++o) turned[o * m + i] = moved[i * rest.outputs + o];
  }
  const LinearAlgebra& algebra = linear_algebra();
  next.weights.resize(rest.outputs * n);
  for (std::size_t o = 0; o < rest.outputs; ++o) {
    for (std::size_t j = 0; j < n; ++j) next.weights[o * n + j] = rest.weights[o * rest.size + stay[j]];
  }
  algebra.add_product(next.weights.data(), n, -1, turned.data(), m, cross.data(), n, rest.outputs, n, m);
  // L^-1 cross, so that both sides of the product are the same and H^-1 stays symmetric.
  std::vector<double> solved = cross;
  if (m == 1) {
    const double pivot = rest.inverse[static_cast<std::size_t>(gone[0]) * (rest.size + 1)];
    for (double& x : solved) x /= pivot;
  } else {
    algebra.solve(small.data(), m, solved.data(), n, n);
  }
  next.inverse.resize(n * n);
  for (std::size_t i = 0; i < n; ++i) {
    const double* from = &rest.inverse[stay[i] * rest.size];
    for (std::size_t j = 0; j < n; ++j) next.inverse[i * n + j] = from[stay[j]];
  }
  std::vector<double> left(n * m);  // cross^T
  for (std::size_t i = 0; i < m; ++i) {
    for (std::size_t j = 0; j < n; ++j) left[j * m + i] = cross[i * n + j];
  }
  algebra.add_product(next.inverse.data(), n, -1, left.data(), m, solved.data(), n, n, n, m);
  rest = std::move(next);
  return loss;
}

std::vector<int> by_loss(const std::vector<double>& loss) {
  std::vector<int> order(loss.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return loss[static_cast<std::size_t>(a)] < loss[static_cast<std::size_t>(b)];
  });
  return order;
}

// Importances that do not change as others fall.
Elimination eliminate_at_once(const std::vector<EliminationPart>& parts, Importance importance,
                              std::size_t falling) {
  std::vector<double> score(parts[0].groups.size(), 0), loss(score);
  for (const EliminationPart& part : parts) {
    const std::size_t depth = part.squares.size();
    for (std::size_t g = 0; g < score.size(); ++g) {
      for (const int position : part.groups[g]) {
        for (auto p = static_cast<std::size_t>(position); p < part.weights.size(); p += depth) {
          const double w = part.weights[p];
          const double l = part.scale * w * w * part.squares[static_cast<std::size_t>(position)];
          loss[g] += l;
          score[g] += importance == Importance::activation ? l
                      : importance == Importance::l1       ? std::abs(w)
                                                           : w * w;
        }
      }
    }
  }
  Elimination path{by_loss(score), {}};
  path.order.resize(falling);
  for (const int g : path.order) path.loss.push_back(loss[static_cast<std::size_t>(g)]);
  return path;
}

}  // namespace

std::string_view importance_name(Importance importance) {
  switch (importance) {
    case Importance::l1:
      return "l1";
    case Importance::l2:
      return "l2";
    case Importance::activation:
      return "activation";
    case Importance::second_order:
      break;
  }
  return "second-order";
}

std::vector<double> covariance_inverse(const Gram& gram, const EliminationOptions& options,
                                       ThreadPool& pool) {
  const std::size_t n = gram.depth;
  std::vector<double> covariance(n * n);
  double trace = 0;
  double moment = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const double* row = &gram.xx[i * (n + 1)];
    moment += row[i] / gram.count;
    for (std::size_t j = 0; j < n; ++j)
      covariance[i * n + j] = (row[j] - row[n] * gram.xx[j * (n + 1) + n] / gram.count) / gram.count;
    trace += covariance[i * n + i];
  }
  // Columns that do not vary, as of one image, leave only what rounding to float makes of their moments.
  const double ridge =
      std::max({options.ridge * trace, 1e-6 * std::sqrt(static_cast<double>(n)) * moment, 1e-30}) /
      static_cast<double>(n);
  for (std::size_t i = 0; i < n; ++i) covariance[i * n + i] += ridge;
  if (!linear_algebra().factor(covariance.data(), n))
    fail("the columns of a layer of depth {} are not finite, or far too large for one another", n);
  std::vector<double> inverse(n * n, 0.0);
  for (std::size_t i = 0; i < n; ++i) inverse[i * n + i] = 1;
  constexpr std::size_t kColumns = 256;
  pool.parallel_for(static_cast<std::int64_t>((n + kColumns - 1) / kColumns), [&](std::int64_t b, int) {
    const std::size_t first = static_cast<std::size_t>(b) * kColumns;
    linear_algebra().solve(covariance.data(), n, &inverse[first], n, std::min(kColumns, n - first));
  });
  return inverse;
}

std::vector<double> mean_squares(const Gram& gram) {
  std::vector<double> squares(gram.depth, 1);
  if (!(gram.count > 0)) return squares;
  for (std::size_t k = 0; k < gram.depth; ++k) squares[k] = gram.xx[k * (gram.depth + 2)] / gram.count;
  return squares;
}

Elimination eliminate(std::vector<EliminationPart> parts, const EliminationOptions& options) {
  const std::size_t groups = parts.at(0).groups.size();
  for (const EliminationPart& part : parts) {
    if (part.groups.size() != groups)
      fail("a layer with {} groups of weights to remove, another one with {}", groups, part.groups.size());
  }
  const auto left = static_cast<std::size_t>(std::ceil(options.least * static_cast<double>(groups)));
  const std::size_t falling = groups - std::min(groups, std::max<std::size_t>(left, 1));
  if (options.importance != Importance::second_order)
    return eliminate_at_once(parts, options.importance, falling);
  std::vector<Rest> rests;
  for (EliminationPart& part : parts) {
    const auto depth = static_cast<std::size_t>(std::lround(std::sqrt(part.inverse.size())));
    rests.push_back({part.weights.size() / depth, std::move(part.groups), std::vector<int>(groups), depth,
                     std::move(part.inverse), std::move(part.weights)});
    std::iota(rests.back().names.begin(), rests.back().names.end(), 0);
  }
  Elimination path;
  std::vector<double> small, moved;
  while (path.order.size() < falling) {
    std::vector<double> loss(rests[0].groups.size(), 0);
    for (std::size_t p = 0; p < parts.size(); ++p) {
      for (std::size_t g = 0; g < loss.size(); ++g)
        loss[g] += parts[p].scale * loss_of(rests[p], rests[p].groups[g], small, moved);
    }
    const std::vector<int> order = by_loss(loss);
    const std::size_t now = std::min(falling - path.order.size(), (order.size() + kShare - 1) / kShare);
    std::vector<std::uint8_t> falls(order.size(), 0);
    double apart = 0;
    for (std::size_t i = 0; i < now; ++i) {
      const auto g = static_cast<std::size_t>(order[i]);
      falls[g] = 1;
      path.order.push_back(rests[0].names[g]);
      path.loss.push_back(loss[g]);
      apart += loss[g];
    }
    // Groups that stand in for each other lose more together than one by one.
    double together = 0;
    for (std::size_t p = 0; p < parts.size(); ++p)
      together += parts[p].scale * fall(rests[p], falls, small, moved);
    for (std::size_t i = path.loss.size() - now; i < path.loss.size(); ++i)
      path.loss[i] = apart > 0 ? path.loss[i] * together / apart : together / static_cast<double>(now);
  }
  return path;
}

Elimination eliminate(const Gram& gram, const std::vector<double>& inverse, std::vector<double> weights,
                      const std::vector<std::vector<int>>& groups, const EliminationOptions& options) {
  std::vector<EliminationPart> parts;
  parts.push_back({inverse, mean_squares(gram), std::move(weights), groups, 1});
  return eliminate(std::move(parts), options);
}

std::vector<PanelStep> merge_paths(const std::vector<Elimination>& panels) {
  using Head = std::pair<double, std::size_t>;  // loss of the next group, panel
  std::priority_queue<Head, std::vector<Head>, std::greater<>> heads;
  std::vector<std::size_t> next(panels.size(), 0);
  const auto push = [&](std::size_t p) {
    if (next[p] < panels[p].order.size()) heads.push({panels[p].loss[next[p]], p});
  };
  for (std::size_t p = 0; p < panels.size(); ++p) push(p);
  std::vector<PanelStep> merged;
  while (!heads.empty()) {
    const std::size_t p = heads.top().second;
    heads.pop();
    merged.push_back({static_cast<int>(p), panels[p].order[next[p]], panels[p].loss[next[p]]});
    ++next[p];
    push(p);
  }
  return merged;
}

std::vector<PanelStep> balance_paths(const std::vector<Elimination>& paths, std::int64_t channels,
                                     std::int64_t outputs, std::int64_t neighbours) {
  const std::int64_t blocks_of_tap = (channels + neighbours - 1) / neighbours;
  // What falls together: the n-th of a block in each output of a panel.
  struct Unit {
    double loss = 0;
    std::vector<PanelStep> steps;
  };
  std::map<std::pair<std::int64_t, std::int64_t>, std::vector<Unit>> blocks;  // of (panel, block)
  for (std::size_t o = 0; o < paths.size(); ++o) {
    std::map<std::int64_t, std::size_t> fallen;  // of the output, by block
    for (std::size_t i = 0; i < paths[o].order.size(); ++i) {
      const std::int64_t group = paths[o].order[i];
      const std::int64_t block = group / channels * blocks_of_tap + group % channels / neighbours;
      std::vector<Unit>& units = blocks[{static_cast<std::int64_t>(o) / outputs, block}];
      const std::size_t n = fallen[block]++;
      if (units.size() <= n) units.resize(n + 1);
      units[n].steps.push_back({static_cast<int>(o), static_cast<int>(group), paths[o].loss[i]});
      units[n].loss += paths[o].loss[i];
    }
  }
  std::vector<Unit> order;
  for (auto& [place, units] : blocks) {
    const auto outputs_of_panel = static_cast<std::size_t>(
        std::min(outputs, static_cast<std::int64_t>(paths.size()) - place.first * outputs));
    double least = 0;
    for (Unit& unit : units) {
      // Where the path of one output ends before, its weights stay, and so does the step.
      if (unit.steps.size() < outputs_of_panel) break;
      least = unit.loss = std::max(least, unit.loss);
      order.push_back(std::move(unit));
    }
  }
  std::stable_sort(order.begin(), order.end(), [](const Unit& a, const Unit& b) { return a.loss < b.loss; });
  std::vector<PanelStep> balanced;
  for (const Unit& unit : order) balanced.insert(balanced.end(), unit.steps.begin(), unit.steps.end());
  return balanced;
}

}  // namespace pipit::internal
