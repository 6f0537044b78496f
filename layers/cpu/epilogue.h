// Element-wise layers that a kernel applies to its results while they are in the cache (Kernel::absorb).
#pragma once

#include <cstdint>
#include <vector>

#include "engine/half.h"
#include "engine/kernel.h"
#include "layers/binary.h"
#include "layers/cpu/row_kernels.h"
#include "layers/unary.h"

namespace pipit {

/// A batch normalisation with constant parameters: y = x * factors[c] + shifts[c].
struct AffineChannels {
  std::vector<float> factors;
  std::vector<float> shifts;
};
AffineChannels affine_channels(const NodeSpec& batch_norm);

class Epilogue {
 public:
  /// For results in rows along dimension `channel_dim` of the output.
  explicit Epilogue(int channel_dim) : channel_dim_(channel_dim) {}

  /// Appends the layer where it is an element-wise function of one floating-point tensor (Unary), of one and a constant
  /// scalar or one value per channel (Binary), or a batch normalisation; else returns false. `next` as Kernel::absorb
  /// has it. Sums and products with constants that follow each other become one scale and shift.
  bool absorb(const NodeSpec& next);
  bool empty() const { return stages_.empty(); }
  /// y[i] becomes the result for channel first + i, i in [0, span.count), in every row.
  void apply(float* y, std::int64_t first, SpanRows span) const;
  /// The same on halves, through f32 in `stage` [span.count].
  void apply(Half* y, std::int64_t first, const SpanRows& span, float* stage) const;
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
  bool absorb_binary(const NodeSpec& next);
  void append(AffineChannels affine);
  void apply_stages(float* y, std::int64_t first, const SpanRows& span) const;
  bool depends_on_channel() const;

  int channel_dim_;
  std::vector<Stage> stages_;
};

}  // namespace pipit
