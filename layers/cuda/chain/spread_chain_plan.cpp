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
  plan.places_bytes = places;
  plan.sums = (plan.places + 2 * places + 127) / 128 * 128;
  plan.received = plan.sums + kSpreadGroups * kSpreadRows * kSpreadSumPitch;
  plan.shared_bytes = plan.received + (shared ? 2 * kSpreadRows * kSpreadColumns * 4 : 0);
  if (plan.shared_bytes > kSpreadChainShared) return "shared memory has no room for two convolutions' weights";
  for (std::size_t c = 0; c + 1 < convs.size(); ++c) {
    plan.values.push_back(plan.values_bytes);
    plan.values_bytes += ceil_div(convs[c].shape.rows() * convs[c].shape.out_c * convs[c].output_bytes, 256) * 256;
  }
  return plan;
}

}  // namespace pipit::cuda
