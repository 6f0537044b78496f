// Element-wise layers that a kernel applies to its results while they are in the cache (Candidate::fuses_epilogue).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/graph/half.h"
#include "engine/plan/kernel.h"
#include "layers/cpu/vector/row_kernels.h"
#include "layers/ops/binary.h"
#include "layers/ops/unary.h"

namespace pipit::internal {

/// A batch normalization with constant parameters: y = x * factors[c] + shifts[c].
struct AffineChannels {
  std::vector<float> factors;
  std::vector<float> shifts;
};
AffineChannels affine_channels(const NodeSpec& batch_norm);

class Epilogue {
 public:
  /// An epilogue that does nothing.
  Epilogue() = default;
  /// The epilogue of layers that fuses() accepts, for results in rows along dimension `channel_dim` of the output. Sums
  /// and products with constants that follow each other become one scale and shift.
  Epilogue(int channel_dim, std::span<const NodeSpec* const> layers);

  /// Whether the layer is an element-wise function of one floating-point tensor (Unary), of one and a constant scalar
  /// or one value per channel (Binary), a batch normalization or the 1x1 convolution that one becomes. `next` as
  /// Candidate::fuses_epilogue has it.
  static bool fuses(int channel_dim, const NodeSpec& next);
  /// Whether a layer that fuses() accepts may compute something else for every channel.
  static bool depends_on_channels(const NodeSpec& next);
  bool empty() const { return stages_.empty(); }
  /// y[i] becomes the result for channel first + i, i in [0, span.count), in every row.
  void apply(float* y, std::int64_t first, SpanRows span) const;
  /// The same on Half or BFloat16, through f32 in `stage` [span.count].
  template <typename T>
  void apply(T* y, std::int64_t first, const SpanRows& span, float* stage) const;
  /// apply() for all of a result of whole rows of `channels`, in parallel.
  void apply_all(float* y, std::int64_t elements, std::int64_t channels, ThreadPool& pool) const;

 private:
  enum class Kind : std::uint8_t { unary, binary, affine };
  struct Stage {
    Kind kind = Kind::unary;
    UnaryAttributes unary;
    BinaryAttributes binary;
    bool swapped = false;       // the constant is the first operand
    std::int64_t step = 0;      // of the constant from channel to channel
    std::vector<float> values;  // of the constant; affine: the factors
    std::vector<float> shifts;  // affine
  };
  void append_binary(int channel_dim, const NodeSpec& next);
  void append(AffineChannels affine);
  void apply_stages(float* y, std::int64_t first, const SpanRows& span) const;
  bool depends_on_channel() const;

  std::vector<Stage> stages_;
};

/// Candidate::fuses_epilogue of kernels that apply an Epilogue to results in rows along dimension 1.
bool fuses_image_epilogue(const NodeSpec& spec, const NodeSpec& next);
/// And along the last dimension.
bool fuses_matrix_epilogue(const NodeSpec& spec, const NodeSpec& next);

}  // namespace pipit::internal
