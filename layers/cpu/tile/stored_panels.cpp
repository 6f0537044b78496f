#include "layers/cpu/tile/stored_panels.h"

#include <algorithm>

#include "layers/cpu/vector/row_kernels.h"

namespace pipit {

namespace {

// Where a panel, counted through the groups, begins, in bytes of f32.
std::int64_t offset_of(const TilePanels& panels, std::int64_t panel) {
  return panel / panels.count() * panels.bytes() + panels.offset(panel % panels.count());
}

std::int64_t bytes_of(const TilePanels& panels, std::int64_t panel) {
  return panels.panel_bytes(panel % panels.count());
}

// Calls pack(group, panel of the group, weights of the group).
template <typename T, typename Pack>
void for_each_panel(const TilePanels& panels, std::int64_t groups, WeightsOf<T> weights, const Pack& pack) {
  for (std::int64_t g = 0; g < groups; ++g, weights.data += panels.outputs * weights.output_stride) {
    for (std::int64_t p = 0; p < panels.count(); ++p) pack(g, p, weights);
  }
}

}  // namespace

PackedPanels::PackedPanels(const TilePanels& panels, std::int64_t groups)
    : panels_(panels), packed_(static_cast<std::size_t>(groups * panels.bytes())) {}

void PackedPanels::widen(std::int64_t panel, std::byte* to) const {
  const std::span<const std::byte> from = kept(panel);
  std::copy(from.begin(), from.end(), to);
}

std::span<const std::byte> PackedPanels::kept(std::int64_t panel) const {
  return {packed_.data() + offset_of(panels_, panel), static_cast<std::size_t>(bytes_of(panels_, panel))};
}

HalfPanels::HalfPanels(const TilePanels& panels, std::int64_t groups, const std::byte* packed)
    : panels_(panels), halves_(static_cast<std::size_t>(groups * panels.bytes() / 2)) {
  row_kernels().to_half(reinterpret_cast<const float*>(packed), reinterpret_cast<Half*>(halves_.data()),
                        groups * panels.bytes() / 4);
}

std::span<const std::byte> HalfPanels::kept(std::int64_t panel) const {
  return {halves_.data() + offset_of(panels_, panel) / 2,
          static_cast<std::size_t>(bytes_of(panels_, panel) / 2)};
}

void HalfPanels::widen(std::int64_t panel, std::byte* to) const {
  const std::span<const std::byte> halves = kept(panel);
  row_kernels().to_float(reinterpret_cast<const Half*>(halves.data()), reinterpret_cast<float*>(to),
                         static_cast<std::int64_t>(halves.size() / sizeof(Half)));
}

std::unique_ptr<const StoredPanels> pack_f32(const TilePanels& panels, std::int64_t groups,
                                             WeightView weights) {
  auto packed = std::make_unique<PackedPanels>(panels, groups);
  for_each_panel(panels, groups, weights, [&](std::int64_t g, std::int64_t p, const WeightView& w) {
    pack_f32_panel(panels, p, w, packed->group(g));
  });
  return packed;
}

std::unique_ptr<const StoredPanels> pack_f16(const TilePanels& panels, std::int64_t groups,
                                             WeightView weights, int stretch, float* multipliers) {
  auto packed = std::make_unique<PackedPanels>(panels, groups);
  for_each_panel(panels, groups, weights, [&](std::int64_t g, std::int64_t p, const WeightView& w) {
    pack_f16_panel(panels, p, w, stretch, packed->group(g),
                   multipliers + g * panels.outputs + p * panels.panel);
  });
  return packed;
}

std::unique_ptr<const StoredPanels> pack_s8(const TilePanels& panels, std::int64_t groups,
                                            WeightsOf<std::int8_t> weights) {
  auto packed = std::make_unique<PackedPanels>(panels, groups);
  for_each_panel(panels, groups, weights,
                 [&](std::int64_t g, std::int64_t p, const WeightsOf<std::int8_t>& w) {
                   pack_s8_panel(panels, p, w, packed->group(g));
                 });
  return packed;
}

}  // namespace pipit
