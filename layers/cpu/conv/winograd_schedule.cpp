#include "layers/cpu/conv/winograd_schedule.h"

#include <cmath>
#include <limits>
#include <utility>

#include "engine/base/ceil_div.h"
#include "layers/ops/clamp.h"

namespace pipit::internal {

namespace {

constexpr std::int64_t kLine = 64;
// Half of a second-level cache of 2 MiB, where products of all outputs lie in it; and what a band may take of the arena
// where all workers share it.
constexpr std::int64_t kWorkerBytes = 1 << 20;
constexpr std::int64_t kSharedBytes = 8 << 20;
constexpr std::int64_t kStepBytes = 4;  // of an output

}  // namespace

template <typename T>
KeptSteps winograd_kept_steps(const TileKernels& kernels, const T* weights, std::int64_t outputs,
                              std::int64_t channels) {
  constexpr std::int64_t kTaps = 9;
  const TilePanels panels(kernels, ceil_div(channels, kernels.step), outputs);
  TilePanels filters = panels;  // the taps of a channel are neighbours
  filters.step *= static_cast<int>(kTaps);
  const std::int64_t row = channels * kTaps;
  const std::vector<std::uint8_t> marks =
      steps_with_weights(filters, 1, WeightsOf<T>{weights, row, 1, 0, row, 1});
  return kept_steps(panels, 1, panels.steps, marks);
}

template KeptSteps winograd_kept_steps(const TileKernels&, const float*, std::int64_t, std::int64_t);
template KeptSteps winograd_kept_steps(const TileKernels&, const std::int8_t*, std::int64_t, std::int64_t);

// Rows and planes whose distance is a multiple of 1 KiB or more would compete for the same few sets of the first-level
// cache.
WinogradSchedule::Planes::Planes(std::int64_t tiles, std::int64_t row_bytes, int products) {
  row = ceil_div(row_bytes, kLine) * kLine;
  if (row % (16 * kLine) == 0) row += kLine;
  plane = tiles * row;
  if (plane / kLine % 2 == 0) plane += kLine;
  bytes = plane * products;
}

WinogradSchedule::WinogradSchedule(const Shape& x, const WinogradTiles& tiles, std::int64_t outputs,
                                   const TileKernels& kernels, KeptSteps kept, int threads, int passes)
    : kernels_(kernels),
      tiles_(tiles),
      panels_(kernels, ceil_div(x[1], kernels.step), outputs),
      kept_(std::move(kept)) {
  for (const std::int32_t start : kept_.all_starts())
    offsets_.push_back(static_cast<std::int32_t>(kStepBytes) * start);
  for (std::int64_t p = 0; p < panels_.count(); ++p)
    panel_calls_.push_back({kept_.offset(p), static_cast<std::int32_t>(kept_.first_start(p)),
                            static_cast<std::int32_t>(kept_.steps(p).starts.size()), panels_.columns(p)});
  cut(x[1], threads, passes);
}

std::int64_t WinogradSchedule::computed(const Band& band) const {
  std::int64_t sum = 0;
  for (int i = 0; i < products(); ++i) sum += TilePairs(kernels_, tiles_.rows(band, i).size()).computed();
  return sum;
}

// Decides how many tiles are in work at a time, and whether each worker takes bands of its own through all stages, in
// its second-level cache, or all workers share one band, stage by stage. Sharing sends the transformed tiles through
// the third-level cache, but reads all weights once per band and not once per worker; it pays where weights are many
// and tiles few. Costs are in bytes that a worker could read from the third-level cache in the time; reading weights
// and multiplying hide each other but for a quarter of the lesser.
void WinogradSchedule::cut(std::int64_t channels, int threads, int passes) {
  const std::int64_t all_weights = kept_.bytes() * products();
  const std::int64_t pixel_steps = kept_.bytes() / kStepBytes;
  const std::int64_t input_bytes = channels * 4 / kernels_.step;
  const std::int64_t output_bytes = panels_.outputs * 4;
  const std::int64_t tile_bytes =
      Planes(1, input_bytes, products()).bytes + Planes(1, output_bytes, products()).bytes;
  const std::int64_t all = std::max<std::int64_t>(1, tiles_.count());
  const auto product_cost = [&](std::int64_t size) {
    const std::int64_t steps = computed(tiles_.band(0, std::min(size, tiles_.count()))) * pixel_steps;
    return std::max(all_weights, steps / kStepsPerByte) + std::min(all_weights, steps / kStepsPerByte) / 4;
  };
  cost_ = std::numeric_limits<std::int64_t>::max();
  const auto consider = [&](bool shared, std::int64_t bands) {
    const std::int64_t size = ceil_div(all, bands);
    const std::int64_t cost = shared ? (bands * product_cost(size) + 2 * all * tile_bytes) / threads
                                     : ceil_div(bands, threads) * product_cost(size);
    if (cost >= cost_) return;
    cost_ = cost;
    shared_ = shared;
    band_ = size;
  };
  const auto fewest_bands = [&](std::int64_t budget) {
    return ceil_div(all, std::max<std::int64_t>(2 * kernels_.strip, budget / tile_bytes));
  };
  const std::int64_t fewest = fewest_bands(kWorkerBytes * passes);
  for (std::int64_t bands = fewest; bands < 2 * (fewest + threads); ++bands) consider(false, bands);
  consider(true, fewest_bands(kSharedBytes));

  pass_panels_ = shared_ ? panels_.count() : ceil_div(panels_.count(), passes);
  workspaces_ = shared_ ? 1 : static_cast<std::size_t>(threads);
  tasks_ = products() * std::clamp<std::int64_t>(ceil_div(4 * threads, products()), 1, panels_.count());
  v_ = Planes(band_, input_bytes, products());
  m_ = Planes(band_, std::min(panels_.outputs, pass_panels_ * panels_.panel) * 4, products());
}

std::int64_t WinogradSchedule::macs() const {
  std::int64_t rows = 0;
  for (std::int64_t first = 0; first < tiles_.count(); first += band_) rows += computed(band_from(first));
  return rows * kept_.bytes() / kStepBytes * panels_.step;
}

// Products [begin, end) of a pass, counted through its panels of every product, for all tiles of a band.
void WinogradSchedule::multiply(const std::byte* packed, const std::byte* v, std::byte* m, const Band& tiles,
                                const Pass& pass, std::int64_t begin, std::int64_t end) const {
  TileCall call;
  call.a_stride = v_.row;
  call.run = kept_.run();
  call.c_stride = m_.row;
  call.low = Clamp{}.low;
  call.high = Clamp{}.high;
  for (std::int64_t i = begin; i < end;) {
    const std::int64_t product = i / pass.panels;
    const std::int64_t product_end = std::min(end, (product + 1) * pass.panels);
    const WinogradTiles::Rows rows = tiles_.rows(tiles, static_cast<int>(product));
    call.a[0] = v + product * v_.plane + rows.begin * v_.row;
    call.c[0] = m + product * m_.plane + rows.begin * m_.row + i % pass.panels * panels_.panel * 4;
    // The tiles of a panel share the prefetching of the next one.
    const std::int64_t calls = std::max<std::int64_t>(1, TilePairs(kernels_, rows.size()).count);
    call.prefetch_step = std::min(kLine, ceil_div(panels_.panel * 4, calls));
    const std::byte* const weights = packed + product * kept_.bytes();
    const PanelCall* const first = panel_calls_.data() + pass.first;
    for (const PanelCall* panel = first + i % pass.panels; i < product_end; ++i, ++panel) {
      call.weights = weights + panel->weights;
      call.prefetch =
          i + 1 < product_end ? weights + panel[1].weights : weights + kept_.bytes() + first->weights;
      call.columns = panel->columns;
      call.segments = offsets_.data() + panel->first_offset;
      call.segment_count = panel->offsets;
      run_tile_row(kernels_, call, rows.size());
      call.c[0] += panels_.panel * 4;
    }
  }
}

}  // namespace pipit::internal
