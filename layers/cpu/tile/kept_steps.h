// Which steps of K the panels of a layer are multiplied with: all, or those whose weights are not all zero.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "layers/cpu/tile/tile_pack.h"

namespace pipit::internal {

/// The steps that panels keep: `groups` groups of `panels` panels each, numbered across groups. A step is left out
/// where its whole panel has only zeros (of either sign). Sums are the same without it, but for the sign of a zero and
/// for infinities and NaNs of the input, which times zero would be NaN.
class KeptSteps {
 public:
  /// All of them, in runs of `run` neighbours, which divides panels.steps.
  KeptSteps(const TilePanels& panels, std::int64_t groups, std::int64_t run);
  /// Keeps the runs with a mark of each panel. `marks` [panel][panels.steps]: not 0 where a step has a weight.
  KeptSteps(const TilePanels& panels, std::int64_t groups, std::int64_t run,
            std::span<const std::uint8_t> marks);
  /// Picked steps (picked_steps.h): of each panel their blocks, which may be named more than once.
  KeptSteps(const TilePanels& panels, std::span<const std::vector<std::int32_t>> blocks_of_panels);

  std::int64_t panels() const { return static_cast<std::int64_t>(panels_.size()); }
  PanelSteps steps(std::int64_t panel) const;
  /// Where the starts of a panel are among all_starts(). Panels with the same steps may share them.
  std::int64_t first_start(std::int64_t panel) const { return at(panel).first; }
  std::span<const std::int32_t> all_starts() const { return starts_; }
  std::int32_t run() const { return run_; }
  /// Every start is that of a block for a picked step.
  bool picked() const { return picked_; }
  /// How long a multiply-accumulate takes beside one of all steps: a permutation goes with each that is picked, which
  /// is 1.36 to 1.41 times as long on Zen 4.
  double macs_cost() const { return picked_ ? 1.4 : 1; }

  /// Where the weights of a panel lie, one panel after the other, and how many these are, in bytes.
  std::int64_t offset(std::int64_t panel) const { return at(panel).offset; }
  std::int64_t panel_bytes(std::int64_t panel) const { return at(panel).bytes; }
  std::int64_t bytes() const { return bytes_; }

  /// Runs of a panel, in the mean.
  double mean_runs() const;
  /// The share of all multiply-accumulates that is left.
  double share() const { return share_; }

 private:
  struct Panel {
    std::int64_t first = 0;  // start
    std::int64_t count = 0;  // of starts
    std::int64_t offset = 0;
    std::int64_t bytes = 0;
  };
  const Panel& at(std::int64_t panel) const { return panels_[static_cast<std::size_t>(panel)]; }
  void add(const TilePanels& panels, std::int64_t in_group, std::int64_t first, std::int64_t count);
  void add_starts_behind(std::int64_t first, const TilePanels& panels);
  void set_share(const TilePanels& panels);

  std::int32_t run_;
  bool picked_ = false;
  std::vector<std::int32_t> starts_;
  std::vector<Panel> panels_;
  std::int64_t bytes_ = 0;
  double share_ = 1;
};

/// 1 in `marks` [panels.steps] where a step of panel p has a weight that is not zero, of the panel's own weights.
template <typename T>
void mark_steps(const TilePanels& panels, std::int64_t p, const WeightsOf<T>& weights, std::uint8_t* marks);

/// [panel][panels.steps]: 1 where a step of a panel has a weight that is not zero. Of the weights that the groups have
/// one after the other; panels.step neighbours of the inner dimension are one step, the last one has what is left.
template <typename T>
std::vector<std::uint8_t> steps_with_weights(const TilePanels& panels, std::int64_t groups,
                                             WeightsOf<T> weights);

/// What `kernels` of vector instructions want to be given, whose input lies in segments of `segment` steps: the steps
/// that have a mark, each for itself; whole segments where hardly any other step is left out.
KeptSteps kept_steps(const TilePanels& panels, std::int64_t groups, std::int64_t segment,
                     std::span<const std::uint8_t> marks);

/// The same with the tiles themselves: those of the dense layer, or, where these are AMX's, perhaps those `below`, of
/// AVX-512, which read the same panels. AMX multiplies whole blocks of steps and leaves out those that are quite empty;
/// AVX-512 takes over when so few steps are left that it takes less time for them.
struct KeptForTiles {
  const TileKernels& kernels;
  KeptSteps steps;
};
KeptForTiles kept_for_tiles(const TileKernels& dense, const TileKernels& below, const TilePanels& panels,
                            std::int64_t groups, std::int64_t segment, std::span<const std::uint8_t> marks);

}  // namespace pipit::internal
