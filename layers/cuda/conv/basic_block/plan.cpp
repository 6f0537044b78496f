#include "layers/cuda/conv/basic_block/plan.h"

namespace pipit::internal::cuda {

bool is_basic_block(const ConvChainShape& shape) {
  if (shape.inputs.size() != 1 || shape.convs.size() != 2) return false;
  const ChainConv &head = shape.convs[0], &tail = shape.convs[1];
  for (const ChainConv* conv : {&head, &tail}) {
    if (!conv->window || conv->in_c != kUnitChannels || conv->out_c != kUnitChannels) return false;
  }
  return head.x == 0 && head.residual < 0 && tail.x == 1 && tail.residual <= 0;
}

int BasicBlockPlan::shared_bytes() const {
  return (kBasicWeightUnits + x_ring + ring) * unit_bytes() + constant_bytes() + row_bytes() + kBlockReserved;
}

std::variant<BasicBlockPlan, std::string> plan_basic_block(const ConvChainShape& shape) {
  BasicBlockPlan plan;
  plan.element_bytes = shape.element_bytes;
  plan.adds_x = shape.convs[1].residual == 0;
  plan.width = shape.width, plan.height = shape.height;
  const std::int64_t positions = std::int64_t{shape.images} * shape.height * shape.width;
  if (positions > (1 << 30)) return "more positions than are counted";
  plan.positions = static_cast<int>(positions);
  plan.tiles = (plan.positions + kUnitRows - 1) / kUnitRows;
  plan.halo = (plan.width + kUnitRows) / kUnitRows;
  plan.lag = 2 * plan.halo;
  // With a tile of both for every other group no group waits for room; the copies of two more of x are in flight
  // meanwhile. Weights in fp16 leave less.
  const int least = plan.lag + 1, groups = block_groups(plan.element_bytes);
  if (!has_turns(plan.lag, groups)) return "rows are too long";
  plan.ring = least + groups - 1;
  plan.x_ring = least + groups + 1;
  while (plan.shared_bytes() > kBlockMaxShared) {
    int& more = plan.x_ring > plan.ring ? plan.x_ring : plan.ring;
    if (more <= least) return "shared memory has no room for weights and rows";
    --more;
  }
  return plan;
}

}  // namespace pipit::internal::cuda
