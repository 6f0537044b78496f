// A convolution on the register-tile kernel, as convolutional and fully connected layers use it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/plan/kernel.h"
#include "layers/cpu/elementwise/epilogue.h"
#include "layers/cpu/tile/conv_input.h"
#include "layers/cpu/tile/stored_panels.h"
#include "layers/cpu/tile/tile_loop.h"
#include "layers/ops/clamp.h"
#include "layers/ops/quantization.h"

namespace pipit {

/// INT8 with results in f32: what each output pixel's sums are multiplied by besides the output's multiplier. `step`:
/// from pixel to pixel, 0 or 1. Null: 1.
struct PixelScales {
  const float* data = nullptr;
  std::int64_t step = 0;
};

/// y = clamp(conv(x, w) + bias + residual), then what the epilogue says; computed in f32. x, y and residual are stored
/// as f32, or all as f16: then weights are kept as f16 too, and results are rounded when they are complete. Where there
/// are tiles of halves (f16_tiles()) they multiply x and weights as they are and add up short stretches in halves;
/// elsewhere weights are widened for a run (panel by panel where they do not stay in the cache), and x as it is copied.
/// Or a QConv in INT8, with the bits of its specification, and an epilogue only where its results are f32. No patch
/// matrix: x is read where it lies, or from a copy with borders that stays in the second-level cache. The same bits for
/// any number of threads.
class TileConvolution {
 public:
  struct Geometry {
    TensorDesc input;  ///< [N, C, H, W] or [N, C, W], f32 or f16, or for INT8 i8 or u8, any layout
    Shape output;      ///< [N, O, ...], channels_last in memory, not empty
    Window window;
    std::int64_t groups = 1;
    Clamp activation;
    bool residual = false;  ///< there is one
    int zero_point = 0;     ///< INT8: of the input
    bool stored = false;    ///< weights are StoredPanels
    int channel_dim = 1;    ///< where the outputs are in the layer's own result, for its followers
    Fusion fusion = {};     ///< of which producer and in_place have no meaning
  };

  /// INT8: what layers/ops/qconv.h says of the operands.
  struct Int8 {
    Quantization x, residual, y;
    std::vector<float> multipliers;  ///< [O], see requantization_multipliers()
    std::vector<std::int32_t> bias;  ///< [O], or empty
  };

  /// Weights [O, C / groups, kernel...], row-major. The filters must reach over less than 2 GiB of input
  /// (ConvInput::segments() is not empty).
  TileConvolution(const Geometry& geometry, const float* weights, int threads);
  /// For a kernel of one tap: its weights may lie in any way.
  TileConvolution(const Geometry& geometry, const WeightView& weights, int threads);
  /// Weights that are widened for a run, f32 operands.
  TileConvolution(const Geometry& geometry, std::unique_ptr<const StoredPanels> weights, int threads);
  /// INT8; weights [O, kernel..., C / groups].
  TileConvolution(const Geometry& geometry, Int8 arithmetic, const std::int8_t* weights, int threads);

  TileConvolution(const TileConvolution&) = delete;
  TileConvolution& operator=(const TileConvolution&) = delete;

  /// How `geometry` reads its input.
  static ConvInput input_of(const Geometry& geometry);
  /// Whether a copied row of the input would be padding without end (64 MiB or more).
  static bool copies_long_rows(const Geometry& geometry);

  /// As Candidate has them, with what is in geometry.fusion already. A follower is what an Epilogue takes, or a
  /// DepthToSpace alone.
  static bool fuses_epilogue(const Geometry& geometry, const NodeSpec& next);
  /// For a DepthToSpace (mode DCR) whose rows of the block are whole panels: results go to their places.
  static bool fuses_depth_to_space(const Geometry& geometry, const NodeSpec& next);
  /// One group, f32 or halves that are multiplied as they are, no residual, an input that tiles read where it lies.
  static bool computes_pieces(const Geometry& geometry);
  static bool writes_rows_apart(const Geometry& geometry);
  /// No pixel is computed twice, then.
  static bool overwrites_residual(const Geometry& geometry);

  std::size_t scratch_bytes() const { return scratch_bytes_; }
  /// bias [O] may be null, as it is for INT8 that has one in its sums; so is the residual (laid out like y) where there
  /// is none. y overlaps no operand, but is the residual where that is overwritten.
  void run(const std::byte* x, const float* bias, const std::byte* residual, std::byte* y,
           const RunContext& context, const PixelScales& scales = {}) const;

