#include "layers/cuda/chain/spread_chain_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace pipit::cuda {

namespace {

std::int64_t tiles_of(const ConvShape& s) {
  return ceil_div(s.rows(), kSpreadRows) * ceil_div(s.out_c, kSpreadColumns);
}

// As many slices as there are blocks for, or one: a tile whose sums a cluster adds up must be the only one that its
// blocks have of the convolution.
std::optional<SpreadPlan> choose(const ConvShape& shape, int blocks) {
  std::optional<SpreadPlan> best;
  for (const SpreadPlan& plan : spread_plans(shape, blocks)) {
    if (plan.slices > 1 && tiles_of(shape) * plan.slices > blocks) continue;
    if (!best || plan.slices > best->slices) best = plan;
  }
  return best;
}

// Places for values that live from the convolution that computes them to the last one that reads them, the first free
// one for each.
void place_values(const std::vector<SpreadChainConv>& convs, int inputs, SpreadChainPlan& plan) {
  struct Place {
    std::int64_t begin, end;
    int last;  // who reads it
  };
  std::vector<Place> places;
  for (int c = 0; c + 1 < static_cast<int>(convs.size()); ++c) {
    const ConvShape& s = convs[static_cast<std::size_t>(c)].shape;
    const std::int64_t bytes = ceil_div(s.rows() * s.out_c * convs[static_cast<std::size_t>(c)].output_bytes, 256) * 256;
    int last = c;
    for (int r = c + 1; r < static_cast<int>(convs.size()); ++r) {
      const SpreadChainConv& reader = convs[static_cast<std::size_t>(r)];
      if (reader.x == inputs + c || reader.residual == inputs + c) last = r;
    }
    // Writing begins when everything in front of the convolution before has been done, that one included.
    std::erase_if(places, [&](const Place& p) { return p.last < c; });
    std::sort(places.begin(), places.end(), [](const Place& a, const Place& b) { return a.begin < b.begin; });
    std::int64_t begin = 0;
    for (const Place& p : places) {
      if (begin + bytes <= p.begin) break;
      begin = std::max(begin, p.end);
    }
    places.push_back({begin, begin + bytes, last});
    plan.values.push_back(begin);
    plan.scratch_bytes = std::max(plan.scratch_bytes, begin + bytes);
  }
}

}  // namespace

std::variant<SpreadChainPlan, std::string> plan_spread_chain(const std::vector<SpreadChainConv>& convs, int inputs,
                                                             int blocks) {
  if (inputs > kSpreadChainMostInputs) return fmt::format("the chain reads {} values", inputs);
  if (convs.size() > kSpreadChainMostLinks) return fmt::format("{} convolutions are too many", convs.size());
  SpreadChainPlan plan;
  int x = 0, places = 0;
  bool shared = false;  // a tile among blocks
  for (const SpreadChainConv& conv : convs) {
    if (auto reason = refuse_spread(conv.shape)) return *reason;
    if (conv.shape.out_c % 4 != 0) return "outputs must be a multiple of 4";
    const std::optional<SpreadPlan> chosen = choose(conv.shape, blocks);
    if (!chosen) return "shared memory has no room for weights and pixels of a tile";
    plan.plans.push_back(*chosen);
    plan.weights_bytes = std::max(plan.weights_bytes, chosen->steps * kSpreadStepWeights);
    x = std::max(x, chosen->pixels * chosen->pitch);
    places = std::max(places, chosen->steps * 8);
    shared = shared || chosen->slices > 1;
    plan.rounds += static_cast<int>(ceil_div(tiles_of(conv.shape) * chosen->slices, blocks));
  }
  plan.x = 2 * plan.weights_bytes;
  plan.zeros = plan.x + x;
  plan.places = plan.zeros + kSpreadStepBytes;
  plan.sums = (plan.places + places + 127) / 128 * 128;
  plan.received = plan.sums + kSpreadGroups * kSpreadRows * kSpreadSumPitch;
  plan.shared_bytes = plan.received + (shared ? kSpreadRows * kSpreadColumns * 4 : 0);
  if (plan.shared_bytes > kSpreadChainShared) return "shared memory has no room for two convolutions' weights";
  place_values(convs, inputs, plan);
  return plan;
}

}  // namespace pipit::cuda
