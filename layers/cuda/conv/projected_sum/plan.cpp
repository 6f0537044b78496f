#include "layers/cuda/conv/projected_sum/plan.h"

#include <algorithm>

namespace pipit::internal::cuda {

std::variant<ProjectedSumPlan, std::string> plan_projected_sum(const ProjectedSumShape& shape,
                                                               int processors) {
  const int chunk_channels = kBlockChunkBytes / shape.element_bytes;
  ProjectedSumPlan plan;
  plan.element_bytes = shape.element_bytes;
  for (std::size_t c = 0; c < 2; ++c) {
    if (shape.in_c[c] % chunk_channels != 0) return "channels are no multiples of 128 bytes";
    plan.chunks[c] = shape.in_c[c] / chunk_channels;
  }
  if (shape.out_c % kSumStageOutputs != 0) return "outputs are no multiple of 128";
  if (plan.tile_chunks() > kSumMaxChunks) return "more channels than there is room for";
  if (shape.positions > (1 << 30)) return "more positions than are counted";
  plan.positions = static_cast<int>(shape.positions);
  plan.tiles = (plan.positions + kUnitRows - 1) / kUnitRows;
  const int all_stages = shape.out_c / kSumStageOutputs;
  // The maximum number of outputs that leave room for two tiles, so that x is read as rarely as possible.
  for (plan.stages = all_stages; plan.stages > 0; --plan.stages) {
    if (all_stages % plan.stages != 0) continue;
    plan.slots = 0;
    plan.slots = (kBlockMaxShared - plan.shared_bytes()) / kBlockSlotBytes;
    if (plan.slots >= 2 * plan.tile_chunks()) break;
  }
  if (plan.stages == 0) return "shared memory has no room for weights and two tiles";
  plan.slots = std::min(plan.slots, (kSumGroups + 1) * plan.tile_chunks());
  plan.slices = all_stages / plan.stages;
  plan.workers = std::clamp(processors / plan.slices, 1, plan.tiles);
  return plan;
}

std::vector<std::byte> pack_projected_sum(const ProjectedSumPlan& plan, const std::byte* added,
                                          const std::byte* other) {
  const int channels = kBlockChunkBytes / plan.element_bytes;
  std::vector<std::byte> packed(static_cast<std::size_t>(plan.slices) *
                                static_cast<std::size_t>(plan.weight_bytes()));
  std::byte* to = packed.data();
  for (int stage = 0; stage < plan.slices * plan.stages; ++stage) {
    for (std::size_t c = 0; c < 2; ++c) {
      const int in_c = plan.chunks[c] * channels;
      for (int chunk = 0; chunk < plan.chunks[c]; ++chunk) {
        for (int unit = 0; unit < kSumStageOutputs; unit += kUnitChannels) {
          pack_unit(c == 0 ? added : other, in_c, 1, 0, chunk * channels, stage * kSumStageOutputs + unit,
                    true, plan.element_bytes, to, channels);
          to += kUnitChannels * kBlockChunkBytes;
        }
      }
    }
  }
  return packed;
}

}  // namespace pipit::internal::cuda
