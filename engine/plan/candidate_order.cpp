#include "engine/plan/candidate_order.h"

#include <algorithm>

namespace pipit::internal {

namespace {

using FollowingNodes = std::span<const NodeSpec* const>;

class Expected {
 public:
  Expected(const Registry& registry, DeviceKind device) : registry_(registry), device_(device) {}

  struct Fused {
    std::size_t count = 0;       // of the followers
    std::optional<double> time;  // of all
  };
  // As many followers as take least, of equals more.
  Fused fused(const Candidate& candidate, NodeSpec spec, FollowingNodes followers) const {
    Fused best;
    for (std::size_t count = 0;; ++count) {
      spec.fusion.followers = followers.first(count);
      const std::optional<Estimate> estimate = candidate.estimate ? candidate.estimate(spec) : std::nullopt;
      constexpr double kWorthMaking = 1.1;  // it takes half a second to make: only a clear gain counts
      std::optional<double> time;
      if (estimate)
        time = estimate->time * (candidate.slow_to_make ? kWorthMaking : 1) + apart(followers.subspan(count));
      if (candidate.estimate && !time) return best;  // it refuses, what may follow, too
      if (!best.time || *time <= *best.time) best = {count, time};
      if (count == followers.size() || !candidate.fusions.epilogue ||
          !candidate.fusions.epilogue(spec, *followers[count]))
        return best;
    }
  }

 private:
  // The minimum of the first candidate's estimate and of those of what its kernel fuses in turn; what has no estimate
  // counts nothing.
  double apart(FollowingNodes nodes) const {
    if (nodes.empty()) return 0;
    std::optional<double> least;
    for (const Candidate& candidate : registry_.candidates(nodes[0]->layer.type(), device_)) {
      if (!candidate.estimate) continue;
      const std::optional<double> expected = fused(candidate, *nodes[0], nodes.subspan(1)).time;
      if (expected && (!least || *expected < *least)) least = expected;
    }
    return least ? *least : apart(nodes.subspan(1));
  }

  const Registry& registry_;
  DeviceKind device_;
};

}  // namespace

std::vector<OrderedCandidate> candidate_order(const Registry& registry, DeviceKind device,
                                              const NodeSpec& spec,
                                              std::span<const NodeSpec* const> followers) {
  const Expected expected(registry, device);
  std::vector<OrderedCandidate> order, estimated;
  for (const Candidate& candidate : registry.candidates(spec.layer.type(), device)) {
    order.push_back({&candidate, {}});
    if (candidate.estimate) order.back().time = expected.fused(candidate, spec, followers).time;
    if (order.back().time) estimated.push_back(order.back());
  }
  std::ranges::stable_sort(estimated, {}, [](const OrderedCandidate& c) { return *c.time; });
  auto next = estimated.begin();
  for (OrderedCandidate& place : order) {
    if (place.time) place = *next++;
  }
  return order;
}

std::size_t fused_followers(const Registry& registry, DeviceKind device, const Candidate& candidate,
                            const NodeSpec& spec, std::span<const NodeSpec* const> followers) {
  return Expected(registry, device).fused(candidate, spec, followers).count;
}

std::size_t fusable_followers(const Candidate& candidate, NodeSpec spec,
                              std::span<const NodeSpec* const> followers) {
  std::size_t count = 0;
  while (candidate.fusions.epilogue && count < followers.size() &&
         candidate.fusions.epilogue(spec, *followers[count]))
    spec.fusion.followers = followers.first(++count);
  return count;
}

}  // namespace pipit::internal
