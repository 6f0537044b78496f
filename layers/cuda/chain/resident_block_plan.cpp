#include "layers/cuda/chain/resident_block_plan.h"

#include <cstring>

namespace pipit::cuda {

std::optional<BlockRoles> block_roles(const ConvChainShape& shape) {
  const auto count = static_cast<int>(shape.convs.size());
  if (shape.inputs.size() != 1 || count < 3 || count > 4) return std::nullopt;
  BlockRoles roles;
  roles.tail = count - 1;
  const auto value = [](int conv) { return conv < 0 ? -1 : conv + 1; };  // behind x
  for (int c = 0; c < roles.tail; ++c) {
    const ChainConv& conv = shape.convs[static_cast<std::size_t>(c)];
    if (conv.residual >= 0) return std::nullopt;
    int& role = conv.window ? roles.window : conv.out_c == kBlockChannels ? roles.head : roles.projection;
    if (role >= 0 || (!conv.window && conv.x != 0)) return std::nullopt;
    role = c;
  }
  if (roles.head < 0 || roles.window < 0) return std::nullopt;
  const ChainConv& window = shape.convs[static_cast<std::size_t>(roles.window)];
  const ChainConv& tail = shape.convs[static_cast<std::size_t>(roles.tail)];
  if (window.x != value(roles.head) || window.out_c != kBlockChannels || tail.window ||
      tail.x != value(roles.window))
    return std::nullopt;
  const bool projects = roles.projection >= 0;
  if (projects ? tail.residual != value(roles.projection) : tail.residual > 0) return std::nullopt;
  return roles;
}

int BlockPlan::shared_bytes() const {
  return (weight_units() + ring) * unit_bytes() + (kBlockSlotBytes << slots_log2) +
         constant_units() * constant_bytes() + row_bytes() + kBlockReserved;
}

std::variant<BlockPlan, std::string> plan_block(const ConvChainShape& shape, const BlockRoles& roles) {
  const int in_c = shape.inputs[0];
  const int out_c = shape.convs[static_cast<std::size_t>(roles.tail)].out_c;
  if (in_c % kBlockChannels != 0 || out_c % kBlockChannels != 0) return "channels are no multiple of 64";
  BlockPlan plan;
  plan.element_bytes = shape.element_bytes;
  plan.in_units = in_c / kBlockChannels, plan.out_units = out_c / kBlockChannels;
  if (shape.convs[static_cast<std::size_t>(roles.tail)].residual >= 0)
    plan.adds = roles.projection >= 0 ? BlockAdds::projection : BlockAdds::x;
  if (plan.in_units > kBlockMostUnits || plan.out_units > kBlockMostUnits ||
      (plan.projects() && plan.in_units > 1))
    return "more channels than there is room for";
  plan.width = shape.width, plan.height = shape.height;
  const std::int64_t positions = std::int64_t{shape.images} * shape.height * shape.width;
  if (positions > (1 << 30)) return "more positions than are counted";
  plan.positions = static_cast<int>(positions);
  plan.tiles = (plan.positions + kBlockRows - 1) / kBlockRows;
  plan.halo = (plan.width + kBlockRows) / kBlockRows;
  plan.lag = 2 * plan.halo + 1;
  // With a tile for every group nobody waits for room. Weights in fp16 leave less.
  plan.ring = plan.lag + (plan.element_bytes == 1 ? block_groups(1) : 2);
  for (plan.slots_log2 = 3; plan.shared_bytes() > kBlockMostShared; --plan.slots_log2) {
    if (plan.slots_log2 == 1) return "shared memory has no room for weights and rows";
  }
  return plan;
}

int block_output(bool stored, int element_bytes, int column) {
  const int lane = column / 2 % 4, index = column / 8 * 2 + column % 2;
  if (stored) {
    const int neighbours = 16 / element_bytes;  // that 16 bytes hold
    return index / neighbours * 4 * neighbours + lane * neighbours + index % neighbours;
  }
  return element_bytes == 2 ? column : index / 4 * 16 + lane * 4 + index % 4;
}

int swizzled_byte(int row, int byte, int row_bytes) {
  const int at = row * row_bytes + byte;
  return at ^ (at >> 3 & (row_bytes == 128 ? 0x70 : 0x30));
}

void pack_block_unit(const std::byte* weights, int in_c, int taps, int tap, int first_channel,
                     int first_output, bool stored, int element_bytes, std::byte* to) {
  const int row_bytes = kBlockChannels * element_bytes;
  for (int column = 0; column < kBlockChannels; ++column) {
    const std::int64_t output = first_output + block_output(stored, element_bytes, column);
    const std::byte* from =
        weights + ((output * taps + tap) * in_c + first_channel) * std::int64_t{element_bytes};
    for (int byte = 0; byte < row_bytes; byte += 16)
      std::memcpy(to + swizzled_byte(column, byte, row_bytes), from + byte, 16);
  }
}

void pack_block_constants(const std::byte* values, bool stored, int element_bytes, std::byte* to) {
  for (int lane = 0; lane < 4; ++lane) {
    for (int index = 0; index < 16; ++index) {
      std::memcpy(to + (index / 4 * 16 + lane * 4 + index % 4) * 4,
                  values + block_output(stored, element_bytes, block_column(lane, index)) * 4, 4);
    }
  }
}

}  // namespace pipit::cuda
