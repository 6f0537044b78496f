#include "engine/plan/candidate_order.h"

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

}  // namespace pipit
