#include "layers/cpu/tile/tile_convolution.h"

#include <algorithm>
#include <utility>

#include "engine/base/ceil_div.h"
#include "engine/platform/cache_size.h"
#include "layers/common/layer_kernel.h"
#include "layers/cpu/vector/row_kernels.h"
#include "layers/cpu/work_sharing.h"
#include "layers/ops/reshaping.h"

namespace pipit {

namespace {

constexpr std::int64_t kFloat = sizeof(float);
constexpr std::int64_t kHalf = sizeof(Half);
// The last tasks to finish leave few workers idle.
constexpr std::int64_t kTasksPerThread = 8;
// With so many rows for each worker the last row does not matter.
constexpr std::int64_t kRowsPerThread = 6;
// Time of reading from another core's cache over reading from the shared one: 24 against 18 GB/s (Emerald Rapids).
constexpr double kRemoteCost = 4.0 / 3;

// Tiles of halves read pairs of channels: see ConvInput.
bool multiplies_halves(const TileConvolution::Geometry& geometry) {
  return geometry.input.dtype == DType::f16 && f16_tiles() != nullptr &&
         (geometry.groups == 1 || geometry.input.shape[1] / geometry.groups % 2 == 0);
}

// Weights are widened for a run.
bool widens(const TileConvolution::Geometry& geometry) {
  return geometry.stored || (geometry.input.dtype == DType::f16 && !multiplies_halves(geometry));
}

// The DepthToSpace whose result is computed, or null.
const DepthToSpace* depth_to_space(const TileConvolution::Geometry& geometry) {
  const auto followers = geometry.fusion.followers;
  return followers.empty() ? nullptr : dynamic_cast<const DepthToSpace*>(&followers[0]->layer);
}

Epilogue epilogue_of(const TileConvolution::Geometry& geometry) {
  if (depth_to_space(geometry) != nullptr) return {};
  return {geometry.channel_dim, geometry.fusion.followers};
}

const TileKernels& kernels_of(const TileConvolution::Geometry& geometry) {
  if (multiplies_halves(geometry)) return *f16_tiles();
  return dtype_bytes(geometry.input.dtype) == 1 ? u8s8_tiles() : f32_tiles();
}

}  // namespace

// Half of a core's second-level cache: what a worker may want to keep there.
std::int64_t TileConvolution::cache_budget() {
  return second_level_cache() / 2;
}

ConvInput TileConvolution::input_of(const Geometry& geometry) {
  return ConvInput(geometry.input, geometry.output, geometry.window, geometry.groups,
                   2 * kernels_of(geometry).strip, kernels_of(geometry).element(), geometry.zero_point);
}

bool TileConvolution::copies_long_rows(const Geometry& geometry) {
  constexpr double kMostRowBytes = 1 << 26;
  const int axis = geometry.window.rank - 1;
  const double columns = static_cast<double>(geometry.output[geometry.output.rank() - 1]) *
                             static_cast<double>(geometry.window.stride[static_cast<std::size_t>(axis)]) +
                         static_cast<double>(geometry.window.span(axis));
  const auto pixel = static_cast<double>(geometry.input.shape[1] * kernels_of(geometry).element());
  return columns * pixel > kMostRowBytes;
}

TileConvolution::TileConvolution(const Geometry& geometry, int threads)
    : input_(input_of(geometry)),
      images_(geometry.output[0]),
      channels_(geometry.output[1]),
      height_(geometry.output.rank() == 4 ? geometry.output[2] : 1),
      width_(geometry.output[geometry.output.rank() - 1]),
      input_bytes_(static_cast<std::int64_t>(geometry.input.bytes()) / images_),
      half_(geometry.input.dtype == DType::f16),
      widens_(widens(geometry)),
      threads_(threads),
      adds_(geometry.residual),
      once_(geometry.fusion.overwritten.has_value()),
      epilogue_(epilogue_of(geometry)) {
  const auto segments = static_cast<std::int64_t>(input_.segments().size());
  loop_.kernels = &kernels_of(geometry);
  loop_.panels = TilePanels(*loop_.kernels, segments * input_.run(), channels_ / geometry.groups);
  loop_.groups = geometry.groups;
  loop_.a_group = input_.group_step();
  loop_.segments = input_.segments().data();
  loop_.segment_count = static_cast<std::int32_t>(segments);
  loop_.run = static_cast<std::int32_t>(input_.run());
  loop_.shared.low = geometry.activation.low;
  loop_.shared.high = geometry.activation.high;
  cut(static_cast<std::int64_t>(dtype_bytes(geometry.input.dtype)), threads);
  if (const DepthToSpace* layer = depth_to_space(geometry)) {
    // A row of the output is, pixel after pixel, the outputs for one row of the block: a group of outputs, as tiles see
    // it, that reads the same input as the others.
    block_ = layer->attributes().block;
    loop_.groups = block_;
    loop_.a_group = 0;
    loop_.panels.outputs = channels_ / block_;  // of whole panels: packed they lie as before
  }
  if (multiplies_halves()) loop_.shared.output_type = in_f32() ? TileType::f32 : TileType::f16;
  store_as(geometry, half_ ? kHalf : kFloat, half_ && !in_f32() ? kHalf : kFloat,
           multiplies_halves() ? kHalf : kFloat);
  book_scratch();
}

// Bytes of a result in y and as tiles leave it, and of a residual as they read it.
void TileConvolution::store_as(const Geometry& geometry, std::int64_t stored_bytes,
                               std::int64_t computed_bytes, std::int64_t residual_bytes) {
  const auto apart = static_cast<std::int64_t>(geometry.fusion.row_stride);
  y_pixel_ = apart != 0 ? apart : channels_ * stored_bytes;
  loop_.c_bytes = computed_bytes;
  loop_.residual_bytes = residual_bytes;
  if (block_ > 1) loop_.c_group = width_ * channels_ / block_ * computed_bytes;
}

TileConvolution::TileConvolution(const Geometry& geometry, const float* weights, int threads)
    : TileConvolution(geometry, threads) {
  const std::int64_t taps = geometry.window.taps();
  const std::int64_t channels = geometry.input.shape[1] / geometry.groups;
  if (input_.channels_last()) {
    pack({weights, channels * taps, taps, 1, channels, taps});
  } else {
    pack({weights, channels * taps, 1, 0, channels * taps, 1});
  }
}

TileConvolution::TileConvolution(const Geometry& geometry, const WeightView& weights, int threads)
    : TileConvolution(geometry, threads) {
  pack(weights);
}

TileConvolution::TileConvolution(const Geometry& geometry, std::unique_ptr<const StoredPanels> weights,
                                 int threads)
    : TileConvolution(geometry, threads) {
  stored_ = std::move(weights);
}

void TileConvolution::pack(WeightView weights) {
  packed_ = HostBuffer(static_cast<std::size_t>(loop_.packed_bytes()));
  if (multiplies_halves()) {
    multipliers_.resize(static_cast<std::size_t>(channels_));
    loop_.shared.multiplier = multipliers_.data();
  }
  for (std::int64_t g = 0; g < loop_.groups; ++g) {
    for (std::int64_t p = 0; p < loop_.panels.count(); ++p) {
      std::byte* packed = packed_.data() + g * loop_.panels.bytes();
      if (multiplies_halves()) {
        pack_f16_panel(loop_.panels, p, weights, loop_.kernels->stretch, packed,
                       multipliers_.data() + g * loop_.panels.outputs + p * loop_.panels.panel);
      } else {
        pack_f32_panel(loop_.panels, p, weights, packed);
      }
    }
    weights.data += loop_.panels.outputs * weights.output_stride;
  }
  if (!widens_) return;
  stored_ = std::make_unique<HalfPanels>(loop_.panels, loop_.groups, packed_.data());
  packed_ = HostBuffer();
}

// Scratch behind the copies of the input: results of the bands at work, and residuals, where they are not f32 but
// computed in f32, then f32 weights where they are stored in another form.
void TileConvolution::book_scratch() {
  const int workers = panels_outside_ ? 1 : threads_;
  results_at_ = copy_bytes_ * workers;
  result_bytes_ = 0;
  if (in_f32()) {
    const std::int64_t outputs = band_images_ * band_rows_ * width_ * channels_;
    result_bytes_ = ceil_div(outputs * kFloat, 64) * 64;
  }
  weights_at_ = results_at_ + result_bytes_ * (widens_residual() ? 2 : 1) * workers;
  std::int64_t widened = 0;
  if (widens_) widened = panels_outside_ ? panel_bytes() * threads_ : loop_.packed_bytes();
  scratch_bytes_ = static_cast<std::size_t>(weights_at_ + widened);
}

bool TileConvolution::fuses_epilogue(const Geometry& geometry, const NodeSpec& next) {
  if (fuses_depth_to_space(geometry, next)) return true;
  return depth_to_space(geometry) == nullptr && Epilogue::fuses(geometry.channel_dim, next);
}

bool TileConvolution::fuses_depth_to_space(const Geometry& geometry, const NodeSpec& next) {
  const auto* layer = dynamic_cast<const DepthToSpace*>(&next.layer);
  if (layer == nullptr) return false;
  const DepthToSpaceAttributes& a = layer->attributes();
  const bool plain =
      geometry.groups == 1 && geometry.fusion.followers.empty() && !geometry.residual && !widens(geometry);
  return plain && !a.inverse && !a.column_row_depth &&
         geometry.output[1] / a.block % kernels_of(geometry).panel() == 0 &&
         is_channels_last(next.outputs[0]);
}

bool TileConvolution::computes_pieces(const Geometry& geometry) {
  return geometry.groups == 1 && depth_to_space(geometry) == nullptr && !geometry.residual &&
         !widens(geometry) && dtype_bytes(geometry.input.dtype) > 1 && !input_of(geometry).copied();
}

bool TileConvolution::writes_rows_apart(const Geometry& geometry) {
  return depth_to_space(geometry) == nullptr;
}

bool TileConvolution::overwrites_residual(const Geometry& geometry) {
  const bool half = geometry.input.dtype == DType::f16;
  const bool as_stored = !half || (pipit::multiplies_halves(geometry) && geometry.fusion.followers.empty());
  if (!geometry.residual || !as_stored || geometry.fusion.row_stride != 0) return false;
  // Rows that no whole number of strips covers would end in a small tile each.
  const std::int64_t width = geometry.output[geometry.output.rank() - 1];
  const TileStrips strips(kernels_of(geometry), width);
  return strips.count * strips.size == width || input_of(geometry).evenly_spaced();
}

// Panel `panel`, counted through the groups, as it is kept.
std::span<const std::byte> TileConvolution::kept_panel(std::int64_t panel) const {
  if (stored_) return stored_->kept(panel);
  return {packed_.data() + panel_offset(panel), static_cast<std::size_t>(panel_bytes())};
}

// Two orders. In one each worker takes bands of pixels through all panels, in the other all workers take panels through
// all pixels of one large band. Bands need weights that stay in five eighths of what the worker
// keeps, since every tile reads all of them, and every worker reads them from the shared cache once; panels need each
// weight once, but what one worker wrote the others read, which is slower by the ratio kRemoteCost.
void TileConvolution::cut(std::int64_t element_bytes, int threads) {
  const std::int64_t budget = cache_budget();
  const std::int64_t rows = images_ * height_;
  const std::int64_t weights = loop_.packed_bytes();
  const std::int64_t activations = images_ * (input_bytes_ + height_ * width_ * channels_ * element_bytes);
  const bool even = rows % threads == 0 || rows >= kRowsPerThread * threads;
  panels_outside_ = weights > budget / 8 * 5 ||
                    static_cast<double>(weights) > kRemoteCost * static_cast<double>(activations) || !even;
  // Bands that copy their input copy the rows between them twice.
  const std::int64_t tasks = threads * (input_.copied_rows(1) > 1 ? kTasksPerThread / 2 : kTasksPerThread);
  const std::int64_t most_rows = panels_outside_ ? rows : ceil_div(rows, tasks);
  const std::int64_t fitting = input_.output_rows(budget / input_.copied_row_bytes());
  band_rows_ = std::clamp<std::int64_t>(std::min(most_rows, fitting), 1, height_);
  bands_per_image_ = ceil_div(height_, band_rows_);
  if (!panels_outside_ && images_ % threads != 0) {
    // As many for every worker.
    bands_per_image_ = std::min(height_, ceil_div(bands_per_image_, threads) * threads);
  }
  band_rows_ = ceil_div(height_, bands_per_image_);
  band_images_ = 1;
  if (band_rows_ == height_) {
    const std::int64_t image_bytes = input_.copied_rows(height_) * input_.copied_row_bytes();
    band_images_ = std::clamp<std::int64_t>(std::min(most_rows / height_, budget / image_bytes), 1, images_);
  }
  copy_bytes_ = 0;
  if (input_.copied()) {
    const std::int64_t bytes = band_images_ * input_.copied_rows(band_rows_) * input_.copied_row_bytes();
    copy_bytes_ =
        static_cast<std::int64_t>(worker_stride(static_cast<std::size_t>(bytes + ConvInput::kSlack)));
  }
  splits_ = panels_outside_
                ? std::max<std::int64_t>(1, ceil_div(kTasksPerThread * threads, loop_.panel_count()))
                : 1;
}

TileConvolution::Band TileConvolution::band(std::int64_t index) const {
  const std::int64_t image = index / bands_per_image_ * band_images_;
  const TileRange rows = TileRange{0, height_}.part(index % bands_per_image_, bands_per_image_);
  return {image, std::min(band_images_, images_ - image), rows.begin, rows.size()};
}

std::int64_t TileConvolution::first_output(std::int64_t panel) const {
  return panel / loop_.panels.count() * loop_.panels.outputs +
         panel % loop_.panels.count() * loop_.panels.panel;
}

std::int64_t TileConvolution::panel_offset(std::int64_t panel) const {
  return panel / loop_.panels.count() * loop_.panels.bytes() +
         loop_.panels.offset(panel % loop_.panels.count());
}

}  // namespace pipit
