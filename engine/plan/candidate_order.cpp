#include "engine/plan/candidate_order.h"

#include <algorithm>

namespace pipit::internal {

namespace {

using FollowingNodes = std::span<const NodeSpec* const>;

class Expected {
 public:
  Expected(const Registry& registry, DeviceKind device) : registry_(registry), device_(device) {}

  std::optional<double> time(const Candidate& candidate, NodeSpec spec, FollowingNodes followers) const {
    std::optional<Estimate> estimate = candidate.estimate ? candidate.estimate(spec) : std::nullopt;
    if (!estimate) return std::nullopt;
    std::size_t fused = 0;
    while (fused < followers.size() && candidate.fusions.epilogue &&
           candidate.fusions.epilogue(spec, *followers[fused]))
      spec.fusion.followers = followers.first(++fused);
    if (fused > 0) estimate = candidate.estimate(spec);
    if (!estimate) return std::nullopt;
    constexpr double kWorthMaking = 1.1;  // what takes half a second to make must be faster than doubt
    return estimate->time * (candidate.slow_to_make ? kWorthMaking : 1) + apart(followers.subspan(fused));
  }

 private:
  // The minimum of the first candidate's estimate and of those of what its kernel fuses in turn; what has no estimate
  // counts nothing.
  double apart(FollowingNodes nodes) const {
    if (nodes.empty()) return 0;
    std::optional<double> least;
    for (const Candidate& candidate : registry_.candidates(nodes[0]->layer.type(), device_)) {
      const std::optional<double> expected = time(candidate, *nodes[0], nodes.subspan(1));
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
    order.push_back({&candidate, expected.time(candidate, spec, followers)});
    if (order.back().time) estimated.push_back(order.back());
  }
  std::ranges::stable_sort(estimated, {}, [](const OrderedCandidate& c) { return *c.time; });
  auto next = estimated.begin();
  for (OrderedCandidate& place : order) {
    if (place.time) place = *next++;
  }
  return order;
}

}  // namespace pipit::internal
