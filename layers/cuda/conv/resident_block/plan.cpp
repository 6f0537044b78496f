#include "layers/cuda/conv/resident_block/plan.h"

namespace pipit::internal::cuda {

std::optional<BlockRoles> block_roles(const ConvChainShape& shape, int inner) {
  const auto count = static_cast<int>(shape.convs.size());
  if (shape.inputs.size() != 1 || count < 3 || count > 4) return std::nullopt;
  const auto conv = [&](int role) { return shape.convs[static_cast<std::size_t>(role)]; };
  const auto value = [](int role) { return role + 1; };  // values begin with x
  BlockRoles roles;
  const auto is_tail = [&](int c) { return roles.window >= 0 && conv(c).x == value(roles.window); };
  for (int c = 0; c < count; ++c) {
    int& role = conv(c).window                            ? roles.window
                : is_tail(c)                              ? roles.tail
                : conv(c).out_c == inner && c + 1 < count ? roles.head
                                                          : roles.projection;
    if (role >= 0 || (conv(c).residual >= 0 && c + 1 < count)) return std::nullopt;
    if (!conv(c).window && !is_tail(c) && conv(c).x != 0) return std::nullopt;
    role = c;
  }
  if (roles.head < 0 || roles.window < 0 || roles.tail < 0 || conv(roles.window).x != value(roles.head) ||
      conv(roles.window).out_c != inner)
    return std::nullopt;
  const int last = count - 1;
  const int other = roles.projection == last ? roles.tail : roles.projection;
  if (roles.projection >= 0 ? conv(last).residual != value(other) : conv(last).residual > 0)
    return std::nullopt;
  return roles;
}

int BlockPlan::shared_bytes() const {
  return (weight_units() + ring) * unit_bytes() + (kBlockSlotBytes << slots_log2) +
         constant_units() * constant_bytes() + row_bytes() + kBlockReserved;
}

std::variant<BlockPlan, std::string> plan_block(const ConvChainShape& shape, const BlockRoles& roles) {
  const int in_c = shape.inputs[0];
  const int out_c = shape.convs[static_cast<std::size_t>(roles.tail)].out_c;
  if (in_c % kUnitChannels != 0 || out_c % kUnitChannels != 0) return "channels are no multiple of 64";
  BlockPlan plan;
  plan.element_bytes = shape.element_bytes;
  plan.in_units = in_c / kUnitChannels, plan.out_units = out_c / kUnitChannels;
  if (roles.projection >= 0) {
    plan.adds = roles.projection > roles.tail ? BlockAdds::tail : BlockAdds::projection;
  } else if (shape.convs[static_cast<std::size_t>(roles.tail)].residual >= 0) {
    plan.adds = BlockAdds::x;
  }
  if (plan.in_units > kBlockMaxUnits || plan.out_units > kBlockMaxUnits ||
      (plan.projects() && plan.in_units > 1))
    return "more channels than there is room for";
  plan.width = shape.width, plan.height = shape.height;
  const std::int64_t positions = std::int64_t{shape.images} * shape.height * shape.width;
  if (positions > (1 << 30)) return "more positions than are counted";
  plan.positions = static_cast<int>(positions);
  plan.tiles = (plan.positions + kUnitRows - 1) / kUnitRows;
  plan.halo = (plan.width + kUnitRows) / kUnitRows;
  plan.lag = 2 * plan.halo + 1;
  // With a tile for every group no group waits for room. Weights in fp16 leave less.
  plan.ring = plan.lag + (plan.element_bytes == 1 ? block_groups(1) : 2);
  for (plan.slots_log2 = 3; plan.shared_bytes() > kBlockMaxShared; --plan.slots_log2) {
    if (plan.slots_log2 == 1) return "shared memory has no room for weights and rows";
  }
  return plan;
}

}  // namespace pipit::internal::cuda
