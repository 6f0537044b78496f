#include "engine/plan/candidate_order.h"

#include <utility>

namespace pipit {

std::vector<const Candidate*> candidate_order(const std::vector<Candidate>& candidates,
                                              const NodeSpec& spec) {
  std::vector<const Candidate*> order;
  std::vector<const Candidate*> yielding;
  for (const Candidate& c : candidates) {
    const bool yields = c.yields && c.yields(spec);
    (yields ? yielding : order).push_back(&c);
    if (yields) continue;
    order.insert(order.end(), yielding.rbegin(), yielding.rend());
    yielding.clear();
  }
  order.insert(order.end(), yielding.rbegin(), yielding.rend());
  return order;
}

std::function<bool(const NodeSpec&)> yields_where_accepted(std::function<Refusal(const NodeSpec&)> refuse,
                                                           std::function<bool(const NodeSpec&)> yields) {
  return [refuse = std::move(refuse), yields = std::move(yields)](const NodeSpec& spec) {
    return refuse(spec).has_value() || yields(spec);
  };
}

}  // namespace pipit
