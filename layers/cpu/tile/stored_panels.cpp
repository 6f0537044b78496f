#include "layers/cpu/tile/stored_panels.h"

#include "layers/cpu/vector/row_kernels.h"

namespace pipit {

HalfPanels::HalfPanels(const TilePanels& panels, std::int64_t groups, const std::byte* packed)
    : panels_(panels), halves_(static_cast<std::size_t>(groups * panels.bytes() / 2)) {
  row_kernels().to_half(reinterpret_cast<const float*>(packed), reinterpret_cast<Half*>(halves_.data()),
                        groups * panels.bytes() / 4);
}

std::span<const std::byte> HalfPanels::kept(std::int64_t panel) const {
  const std::int64_t group = panel / panels_.count();
  const std::int64_t in_group = panel % panels_.count();
  const std::int64_t offset = (group * panels_.bytes() + panels_.offset(in_group)) / 2;
  const std::int64_t lanes = (panels_.columns(in_group) + panels_.lanes - 1) / panels_.lanes * panels_.lanes;
  return {halves_.data() + offset, static_cast<std::size_t>(2 * panels_.steps * lanes)};
}

void HalfPanels::widen(std::int64_t panel, std::byte* to) const {
  const std::span<const std::byte> halves = kept(panel);
  row_kernels().to_float(reinterpret_cast<const Half*>(halves.data()), reinterpret_cast<float*>(to),
                         static_cast<std::int64_t>(halves.size() / sizeof(Half)));
}

}  // namespace pipit
