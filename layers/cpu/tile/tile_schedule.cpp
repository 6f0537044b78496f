#include "layers/cpu/tile/tile_schedule.h"

#include <algorithm>

#include "engine/base/ceil_div.h"
#include "layers/cpu/work_sharing.h"

namespace pipit::internal {

namespace {

// The last tasks to finish leave few workers idle.
constexpr std::int64_t kTasksPerThread = 8;
// With this many rows for each worker the last row does not matter.
constexpr std::int64_t kRowsPerThread = 6;
// Time of reading from another core's cache over reading from the shared one: 24 against 18 GB/s (Emerald Rapids).
constexpr double kRemoteCost = 4.0 / 3;

}  // namespace

TileSchedule::TileSchedule(const TileWork& work, const ConvInput& input)
    : images_(work.images),
      height_(work.height),
      width_(work.width),
      even_images_(input.even_images()),
      cache_bytes_(work.cache_bytes),
      threads_(work.threads) {
  const std::int64_t rows = images_ * height_;
  const std::int64_t activations =
      images_ * (work.input_bytes + height_ * width_ * work.channels * work.element_bytes);
  const bool even = rows % threads_ == 0 || rows >= kRowsPerThread * threads_;
  shares_panels_ = work.weight_bytes > cache_bytes_ / 8 * 5 ||
                   static_cast<double>(work.weight_bytes) > kRemoteCost * static_cast<double>(activations) ||
                   !even;
  // Bands that copy their input copy the rows between them twice.
  const std::int64_t tasks = threads_ * (input.copied_rows(1) > 1 ? kTasksPerThread / 2 : kTasksPerThread);
  const std::int64_t most_rows = shares_panels_ ? rows : ceil_div(rows, tasks);
  const std::int64_t fitting = input.output_rows(cache_bytes_ / input.copied_row_bytes());
  band_rows_ = std::clamp<std::int64_t>(std::min(most_rows, fitting), 1, height_);
  bands_per_image_ = ceil_div(height_, band_rows_);
  if (!shares_panels_ && images_ % threads_ != 0) {
    // As many for every worker.
    bands_per_image_ = std::min(height_, ceil_div(bands_per_image_, threads_) * threads_);
  }
  band_rows_ = ceil_div(height_, bands_per_image_);
  if (band_rows_ == height_) {
    const std::int64_t image_bytes = input.copied_rows(height_) * input.copied_row_bytes();
    band_images_ =
        std::clamp<std::int64_t>(std::min(most_rows / height_, cache_bytes_ / image_bytes), 1, even_images_);
  }
  if (input.copied()) {
    const std::int64_t bytes = band_images_ * input.copied_rows(band_rows_) * input.copied_row_bytes();
    copy_bytes_ =
        static_cast<std::int64_t>(worker_stride(static_cast<std::size_t>(bytes + ConvInput::kSlack)));
  }
  if (shares_panels_) splits_ = std::max<std::int64_t>(1, ceil_div(kTasksPerThread * threads_, work.panels));
}

ImageBand TileSchedule::band(std::int64_t index) const {
  const std::int64_t images = index / bands_per_image_;
  const std::int64_t first = images % bands_per_group() * band_images_;  // of the group
  const TileRange rows = TileRange{0, height_}.part(index % bands_per_image_, bands_per_image_);
  return {images / bands_per_group() * even_images_ + first, std::min(band_images_, even_images_ - first),
          rows.begin, rows.size()};
}

}  // namespace pipit::internal
