// A convolution on the register-tile kernel, as convolutional and fully connected layers use it.
#pragma once

#include "engine/kernel.h"
#include "layers/clamp.h"
#include "layers/cpu/conv_input.h"
#include "layers/cpu/tile_loop.h"

namespace pipit {

/// y = clamp(conv(x, w) + bias + residual), f32. No patch matrix: x is read where it lies, or from a copy with
/// borders that stays in the second-level cache. The same bits for any number of threads.
class TileConvolution {
 public:
  struct Geometry {
    TensorDesc input;  ///< [N, C, H, W] or [N, C, W], any layout
    Shape output;      ///< [N, O, ...], channels_last in memory, not empty
    Window window;
    std::int64_t groups = 1;
    Clamp activation;
  };

  /// Weights [O, C / groups, kernel...], row-major. The filters must reach over less than 2 GiB of input
  /// (ConvInput::segments() is not empty).
  TileConvolution(const Geometry& geometry, const float* weights, int threads);
  /// For a kernel of one tap: its weights may lie in any way.
  TileConvolution(const Geometry& geometry, const WeightView& weights, int threads);

  TileConvolution(const TileConvolution&) = delete;
  TileConvolution& operator=(const TileConvolution&) = delete;

  /// How `geometry` reads its input.
  static ConvInput input_of(const Geometry& geometry);

  std::size_t scratch_bytes() const { return scratch_bytes_; }
  /// bias [O] and residual (laid out like y) may be null; y overlaps no operand.
  void run(const float* x, const float* bias, const float* residual, float* y,
           const RunContext& context) const;

 private:
  struct Operands {
    const std::byte* x;
    const float* bias;
    const std::byte* residual;
    std::byte* y;
  };
  // Output rows of one image, or whole images.
  struct Band {
    std::int64_t image;
    std::int64_t images;
    std::int64_t row;
    std::int64_t rows;  // of each image
  };

  TileConvolution(const Geometry& geometry, int threads);
  void pack(WeightView weights);
  void cut(int threads);
  std::int64_t bands_per_image() const { return (height_ + band_rows_ - 1) / band_rows_; }
  std::int64_t bands() const { return (images_ + band_images_ - 1) / band_images_ * bands_per_image(); }
  Band band(std::int64_t index) const;
  TileBand tile_band(const Operands& operands, const Band& b, const std::byte* copied) const;
  void copy(const std::byte* x, const Band& b, std::int64_t begin, std::int64_t end, std::byte* to) const;
  void run_bands(const Operands& operands, const RunContext& context) const;
  void run_panels(const Operands& operands, const RunContext& context) const;
  std::int64_t panel_offset(std::int64_t panel) const;

  ConvInput input_;
  TileLoop loop_;
  std::int64_t images_;
  std::int64_t channels_;
  std::int64_t height_;
  std::int64_t width_;
  std::int64_t input_bytes_;  // of one image
  HostBuffer packed_;
  bool panels_outside_ = false;
  std::int64_t band_rows_ = 0;
  std::int64_t band_images_ = 1;
  std::int64_t splits_ = 1;      // tasks that share a panel
  std::int64_t copy_bytes_ = 0;  // of one band
  std::size_t scratch_bytes_ = 0;
};

}  // namespace pipit
