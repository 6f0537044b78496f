// A convolution on the register-tile kernel, as convolutional and fully connected layers use it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/plan/kernel.h"
#include "layers/cpu/elementwise/epilogue.h"
#include "layers/cpu/tile/byte_weights.h"
#include "layers/cpu/tile/conv_input.h"
#include "layers/cpu/tile/kept_steps.h"
#include "layers/cpu/tile/stored_panels.h"
#include "layers/cpu/tile/tile_arithmetic.h"
#include "layers/cpu/tile/tile_loop.h"
#include "layers/cpu/tile/tile_schedule.h"
#include "layers/ops/clamp.h"

namespace pipit::internal {

/// INT8 with results in f32: what each output pixel's sums are multiplied by besides the output's multiplier. `step`:
/// from pixel to pixel, 0 or 1. Null: 1. And where the zero point of the input is found at run time: the padding's
/// value, of i8 plus 128, what sums begin with [O], and the output's multipliers [O] instead of those of the
/// constructor.
struct PixelScales {
  const float* data = nullptr;
  std::int64_t step = 0;
  std::optional<int> padding = {};
  const std::int32_t* sum_bias = nullptr;
  const float* multipliers = nullptr;
};

/// y = clamp(conv(x, w) + bias + residual), then what the epilogue says; computed in f32. x, y and residual are stored
/// as f32, or all as f16 or bf16: then weights are kept so too, and results are rounded when they are complete. Where
/// there are tiles of such elements (stored_tiles()) they multiply x and weights as they are; those of halves add up
/// short stretches in halves. Elsewhere weights are widened for a run (panel by panel where they do not stay in the
/// cache), and x as it is copied.
/// Or a QConv in INT8, with the bits of its specification, and an epilogue only where its results are f32. No patch
/// matrix: x is read where it lies, or from a copy with borders that stays in the second-level cache. The same bits for
/// any number of threads. Steps of K whose weights are zero for a whole panel of outputs are left out (KeptSteps).
class TileConvolution {
 public:
  struct Geometry {
    TensorDesc
        input;  ///< [N, C, D, H, W], [N, C, H, W] or [N, C, W], f32, f16, bf16 or for INT8 i8 or u8, any layout
    Shape output;  ///< [N, O, ...], channels_last in memory, not empty
    Window window;
    std::int64_t groups = 1;
    Clamp activation;
    bool residual = false;  ///< there is one
    int zero_point = 0;     ///< INT8: of the input
    bool stored = false;    ///< weights are StoredPanels
    int channel_dim = 1;    ///< where the outputs are in the layer's own result, for its followers
    Fusion fusion = {};     ///< of which producer and in_place have no meaning
    /// Where `output` is the inside of the result only, which has `height` rows and `width` columns, and before it
    /// `top` rows and `left` columns that read padding alone; no height: `output` is all of it.
    struct Frame {
      std::int64_t height = 0;
      std::int64_t width = 0;
      std::int64_t top = 0;
      std::int64_t left = 0;
    } frame = {};
    bool turned = false;  ///< by turned()
    int parts = 1;        ///< INT8: a weight is the sum of this many values, see SplitWeights
  };
  /// The same with rows and columns exchanged, where there is one column that filters do not reach beyond: in memory
  /// both are equal, and tiles are cut along rows (a convolution of one dimension that a file writes as 2-D).
  static Geometry turned(Geometry geometry);
  /// turned(), and with a frame where filters of one tap have pads: all outputs in the padding are one pixel, which is
  /// computed once (SqueezeNet's last convolution, 60 of 256 outputs).
  static Geometry framed(Geometry geometry);

  /// Weights [O, C / groups, kernel...], row-major. The filters must reach over less than 2 GiB of input
  /// (ConvInput::segments() is not empty).
  TileConvolution(const Geometry& geometry, const float* weights, int threads);
  /// For a kernel of one tap: its weights may lie in any order.
  TileConvolution(const Geometry& geometry, const WeightView& weights, int threads);
  /// Weights that are widened for a run, f32 operands.
  TileConvolution(const Geometry& geometry, std::unique_ptr<const StoredPanels> weights, int threads);
  /// INT8; weights [O, kernel..., C / groups], or of several parts [O][parts][kernel..., C / groups].
  TileConvolution(const Geometry& geometry, ByteArithmetic arithmetic, const std::int8_t* weights,
                  int threads);
  TileConvolution(const Geometry& geometry, ByteArithmetic arithmetic, const ByteWeights& weights,
                  int threads);

