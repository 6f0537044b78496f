#include "sparsity/budget.h"

#include <algorithm>

#include "engine/base/error.h"

namespace pipit::internal {

namespace {

// Another option of a layer, or of something shared.
struct Move {
  bool shared = false;
  std::size_t which = 0;
  std::size_t option = 0;
  double saved = 0;
  double cost = 0;
};

bool better(const Move& a, const Move& b) {
  if (b.saved == 0) return true;
  const double x = a.cost * b.saved, y = b.cost * a.saved;
  return x != y ? x < y : a.saved > b.saved;
}

class Greedy {
 public:
  Greedy(const std::vector<std::vector<Option>>& layers, const std::vector<std::vector<SharedOption>>& shared)
      : layers_(layers), shared_(shared) {
    for (std::size_t l = 0; l < layers.size(); ++l) {
      if (layers[l].empty()) fail("layer {} has no option", l);
    }
    for (std::size_t s = 0; s < shared.size(); ++s) {
      if (shared[s].empty()) fail("what layers share, {}, has no option", s);
      for (const SharedOption& option : shared[s]) {
        if (option.factors.size() != layers.size())
          fail("{} factors for {} layers", option.factors.size(), layers.size());
      }
    }
  }

  // From option `option` of what is shared, `which`, on; 0 and 0 for dense.
  std::vector<Selection> run(std::size_t which, std::size_t option) {
    now_.chosen.assign(layers_.size(), 0);
    now_.shared.assign(shared_.size(), 0);
    if (option > 0) now_.shared[which] = option;
    std::vector<Selection> all;
    for (;;) {
      const Move move = best();
      if (all.empty() && move.saved > 0 && move.cost <= 0) {
        take(move);  // faster for nothing
        continue;
      }
      sum();
      all.push_back(now_);
      if (move.saved == 0) return all;
      take(move);
    }
  }

 private:
  const Option& option(std::size_t l) const { return layers_[l][now_.chosen[l]]; }
  const SharedOption& shared(std::size_t s) const { return shared_[s][now_.shared[s]]; }

  double factor(std::size_t l) const {
    double product = 1;
    for (std::size_t s = 0; s < shared_.size(); ++s) product *= shared(s).factors[l];
    return product;
  }

  Move best() const {
    Move best;
    std::vector<double> ms(layers_.size());
    for (std::size_t l = 0; l < layers_.size(); ++l) {
      const double f = factor(l);
      ms[l] = f * option(l).ms;
      for (std::size_t o = 0; o < layers_[l].size(); ++o) {
        const Move move{false, l, o, ms[l] - f * layers_[l][o].ms, layers_[l][o].cost - option(l).cost};
        if (move.saved > 0 && better(move, best)) best = move;
      }
    }
    for (std::size_t s = 0; s < shared_.size(); ++s) {
      for (std::size_t o = 0; o < shared_[s].size(); ++o) {
        Move move{true, s, o, 0, shared_[s][o].cost - shared(s).cost};
        for (std::size_t l = 0; l < layers_.size(); ++l)
          move.saved += ms[l] * (1 - shared_[s][o].factors[l] / shared(s).factors[l]);
        if (move.saved > 0 && better(move, best)) best = move;
      }
    }
    return best;
  }

  void take(const Move& move) { (move.shared ? now_.shared : now_.chosen)[move.which] = move.option; }

  void sum() {
    now_.ms = now_.cost = 0;
    for (std::size_t l = 0; l < layers_.size(); ++l) {
      now_.ms += factor(l) * option(l).ms;
      now_.cost += option(l).cost;
    }
    for (std::size_t s = 0; s < shared_.size(); ++s) now_.cost += shared(s).cost;
  }

  const std::vector<std::vector<Option>>& layers_;
  const std::vector<std::vector<SharedOption>>& shared_;
  Selection now_;
};

}  // namespace

std::vector<Selection> selections(const std::vector<std::vector<Option>>& layers,
                                  const std::vector<std::vector<SharedOption>>& shared) {
  Greedy greedy(layers, shared);
  std::vector<Selection> all = greedy.run(0, 0);
  if (shared.empty()) return all;
  for (std::size_t s = 0; s < shared.size(); ++s) {
    for (std::size_t o = 1; o < shared[s].size(); ++o) {
      for (Selection& selection : greedy.run(s, o)) all.push_back(std::move(selection));
    }
  }
  // The selections than which no other one is as fast and costs no more.
  std::stable_sort(all.begin(), all.end(), [](const Selection& a, const Selection& b) {
    return a.cost != b.cost ? a.cost < b.cost : a.ms < b.ms;
  });
  std::vector<Selection> best;
  for (Selection& selection : all) {
    if (best.empty() || selection.ms < best.back().ms) best.push_back(std::move(selection));
  }
  return best;
}

const Selection& within(const std::vector<Selection>& all, double ms) {
  for (const Selection& selection : all) {
    if (selection.ms <= ms) return selection;
  }
  return all.back();
}

}  // namespace pipit::internal
