#include "layers/cpu/conv/winograd_schedule.h"

#include <limits>

#include "engine/base/ceil_div.h"
#include "layers/ops/clamp.h"

namespace pipit {

namespace {

constexpr std::int64_t kLine = 64;
// Half of a second-level cache of 2 MiB, and what a band may take of the arena where all workers share it.
constexpr std::int64_t kWorkerBytes = 1 << 20;
constexpr std::int64_t kSharedBytes = 8 << 20;
// Steps of 4 bytes that a core multiplies while it reads a byte from its third-level cache: about 80 G/s over 20 GB/s.
constexpr std::int64_t kStepsPerByte = 4;

}  // namespace

// Rows and planes whose distance is a multiple of 1 KiB or more would compete for the same few sets of the first-level
// cache.
WinogradSchedule::Planes::Planes(std::int64_t tiles, std::int64_t row_bytes, int products) {
  row = ceil_div(row_bytes, kLine) * kLine;
  if (row % (16 * kLine) == 0) row += kLine;
  plane = tiles * row;
  if (plane / kLine % 2 == 0) plane += kLine;
  bytes = plane * products;
}

std::int64_t WinogradSchedule::tiles(const Shape& y, int m) {
  return y[0] * ceil_div(y[2], m) * ceil_div(y[3], m);
}

WinogradSchedule::WinogradSchedule(const Shape& x, const Shape& y, int m, const TileKernels& kernels,
                                   int threads, int passes)
    : kernels_(kernels),
      outputs_(m),
      products_((m + 2) * (m + 2)),
      rows_(ceil_div(y[2], m)),
      columns_(ceil_div(y[3], m)),
      count_(tiles(y, m)),
      panels_(kernels, ceil_div(x[1], kernels.step), y[1]) {
  cut(x[1], threads, passes);
}

WinogradSchedule::Place WinogradSchedule::place(std::int64_t tile) const {
  return {tile / (columns_ * rows_), tile / columns_ % rows_ * outputs_, tile % columns_ * outputs_};
}

// Decides how many tiles are in work at a time, and whether each worker takes bands of its own through all stages, in
// its second-level cache, or all workers share one band, stage by stage. Sharing sends the transformed tiles through
// the third-level cache, but reads all weights once per band and not once per worker; it pays where weights are many
// and tiles few. Costs are in bytes that a worker could read from the third-level cache in the time.
void WinogradSchedule::cut(std::int64_t channels, int threads, int passes) {
  const std::int64_t weight_bytes = panels_.bytes() * products_;
  const std::int64_t tile_steps = products_ * panels_.steps * panels_.outputs;
  const std::int64_t input_bytes = channels * 4 / kernels_.step;
  const std::int64_t output_bytes = panels_.outputs * 4;
  const std::int64_t tile_bytes =
      Planes(1, input_bytes, products_).bytes + Planes(1, output_bytes, products_).bytes;
  const std::int64_t all = std::max<std::int64_t>(1, count_);
  const auto product_cost = [&](std::int64_t size) {
    return std::max(weight_bytes, TilePairs(kernels_, size).computed() * (tile_steps / kStepsPerByte));
  };
  std::int64_t best = std::numeric_limits<std::int64_t>::max();
  const auto consider = [&](bool shared, std::int64_t bands) {
    const std::int64_t size = ceil_div(all, bands);
    const std::int64_t cost = shared ? (bands * product_cost(size) + 2 * all * tile_bytes) / threads
                                     : ceil_div(bands, threads) * product_cost(size);
    if (cost >= best) return;
    best = cost;
    shared_ = shared;
    band_ = size;
  };
  const auto fewest_bands = [&](std::int64_t budget) {
    return ceil_div(all, std::max<std::int64_t>(2 * kernels_.strip, budget / tile_bytes));
  };
  const std::int64_t fewest = fewest_bands(kWorkerBytes);
  for (std::int64_t bands = fewest; bands < 2 * (fewest + threads); ++bands) consider(false, bands);
  consider(true, fewest_bands(kSharedBytes));

  pass_panels_ = shared_ ? panels_.count() : ceil_div(panels_.count(), passes);
  workspaces_ = shared_ ? 1 : static_cast<std::size_t>(threads);
  tasks_ = products_ * std::clamp<std::int64_t>(ceil_div(4 * threads, products_), 1, panels_.count());
  v_ = Planes(band_, input_bytes, products_);
  m_ = Planes(band_, std::min(panels_.outputs, pass_panels_ * panels_.panel) * 4, products_);
}

std::int64_t WinogradSchedule::macs() const {
  std::int64_t tiles = 0;
  for (std::int64_t first = 0; first < count_; first += band_) {
    tiles += TilePairs(kernels_, std::min(count_ - first, band_)).computed();
  }
  return tiles * products_ * panels_.steps * panels_.step * panels_.padded_outputs();
}

// Products [begin, end) of a pass, counted through its panels of every product, for all tiles of a band.
void WinogradSchedule::multiply(const std::byte* packed, const std::byte* v, std::byte* m, std::int64_t tiles,
                                const Pass& pass, std::int64_t begin, std::int64_t end) const {
  constexpr std::int32_t kOneSegment = 0;
  TileCall call;
  call.a_stride = v_.row;
  call.segments = &kOneSegment;
  call.segment_count = 1;
  call.run = static_cast<std::int32_t>(panels_.steps);
  call.c_stride = m_.row;
  call.low = Clamp{}.low;
  call.high = Clamp{}.high;
  // The tiles of a panel share the prefetching of the next one.
  const std::int64_t calls = TilePairs(kernels_, tiles).count;
  call.prefetch_step = std::min(kLine, ceil_div(panels_.panel * 4, calls));
  for (std::int64_t i = begin; i < end; ++i) {
    const std::int64_t product = i / pass.panels;
    const std::int64_t panel = pass.first + i % pass.panels;
    call.weights = packed + panel_offset(product, panel);
    const std::int64_t next = i + 1;
    call.prefetch = packed + panel_offset(next / pass.panels, pass.first + next % pass.panels);
    call.columns = panels_.columns(panel);
    call.a[0] = v + product * v_.plane;
    call.c[0] = m + product * m_.plane + (panel - pass.first) * panels_.panel * 4;
    run_tile_row(kernels_, call, tiles);
  }
}

}  // namespace pipit
