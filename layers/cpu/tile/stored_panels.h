// The weights of a convolution on the tile kernel, panel by panel: as tiles read them, or in a smaller form.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "engine/graph/shared_buffer.h"
#include "engine/graph/tensor.h"
#include "layers/cpu/tile/byte_weights.h"
#include "layers/cpu/tile/kept_steps.h"
#include "layers/cpu/tile/tile_pack.h"

namespace pipit::internal {

/// Panels are counted through the groups of a convolution, one group after the other.
class StoredPanels {
 public:
  virtual ~StoredPanels() = default;
  /// All panels as tiles read them, one after the other; null where they are widened for a run.
  virtual const std::byte* as_read() const { return nullptr; }
  /// Writes a panel as pack_f32_panel() has it, where as_read() is null.
  virtual void widen(std::int64_t panel, std::byte* to) const = 0;
  /// Where a panel is kept, to be fetched into a cache.
  virtual std::span<const std::byte> kept(std::int64_t panel) const = 0;
  /// Bytes of all panels, as they are kept.
  virtual std::size_t bytes() const = 0;
};

/// As tiles read them.
class PackedPanels final : public StoredPanels {
 public:
  /// `packed`: the panels one after the other. `kept` is to live as long.
  PackedPanels(const KeptSteps& kept, HostBuffer packed);
  const std::byte* as_read() const override { return packed_.data(); }
  void widen(std::int64_t panel, std::byte* to) const override;
  std::span<const std::byte> kept(std::int64_t panel) const override;
  std::size_t bytes() const override { return packed_.bytes(); }

 private:
  const KeptSteps& kept_;
  SharedBuffer packed_;
};

/// f32 panels in 16 bits.
class NarrowPanels final : public StoredPanels {
 public:
  /// `packed`: the panels in f32, one after the other. `kept` is to live as long.
  NarrowPanels(const KeptSteps& kept, DType stored, const std::byte* packed);
  void widen(std::int64_t panel, std::byte* to) const override;
  std::span<const std::byte> kept(std::int64_t panel) const override;
  std::size_t bytes() const override { return narrow_.bytes(); }

 private:
  const KeptSteps& kept_;
  DType stored_;
  SharedBuffer narrow_;
};

/// The steps `kept` of the panels of all groups, of which the weights follow each other; `panels` are those of one.
std::unique_ptr<const StoredPanels> pack_f32(const TilePanels& panels, const KeptSteps& kept,
                                             WeightView weights);
/// The same for tiles that multiply halves, `stretch` steps at a time (pack_f16_panel()); writes `multipliers`, one for
/// each output.
std::unique_ptr<const StoredPanels> pack_f16(const TilePanels& panels, const KeptSteps& kept,
                                             WeightView weights, int stretch, float* multipliers);
/// The same for tiles that multiply bfloat16 (pack_bf16_panel()).
std::unique_ptr<const StoredPanels> pack_bf16(const TilePanels& panels, const KeptSteps& kept,
                                              WeightView weights);
/// The same in s8. `view`: how an output's weights lie, without data.
std::unique_ptr<const StoredPanels> pack_s8(const TilePanels& panels, const KeptSteps& kept,
                                            const ByteWeights& weights, WeightsOf<std::int8_t> view);

}  // namespace pipit::internal
