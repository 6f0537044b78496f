#include "engine/runtime/match_layers.h"

#include <algorithm>
#include <functional>
#include <list>
#include <numeric>
#include <unordered_map>

namespace pipit::internal {

namespace {

// Disjoint sets with path halving; the smallest element stands for its set.
class Sets {
 public:
  explicit Sets(std::size_t count) : parent_(count) {
    std::iota(parent_.begin(), parent_.end(), std::size_t{0});
  }
  std::size_t find(std::size_t i) {
    for (; parent_[i] != i; i = parent_[i]) parent_[i] = parent_[parent_[i]];
    return i;
  }
  void join(std::size_t a, std::size_t b) {
    a = find(a);
    b = find(b);
    parent_[std::max(a, b)] = std::min(a, b);
  }

 private:
  std::vector<std::size_t> parent_;
};

}  // namespace

std::vector<std::vector<std::vector<std::size_t>>> match_layers(
    std::span<const std::vector<LayerSeries>> sides) {
  std::vector<std::size_t> first{0};  // of a side, among all layers
  for (const std::vector<LayerSeries>& side : sides) first.push_back(first.back() + side.size());
  Sets sets(first.back());
  std::unordered_map<std::string, std::size_t> owner;
  for (std::size_t s = 0; s < sides.size(); ++s) {
    for (std::size_t l = 0; l < sides[s].size(); ++l) {
      for (const std::string& node : sides[s][l].nodes) {
        const auto [known, is_new] = owner.try_emplace(node, first[s] + l);
        if (!is_new) sets.join(known->second, first[s] + l);
      }
    }
  }
  std::list<std::size_t> order;  // of sets
  std::unordered_map<std::size_t, std::list<std::size_t>::iterator> places;
  for (std::size_t s = 0; s < sides.size(); ++s) {
    auto next = order.begin();
    for (std::size_t l = 0; l < sides[s].size(); ++l) {
      const std::size_t set = sets.find(first[s] + l);
      const auto [place, is_new] = places.try_emplace(set);
      if (is_new) place->second = order.insert(next, set);
      next = std::next(place->second);
    }
  }
  std::vector<std::vector<std::vector<std::size_t>>> matched;
  std::unordered_map<std::size_t, std::size_t> rows;
  for (const std::size_t set : order) {
    rows[set] = matched.size();
    matched.emplace_back(sides.size());
  }
  for (std::size_t s = 0; s < sides.size(); ++s) {
    for (std::size_t l = 0; l < sides[s].size(); ++l) matched[rows[sets.find(first[s] + l)]][s].push_back(l);
  }
  return matched;
}

std::vector<double> summed_ms(const std::vector<LayerSeries>& side, std::span<const std::size_t> layers) {
  std::vector<double> sums;
  for (const std::size_t l : layers) {
    const std::vector<double>& ms = side[l].ms;
    if (sums.empty()) {
      sums = ms;
      continue;
    }
    sums.resize(std::min(sums.size(), ms.size()));
    std::transform(sums.begin(), sums.end(), ms.begin(), sums.begin(), std::plus<>());
  }
  return sums;
}

}  // namespace pipit::internal
