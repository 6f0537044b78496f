#include "layers/cpu/tile/stored_panels.h"

#include <algorithm>

#include "layers/cpu/tile/picked_steps.h"
#include "layers/cpu/vector/row_kernels.h"

namespace pipit {

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

std::span<const std::byte> part(const HostBuffer& buffer, std::int64_t offset, std::int64_t bytes) {
  return {buffer.data() + offset, static_cast<std::size_t>(bytes)};
}

}  // namespace

PackedPanels::PackedPanels(const KeptSteps& kept)
    : kept_(kept), packed_(static_cast<std::size_t>(kept.bytes())) {}

void PackedPanels::widen(std::int64_t panel, std::byte* to) const {
  const std::span<const std::byte> from = kept(panel);
  std::copy(from.begin(), from.end(), to);
}

std::span<const std::byte> PackedPanels::kept(std::int64_t panel) const {
  return part(packed_, kept_.offset(panel), kept_.panel_bytes(panel));
}

HalfPanels::HalfPanels(const KeptSteps& kept, const std::byte* packed)
    : kept_(kept), halves_(static_cast<std::size_t>(kept.bytes() / 2)) {
  row_kernels().to_half(reinterpret_cast<const float*>(packed), reinterpret_cast<Half*>(halves_.data()),
                        kept.bytes() / 4);
}

std::span<const std::byte> HalfPanels::kept(std::int64_t panel) const {
  return part(halves_, kept_.offset(panel) / 2, kept_.panel_bytes(panel) / 2);
}

void HalfPanels::widen(std::int64_t panel, std::byte* to) const {
  const std::span<const std::byte> halves = kept(panel);
  row_kernels().to_float(reinterpret_cast<const Half*>(halves.data()), reinterpret_cast<float*>(to),
                         static_cast<std::int64_t>(halves.size() / sizeof(Half)));
}

std::unique_ptr<const StoredPanels> pack_f32(const TilePanels& panels, const KeptSteps& kept,
                                             WeightView weights) {
  auto packed = std::make_unique<PackedPanels>(kept);
  for_each_panel(panels, kept, weights, [&](std::int64_t panel, std::int64_t p, const WeightView& w) {
    if (kept.picked()) {
      pack_picked_panel(panels, p, w, kept.steps(panel).starts, packed->panel(panel));
    } else {
      pack_f32_panel(panels, p, w, kept.steps(panel), packed->panel(panel));
    }
  });
  return packed;
}

std::unique_ptr<const StoredPanels> pack_f16(const TilePanels& panels, const KeptSteps& kept,
                                             WeightView weights, int stretch, float* multipliers) {
  auto packed = std::make_unique<PackedPanels>(kept);
  for_each_panel(panels, kept, weights, [&](std::int64_t panel, std::int64_t p, const WeightView& w) {
    const std::int64_t output = panel / panels.count() * panels.outputs + p * panels.panel;
    pack_f16_panel(panels, p, w, kept.steps(panel), stretch, packed->panel(panel), multipliers + output);
  });
  return packed;
}

std::unique_ptr<const StoredPanels> pack_s8(const TilePanels& panels, const KeptSteps& kept,
                                            WeightsOf<std::int8_t> weights) {
  auto packed = std::make_unique<PackedPanels>(kept);
  for_each_panel(panels, kept, weights,
                 [&](std::int64_t panel, std::int64_t p, const WeightsOf<std::int8_t>& w) {
                   pack_s8_panel(panels, p, w, kept.steps(panel), packed->panel(panel));
                 });
  return packed;
}

}  // namespace pipit
