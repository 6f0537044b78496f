// How the tiles of a Winograd convolution go through its three stages: transformed inputs, products, outputs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "engine/plan/kernel.h"
#include "layers/cpu/conv/winograd_tiles.h"
#include "layers/cpu/tile/kept_steps.h"
#include "layers/cpu/tile/tile_kernel.h"
#include "layers/cpu/tile/tile_pack.h"
#include "layers/cpu/work_sharing.h"

namespace pipit::internal {

/// Which steps of K (kernels.step neighbouring input channels) the panels of every product are multiplied with, for
/// weights [outputs, channels, 3, 3], row-major. A channel that is zero at all taps for a panel of outputs has
/// transformed weights of zero in all products: one list for all of them.
template <typename T>
KeptSteps winograd_kept_steps(const TileKernels& kernels, const T* weights, std::int64_t outputs,
                              std::int64_t channels);

/// Cuts a convolution by F(m x m, 3 x 3) into bands of tiles. A stage of a band lies in planes, one for each of the
/// (m + 2)^2 products; in each, one row of channels per tile that takes it. Every plane is one matrix product on the
/// register tile. No output depends on how tiles are cut.
class WinogradSchedule {
 public:
  /// Images x [N, C, H, W] to `outputs` channels of y, with the weights that are `kept`. kernels.step transformed
  /// inputs are 4 bytes, and so is a product. `passes`: how often a worker goes through a band of its
  /// own, each time for a part of the outputs, so that their products take less of its cache.
  WinogradSchedule(const Shape& x, const WinogradTiles& tiles, std::int64_t outputs,
                   const TileKernels& kernels, KeptSteps kept, int threads, int passes = 1);

  WinogradTiles::Place place(std::int64_t tile) const { return tiles_.place(tile); }

  /// Weights: [products][panels][steps that are kept], see tile_pack.h.
  int products() const { return tiles_.products(); }
  const TilePanels& panels() const { return panels_; }
  const KeptSteps& kept() const { return kept_; }
  std::int64_t panel_offset(std::int64_t product, std::int64_t panel) const {
    return product * kept_.bytes() + kept_.offset(panel);
  }
  std::size_t weight_bytes() const { return static_cast<std::size_t>(products() * kept_.bytes()); }

  /// Multiply-accumulates of all products; where strips of tiles overlap, of both.
  std::int64_t macs() const;
  /// What the products take a worker, and reading their weights, in steps of K for one output.
  double steps() const { return static_cast<double>(cost_ * kStepsPerByte); }

  std::size_t scratch_bytes() const { return static_cast<std::size_t>(workspace()) * workspaces_; }
  /// Bytes from plane to plane of the transformed inputs, and of the products.
  std::int64_t input_plane() const { return v_.plane; }
  std::int64_t output_plane() const { return m_.plane; }

  /// Outputs [first, first + count) of a tile.
  struct Outputs {
    std::int64_t first, count;
  };
  /// Calls input(tile, v, worker), which writes a tile's transformed inputs, and output(tile, m, outputs, worker),
  /// which reads the products of some of its outputs, of all where there is one pass; both get the tile's row in the
  /// first plane.
  template <typename Input, typename Output>
  void run(const std::byte* packed, const RunContext& context, const Input& input,
           const Output& output) const {
    if (!shared_) {
      context.pool.parallel_for((tiles_.count() + band_ - 1) / band_, [&](std::int64_t band, int worker) {
        std::byte* v = context.scratch + worker * workspace();
        std::byte* m = v + v_.bytes;
        const Band tiles = band_from(band * band_);
        for (std::int64_t t = tiles.first; t < tiles.end; ++t)
          input(t, v + tiles_.row(tiles, t) * v_.row, worker);
        for (std::int64_t p = 0; p < panels_.count(); p += pass_panels_) {
          const Pass pass = pass_of(p);
          multiply(packed, v, m, tiles, pass, 0, products() * pass.panels);
          for (std::int64_t t = tiles.first; t < tiles.end; ++t)
            output(t, m + tiles_.row(tiles, t) * m_.row, outputs_of(pass), worker);
        }
      });
      return;
    }
    std::byte* v = context.scratch;
    std::byte* m = v + v_.bytes;
    for (std::int64_t first = 0; first < tiles_.count(); first += band_) {
      const Band tiles = band_from(first);
      const std::int64_t size = tiles.end - first;
      context.pool.parallel_for(size, [&](std::int64_t t, int worker) {
        input(first + t, v + tiles_.row(tiles, first + t) * v_.row, worker);
      });
      const Pass whole = pass_of(0);
      const std::int64_t all = products() * whole.panels;
      context.pool.parallel_for(tasks_, [&](std::int64_t task, int /*worker*/) {
        multiply(packed, v, m, tiles, whole, all * task / tasks_, all * (task + 1) / tasks_);
      });
      context.pool.parallel_for(size, [&](std::int64_t t, int worker) {
        output(first + t, m + tiles_.row(tiles, first + t) * m_.row, outputs_of(whole), worker);
      });
    }
  }

 private:
  // Steps of 4 bytes that a core multiplies while it reads a byte from its third-level cache: about 80 G/s over
  // 20 GB/s.
  static constexpr std::int64_t kStepsPerByte = 4;

  using Band = WinogradTiles::Band;
  Band band_from(std::int64_t first) const {
    return tiles_.band(first, std::min(tiles_.count(), first + band_));
  }
  // Rows that the register tile computes for all products of a band.
  std::int64_t computed(const Band& band) const;

  // In bytes.
  struct Planes {
    std::int64_t row = 0;  // from tile to tile
    std::int64_t plane = 0;
    std::int64_t bytes = 0;

    Planes() = default;
    Planes(std::int64_t tiles, std::int64_t row_bytes, int products);
  };

  std::int64_t workspace() const {
    return static_cast<std::int64_t>(worker_stride(static_cast<std::size_t>(v_.bytes + m_.bytes)));
  }
  void cut(std::int64_t channels, int threads, int passes);
  // Panels whose products are in work at a time.
  struct Pass {
    std::int64_t first, panels;
  };
  Pass pass_of(std::int64_t first) const { return {first, std::min(pass_panels_, panels_.count() - first)}; }
  Outputs outputs_of(const Pass& pass) const {
    const std::int64_t first = pass.first * panels_.panel;
    return {first, std::min(panels_.outputs - first, pass.panels * panels_.panel)};
  }
  void multiply(const std::byte* packed, const std::byte* v, std::byte* m, const Band& tiles,
                const Pass& pass, std::int64_t begin, std::int64_t end) const;

  const TileKernels& kernels_;
  WinogradTiles tiles_;
  TilePanels panels_;  // of one product
  KeptSteps kept_;
  std::vector<std::int32_t> offsets_;  // of kept_.all_starts() in a row of a plane
  // What a product asks for each of its panels, which may be multiplied in less than a microsecond.
  struct PanelCall {
    std::int64_t weights = 0;  // bytes from the first panel's
    std::int32_t first_offset = 0;
    std::int32_t offsets = 0;
    std::int32_t columns = 0;
  };
  std::vector<PanelCall> panel_calls_;
  std::int64_t cost_ = 0;         // see cut()
  bool shared_ = false;           // all workers share a band, or each has one of its own
  std::int64_t band_ = 0;         // tiles
  std::int64_t pass_panels_ = 0;  // most panels of a pass
  std::size_t workspaces_ = 0;    // bands in work at a time
  std::int64_t tasks_ = 0;        // parts of the products of a shared band
  Planes v_;                      // inputs of a band
  Planes m_;                      // its products
};

}  // namespace pipit::internal
