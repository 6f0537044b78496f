#include "sparsity/budget.h"

#include <algorithm>

#include "engine/base/error.h"

namespace pipit {

namespace {

struct Trade {
  std::size_t layer = 0;
  std::size_t option = 0;
  double saved = 0;
  double cost = 0;
};

// The options on the lower convex hull, from the dense one (or what is faster and costs no more) on.
std::vector<std::size_t> hull(const std::vector<Option>& options) {
  std::vector<std::size_t> order(options.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return options[a].cost != options[b].cost ? options[a].cost < options[b].cost
                                              : options[a].ms < options[b].ms;
  });
  std::vector<std::size_t> kept;
  for (const std::size_t next : order) {
    if (!kept.empty() && options[next].ms >= options[kept.back()].ms) continue;
    while (kept.size() >= 2) {
      const Option& a = options[kept[kept.size() - 2]];
      const Option& b = options[kept.back()];
      const Option& c = options[next];
      // b is above the line from a to c
      if ((b.cost - a.cost) * (a.ms - c.ms) < (c.cost - a.cost) * (a.ms - b.ms)) break;
      kept.pop_back();
    }
    kept.push_back(next);
  }
  return kept;
}

}  // namespace

std::vector<Selection> selections(const std::vector<std::vector<Option>>& layers) {
  Selection now;
  std::vector<Trade> steps;
  for (std::size_t l = 0; l < layers.size(); ++l) {
    if (layers[l].empty()) fail("layer {} has no option", l);
    const std::vector<std::size_t> kept = hull(layers[l]);
    now.chosen.push_back(kept[0]);
    now.ms += layers[l][kept[0]].ms;
    now.cost += layers[l][kept[0]].cost;
    for (std::size_t i = 1; i < kept.size(); ++i) {
      const Option& a = layers[l][kept[i - 1]];
      const Option& b = layers[l][kept[i]];
      steps.push_back({l, kept[i], a.ms - b.ms, b.cost - a.cost});
    }
  }
  // Stable: along a hull the cost per millisecond rises, so a layer's steps stay in their order.
  std::stable_sort(steps.begin(), steps.end(),
                   [](const Trade& a, const Trade& b) { return a.cost * b.saved < b.cost * a.saved; });
  std::vector<Selection> all{now};
  for (const Trade& step : steps) {
    now.chosen[step.layer] = step.option;
    now.ms -= step.saved;
    now.cost += step.cost;
    all.push_back(now);
  }
  return all;
}

const Selection& within(const std::vector<Selection>& all, double ms) {
  for (const Selection& selection : all) {
    if (selection.ms <= ms) return selection;
  }
  return all.back();
}

std::size_t first_fast_enough(const std::vector<double>& predicted, double wanted, double close,
                              const std::function<double(std::size_t)>& measure) {
  std::size_t begin = 0;               // all before are too slow
  std::size_t end = predicted.size();  // fast enough, or behind the last one
  double correction = 1;
  for (bool halve = false; begin < end; halve = !halve) {
    std::size_t next = begin + (end - begin) / 2;
    if (!halve) {
      const auto first = predicted.begin() + static_cast<std::ptrdiff_t>(begin);
      const auto last = predicted.begin() + static_cast<std::ptrdiff_t>(end);
      // In the middle of what is close enough, to be on the right side of it.
      const double goal = wanted * (1 + close / 2) / correction;
      next = std::min(static_cast<std::size_t>(std::lower_bound(first, last, goal) - predicted.begin()),
                      end - 1);
    }
    const double measured = measure(next);
    if (measured >= wanted) {
      end = next;
      if (measured <= wanted * (1 + close)) break;
    } else {
      begin = next + 1;
    }
    correction = measured / predicted[next];
  }
  return end;
}

}  // namespace pipit