  /// The share of the layer's multiply-accumulates that a convolution with these weights is left with.
  static double kept_share(const Geometry& geometry, const float* weights);
  static double kept_share(const Geometry& geometry, const WeightView& weights);
  /// The steps that it would be left with, in INT8 with their tiles.
  static KeptForTiles kept_steps(const Geometry& geometry, const std::int8_t* weights);
  static KeptSteps kept_steps(const Geometry& geometry, const float* weights);
  static KeptSteps kept_steps(const Geometry& geometry, const WeightView& weights);
  double kept_share() const { return kept_.share(); }
  /// The work of run(), as Kernel has it.
  KernelWork work() const;
  std::size_t packed_bytes() const { return weights_->bytes(); }
  /// INT8: what sums begin with [O].
  std::span<const std::int32_t> sum_bias() const { return arithmetic_.sum_bias; }
  std::span<const float> multipliers() const { return arithmetic_.multipliers; }

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
  static bool writes_strided_rows(const Geometry& geometry);
  /// No pixel is computed twice, then.
  static bool overwrites_residual(const Geometry& geometry);

  std::size_t scratch_bytes() const { return scratch_.bytes(); }
  /// bias [O] may be null, as it is for INT8 that has one in its sums; so is the residual (laid out like y) where there
  /// is none. y overlaps no operand, but is the residual where that is overwritten.
  void run(const std::byte* x, const float* bias, const std::byte* residual, std::byte* y,
           const RunContext& context, const PixelScales& scales = {}) const;

  /// RowSource's methods, of what computes_pieces().
  std::int64_t piece_channels() const { return panels_.panel; }
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
  // A band at work: what its results, and its residual in f32, are written to where they are not in y or as they come.
  struct Stage {
    std::byte* copied = nullptr;
    std::byte* results = nullptr;
    std::byte* residual = nullptr;
  };

  // What the other members are made of.
  struct Parts {
    ConvInput input;
    TileArithmetic arithmetic;
    TilePanels panels;
    KeptSteps kept;
  };
  static Parts float_parts(const Geometry& geometry, const WeightView* weights);
  static Parts byte_parts(const Geometry& geometry, ByteArithmetic arithmetic, const ByteWeights& weights);
  TileConvolution(const Geometry& geometry, Parts parts, int threads);
  std::vector<std::int32_t> offsets() const;
  TileLoop loop_of(const Geometry& geometry) const;
  TileWork work_of(const Geometry& geometry, int threads) const;
  TileScratch book_scratch(bool widens_weights, int threads) const;
  void pack(const Geometry& geometry, const WeightView& weights);

  Stage stage(const RunContext& context, int worker) const;
  void widen_residual(const Operands& operands, const ImageBand& b, const Stage& stage,
                      const TileRange& pixels) const;
  void finish(const Operands& operands, const ImageBand& b, const Stage& stage,
              const TileRange& pixels) const;
  void finish_rows(float* sums, std::byte* y, std::int64_t rows) const;
  void compute_frame(const RunContext& context, const TileRange& panels, const float* bias) const;
  void copy_frame(std::byte* y, const RunContext& context) const;
  std::byte* pixel_of_y(std::byte* y, const ImageBand& b, std::int64_t pixel) const;
  TileBand input_band(const std::byte* x, const ImageBand& b, const std::byte* copied) const;
  void join_rows(TileBand& t) const;
  TileBand tile_band(const Operands& operands, const ImageBand& b, const Stage& stage) const;
  void copy(const Operands& operands, const ImageBand& b, const TileRange& rows, std::byte* to) const;
  void run_bands(const Operands& operands, const RunContext& context) const;
  void run_panels(const Operands& operands, const RunContext& context) const;
  void run_panel(const TileBand& t, const TileRange& tiles, bool alone, std::int64_t panel, const float* bias,
                 std::byte* widened) const;

  std::int64_t channels_;
  std::int64_t width_;
  std::int64_t images_;  // as ConvInput counts them
  std::int64_t height_;
  Geometry::Frame frame_;
  std::int64_t y_pixel_;  // bytes from pixel to pixel of y
  std::int64_t y_row_;
  std::int64_t y_image_;
  std::int64_t block_ = 1;  // of the DepthToSpace that y is the output of; then y_pixel_ is that of its input
  bool adds_;               // there is a residual
  bool once_;               // y is the residual
  ConvInput input_;
  std::vector<std::byte> padding_;  // a pixel, where there is a frame
  TileArithmetic arithmetic_;
  Epilogue epilogue_;
  TilePanels panels_;  // of one group of the convolution, as weights are packed
  KeptSteps kept_;
  std::vector<std::int32_t> offsets_;  // of kept_.all_starts() from a pixel, in bytes
  TileLoop loop_;
  TileSchedule schedule_;
  TileScratch scratch_;
  std::unique_ptr<const StoredPanels> weights_;
};

}  // namespace pipit::internal
