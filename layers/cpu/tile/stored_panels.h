// Weights that are kept in a smaller form than the f32 tile kernel reads, and widened panel by panel for a run.
#pragma once

#include <cstddef>
#include <span>

#include "engine/graph/tensor.h"
#include "layers/cpu/tile/tile_pack.h"

namespace pipit {

class StoredPanels {
 public:
  virtual ~StoredPanels() = default;
  /// Writes panel `panel`, counted through the groups, as pack_f32_panel() has it.
  virtual void widen(std::int64_t panel, std::byte* to) const = 0;
  /// Where it is kept, to be fetched into a cache.
  virtual std::span<const std::byte> kept(std::int64_t panel) const = 0;
};

/// As f16.
class HalfPanels final : public StoredPanels {
 public:
  /// `packed`: the panels of all groups in f32, one group after the other.
  HalfPanels(const TilePanels& panels, std::int64_t groups, const std::byte* packed);
  void widen(std::int64_t panel, std::byte* to) const override;
  std::span<const std::byte> kept(std::int64_t panel) const override;

 private:
  TilePanels panels_;
  HostBuffer halves_;
};

}  // namespace pipit
