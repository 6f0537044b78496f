// How a convolution on the tile kernel is cut into work, and what memory that takes. No operands, no arithmetic.
#pragma once

#include <cstddef>
#include <cstdint>

#include "layers/cpu/tile/conv_input.h"

namespace pipit::internal {

/// A range [begin, end).
struct TileRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
  /// Part `index` of `parts` of nearly equal size.
  TileRange part(std::int64_t index, std::int64_t parts) const {
    return {begin + size() * index / parts, begin + size() * (index + 1) / parts};
  }
};

/// Output rows of one image, or of several images all. Slices of a volume are images of their own, as ConvInput counts.
struct ImageBand {
  std::int64_t image = 0;
  std::int64_t images = 1;
  std::int64_t row = 0;
  std::int64_t rows = 0;  ///< of each image
};

/// What there is to do.
struct TileWork {
  std::int64_t images = 1;
  std::int64_t height = 1;
  std::int64_t width = 1;
  std::int64_t channels = 1;       ///< of the output, as are height and width
  std::int64_t input_bytes = 0;    ///< of one image
  std::int64_t element_bytes = 4;  ///< of an output
  std::int64_t weight_bytes = 0;   ///< of all panels as tiles read them
  std::int64_t panels = 1;
  std::int64_t cache_bytes = 0;  ///< what a worker may want to keep in its second-level cache
  int threads = 1;
};

/// Two orders. In one each worker takes bands of pixels through all panels, in the other all workers take panels
/// through all pixels of one large band, a panel in several splits. Bands need weights that stay in five eighths of
/// what the worker keeps, since every tile reads all of them, and every worker reads them from the shared cache once;
/// panels need each weight once, but what one worker wrote the others read, which is slower.
class TileSchedule {
 public:
  TileSchedule(const TileWork& work, const ConvInput& input);

  /// Whether bands are shared out to the workers, or the panels of one band after the other.
  bool shares_bands() const { return !shares_panels_; }
  /// Bands that are in work at a time.
  int bands_at_work() const { return shares_panels_ ? 1 : threads_; }

  std::int64_t bands() const { return images_ / even_images_ * bands_per_group() * bands_per_image_; }
  ImageBand band(std::int64_t index) const;
  std::int64_t first_pixel(const ImageBand& b) const { return (b.image * height_ + b.row) * width_; }
  std::int64_t pixels(const ImageBand& b) const { return b.images * b.rows * width_; }
  /// Pixels of the largest band.
  std::int64_t most_pixels() const { return band_images_ * band_rows_ * width_; }
  /// For a band of `tiles` tiles: how many tasks share a panel where panels are shared out.
  std::int64_t splits(std::int64_t tiles) const { return splits_ < tiles ? splits_ : tiles; }
  /// What a worker may want to keep in its second-level cache.
  std::int64_t cache_bytes() const { return cache_bytes_; }
  /// Bytes of the copy of a band's input; 0: none is made.
  std::int64_t copy_bytes() const { return copy_bytes_; }

 private:
  // Groups of images, of even_images_ images each.
  std::int64_t bands_per_group() const { return (even_images_ + band_images_ - 1) / band_images_; }

  std::int64_t images_, height_, width_;
  std::int64_t even_images_;  // a band holds none beyond them
  std::int64_t cache_bytes_;
  int threads_;
  bool shares_panels_ = false;
  std::int64_t bands_per_image_ = 1;  // of equal size but for one row
  std::int64_t band_rows_ = 0;        // of the largest
  std::int64_t band_images_ = 1;
  std::int64_t splits_ = 1;
  std::int64_t copy_bytes_ = 0;
};

/// Where the memory of a run lies in its scratch: for each band at work the copy of its input, then its results and its
/// residual in f32, where they are not stored so; then f32 weights, where they are kept in another form; then a
/// frame's pixel.
struct TileScratch {
  std::int64_t copy = 0;      ///< bytes of one band's
  std::int64_t results = 0;   ///< the same
  std::int64_t residual = 0;  ///< the same
  std::int64_t weights = 0;   ///< of all panels, or of one where panels are shared out
  std::int64_t frame = 0;     ///< in f32; the same again for it as it is stored
  int bands = 1;              ///< at work
  int panels = 1;             ///< that are widened at a time, or 1 where all are

  std::int64_t copy_at(int worker) const { return worker * copy; }
  std::int64_t results_at(int worker) const { return bands * copy + worker * (results + residual); }
  std::int64_t residual_at(int worker) const { return results_at(worker) + results; }
  std::int64_t weights_at(int worker) const { return results_at(bands) + worker * weights; }
  std::int64_t frame_at() const { return weights_at(panels); }
  std::size_t bytes() const { return static_cast<std::size_t>(frame_at() + 2 * frame); }
};

}  // namespace pipit::internal
