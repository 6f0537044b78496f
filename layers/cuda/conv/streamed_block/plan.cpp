#include "layers/cuda/conv/streamed_block/plan.h"

#include <algorithm>
#include <cstdint>

namespace pipit::internal::cuda {

int StreamedPlan::shared_bytes() const {
  return kStreamedRing * kStreamedTileBytes + kStreamedWeights * kStreamedWeightBytes +
         kStreamedX * kStreamedXBytes + constant_units() * kUnitChannels * 8 + kStreamedInner +
         kBlockReserved;
}

std::variant<StreamedPlan, std::string> plan_streamed_block(const ConvChainShape& shape,
                                                            const BlockRoles& roles, int processors) {
  const int in_c = shape.inputs[0];
  const int out_c = shape.convs[static_cast<std::size_t>(roles.tail)].out_c;
  if (shape.element_bytes != 1) return "only int8 is handled";
  if (roles.projection >= 0) return "a projection is not handled";
  if (in_c % kStreamedInner != 0 || out_c % kStreamedInner != 0) return "channels are no multiple of 128";
  StreamedPlan plan;
  plan.in_chunks = in_c / kStreamedInner, plan.out_stages = out_c / kStreamedInner;
  // A group whose heads are multiplied knows that the others have read what they take the place of (the kernel).
  if (plan.in_chunks + plan.out_stages < kStreamedWeights) return "too few channels";
  plan.adds_x = shape.convs[static_cast<std::size_t>(roles.tail)].residual >= 0;
  plan.width = shape.width, plan.height = shape.height;
  const std::int64_t positions = std::int64_t{shape.images} * shape.height * shape.width;
  if (positions > (1 << 30)) return "more positions than are counted";
  plan.positions = static_cast<int>(positions);
  plan.tiles = (plan.positions + kUnitRows - 1) / kUnitRows;
  plan.halo = (plan.width + kUnitRows) / kUnitRows;
  if (2 * plan.halo > kStreamedGroups) return "rows are longer than the ring";
  if (plan.shared_bytes() > kBlockMaxShared) return "its constants do not fit shared memory";
  const int iterations = (plan.tiles + kStreamedGroups - 1) / kStreamedGroups;
  const int most = std::max(processors, 1);
  plan.worker_tiles = (iterations + most - 1) / most * kStreamedGroups;
  plan.workers = (plan.tiles + plan.worker_tiles - 1) / plan.worker_tiles;
  return plan;
}

std::vector<std::byte> pack_streamed_weights(const StreamedPlan& plan, const std::byte* head,
                                             const std::byte* window, const std::byte* tail) {
  std::vector<std::byte> packed(static_cast<std::size_t>(plan.stages()) * kStreamedWeightBytes);
  std::byte* to = packed.data();
  const auto stage = [&](const std::byte* weights, int in_c, int taps, int tap, int channel, int output,
                         bool stored) {
    for (int unit = 0; unit < kStreamedInner; unit += kUnitChannels) {
      pack_unit(weights, in_c, taps, tap, channel, output + unit, stored, 1, to, kStreamedInner);
      to += kUnitChannels * kStreamedInner;
    }
  };
  for (int chunk = 0; chunk < plan.in_chunks; ++chunk)
    stage(head, plan.in_chunks * kStreamedInner, 1, 0, chunk * kStreamedInner, 0, true);
  for (int tap = 0; tap < kBlockTaps; ++tap) stage(window, kStreamedInner, kBlockTaps, tap, 0, 0, false);
  for (int s = 0; s < plan.out_stages; ++s) stage(tail, kStreamedInner, 1, 0, 0, s * kStreamedInner, true);
  return packed;
}

}  // namespace pipit::internal::cuda
