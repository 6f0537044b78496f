#include "layers/cpu/tile/stored_panels.h"

#include <algorithm>
#include <utility>

#include "layers/cpu/tile/picked_steps.h"
#include "layers/cpu/vector/row_kernels.h"

namespace pipit::internal {

namespace {

// Calls pack(panel, panel of its group, weights of the group).
template <typename T, typename Pack>
void for_each_panel(const TilePanels& panels, const KeptSteps& kept, const WeightsOf<T>& weights,
                    const Pack& pack) {
  WeightsOf<T> of_group = weights;
  for (std::int64_t panel = 0; panel < kept.panels(); ++panel) {
    const std::int64_t group = panel / panels.count();
    of_group.data = weights.data + group * panels.outputs * weights.output_stride;
    pack(panel, panel % panels.count(), of_group);
  }
}

std::span<const std::byte> part(const SharedBuffer& buffer, std::int64_t offset, std::int64_t bytes) {
  return {buffer.data() + offset, static_cast<std::size_t>(bytes)};
}

HostBuffer narrow_of(DType stored, const std::byte* packed, std::int64_t bytes) {
  HostBuffer words(static_cast<std::size_t>(bytes / 2));
  narrow_row(reinterpret_cast<const float*>(packed), stored, words.data(), 0, bytes / 4);
  return words;
}

}  // namespace

PackedPanels::PackedPanels(const KeptSteps& kept, HostBuffer packed)
    : kept_(kept), packed_(std::move(packed)) {}

void PackedPanels::widen(std::int64_t panel, std::byte* to) const {
  const std::span<const std::byte> from = kept(panel);
  std::copy(from.begin(), from.end(), to);
}

std::span<const std::byte> PackedPanels::kept(std::int64_t panel) const {
  return part(packed_, kept_.offset(panel), kept_.panel_bytes(panel));
}

NarrowPanels::NarrowPanels(const KeptSteps& kept, DType stored, const std::byte* packed)
    : kept_(kept), stored_(stored), narrow_(narrow_of(stored, packed, kept.bytes())) {}

std::span<const std::byte> NarrowPanels::kept(std::int64_t panel) const {
  return part(narrow_, kept_.offset(panel) / 2, kept_.panel_bytes(panel) / 2);
}

void NarrowPanels::widen(std::int64_t panel, std::byte* to) const {
  const std::span<const std::byte> words = kept(panel);
  widen_row(stored_, words.data(), 0, reinterpret_cast<float*>(to),
            static_cast<std::int64_t>(words.size() / sizeof(Half)));
}

std::unique_ptr<const StoredPanels> pack_f32(const TilePanels& panels, const KeptSteps& kept,
                                             WeightView weights) {
  HostBuffer packed(static_cast<std::size_t>(kept.bytes()));
  for_each_panel(panels, kept, weights, [&](std::int64_t panel, std::int64_t p, const WeightView& w) {
    if (kept.picked()) {
      pack_picked_panel(panels, p, w, kept.steps(panel).starts, packed.data() + kept.offset(panel));
    } else {
      pack_f32_panel(panels, p, w, kept.steps(panel), packed.data() + kept.offset(panel));
    }
  });
  return std::make_unique<PackedPanels>(kept, std::move(packed));
}

std::unique_ptr<const StoredPanels> pack_f16(const TilePanels& panels, const KeptSteps& kept,
                                             WeightView weights, int stretch, float* multipliers) {
  HostBuffer packed(static_cast<std::size_t>(kept.bytes()));
  for_each_panel(panels, kept, weights, [&](std::int64_t panel, std::int64_t p, const WeightView& w) {
    const std::int64_t output = panel / panels.count() * panels.outputs + p * panels.panel;
    pack_f16_panel(panels, p, w, kept.steps(panel), stretch, packed.data() + kept.offset(panel),
                   multipliers + output);
  });
  return std::make_unique<PackedPanels>(kept, std::move(packed));
}

std::unique_ptr<const StoredPanels> pack_bf16(const TilePanels& panels, const KeptSteps& kept,
                                              WeightView weights) {
  HostBuffer packed(static_cast<std::size_t>(kept.bytes()));
  for_each_panel(panels, kept, weights, [&](std::int64_t panel, std::int64_t p, const WeightView& w) {
    pack_bf16_panel(panels, p, w, kept.steps(panel), packed.data() + kept.offset(panel));
  });
  return std::make_unique<PackedPanels>(kept, std::move(packed));
}

std::unique_ptr<const StoredPanels> pack_s8(const TilePanels& panels, const KeptSteps& kept,
                                            const ByteWeights& weights, WeightsOf<std::int8_t> view) {
  HostBuffer packed(static_cast<std::size_t>(kept.bytes()));
  std::vector<std::int8_t> room;
  for (std::int64_t panel = 0; panel < kept.panels(); ++panel) {
    const std::int64_t group = panel / panels.count(), p = panel % panels.count();
    view.data = weights.outputs(group * panels.outputs + p * panels.panel, panels.columns(p), room);
    pack_s8_panel(panels, p, view, kept.steps(panel), packed.data() + kept.offset(panel));
  }
  return std::make_unique<PackedPanels>(kept, std::move(packed));
}

}  // namespace pipit::internal