  /// RowSource's methods, of what computes_pieces().
  std::int64_t piece_channels() const { return loop_.panels.panel; }
  std::size_t piece_scratch_bytes() const;
  void compute_piece(const std::byte* x, const float* bias, std::int64_t image, const TileRange& rows,
                     std::int64_t block, std::byte* y, std::int64_t columns, std::byte* scratch) const;

 private:
  struct Operands {
    const std::byte* x;
    const float* bias;
    const std::byte* residual;
    std::byte* y;
    PixelScales scales;
  };
  // Output rows of one image, or whole images.
  struct Band {
    std::int64_t image;
    std::int64_t images;
    std::int64_t row;
    std::int64_t rows;  // of each image
  };

  static std::int64_t cache_budget();
  TileConvolution(const Geometry& geometry, int threads);
  void pack(WeightView weights);
  void pack(const std::int8_t* weights);
  void start_sums(const Int8& arithmetic, const std::int8_t* weights);
  void cut(std::int64_t element_bytes, int threads);
  std::int64_t bands() const { return (images_ + band_images_ - 1) / band_images_ * bands_per_image_; }
  Band band(std::int64_t index) const;
  void store_as(const Geometry& geometry, std::int64_t stored_bytes, std::int64_t computed_bytes,
                std::int64_t residual_bytes);
  void book_scratch();
  // Halves whose results are computed in f32 before they are stored, and whose residual is made f32 first.
  bool in_f32() const { return half_ && (!multiplies_halves() || !epilogue_.empty()); }
  bool widens_residual() const { return half_ && adds_ && !multiplies_halves(); }
  bool multiplies_halves() const { return loop_.kernels->stretch > 0; }
  std::byte* results(const RunContext& context, int worker) const;
  std::int64_t first_pixel(const Band& b) const { return (b.image * height_ + b.row) * width_; }
  std::int64_t first_element(const Band& b) const { return first_pixel(b) * channels_; }
  std::int64_t pixels(const Band& b) const { return b.images * b.rows * width_; }
  std::int64_t panel_bytes() const { return loop_.panels.steps * loop_.panels.panel * 4; }
  std::span<const std::byte> kept_panel(std::int64_t panel) const;
  void widen_residual(const Operands& operands, const Band& b, std::byte* results, std::int64_t begin,
                      std::int64_t end) const;
  void finish(const Operands& operands, const Band& b, std::byte* results, std::int64_t begin,
              std::int64_t end) const;
  void run_panel(TileBand t, const TileRange& tiles, std::int64_t panel, const std::byte* weights,
                 const float* bias, const std::byte* prefetch = nullptr,
                 std::int64_t prefetch_bytes = 0) const;
  TileBand input_band(const std::byte* x, const Band& b, const std::byte* copied) const;
  void join_rows(TileBand& t) const;
  TileBand tile_band(const Operands& operands, const Band& b, const std::byte* copied,
                     std::byte* results) const;
  void copy(const std::byte* x, const Band& b, std::int64_t begin, std::int64_t end, std::byte* to) const;
  void run_bands(const Operands& operands, const RunContext& context) const;
  void run_panels(const Operands& operands, const RunContext& context) const;
  std::int64_t panel_offset(std::int64_t panel) const;
  std::int64_t first_output(std::int64_t panel) const;

  ConvInput input_;
  TileLoop loop_;
  std::int64_t images_;
  std::int64_t channels_;
  std::int64_t height_;
  std::int64_t width_;
  std::int64_t input_bytes_;  // of one image
  std::int64_t y_pixel_ = 0;  // bytes from pixel to pixel of y
  std::int64_t block_ = 1;  // of the DepthToSpace that y is the output of; then y_pixel_ is that of its input
  bool half_;               // operands are stored as f16
  bool widens_;             // weights, for a run
  int threads_;
  bool adds_;  // there is a residual
  bool once_;  // y is the residual
  Epilogue epilogue_;
  HostBuffer packed_;                           // weights as tiles read them, or
  std::unique_ptr<const StoredPanels> stored_;  // in another form
  std::vector<std::int32_t> sum_bias_;          // INT8
  std::vector<float> multipliers_;
  bool panels_outside_ = false;
  std::int64_t bands_per_image_ = 1;  // of equal size but for one row
  std::int64_t band_rows_ = 0;        // of the largest
  std::int64_t band_images_ = 1;
  std::int64_t splits_ = 1;        // tasks that share a panel
  std::int64_t copy_bytes_ = 0;    // of one band
  std::int64_t result_bytes_ = 0;  // in_f32(): one band's outputs
  std::int64_t results_at_ = 0;    // in the scratch
  std::int64_t weights_at_ = 0;
  std::size_t scratch_bytes_ = 0;
};

}  // namespace pipit
