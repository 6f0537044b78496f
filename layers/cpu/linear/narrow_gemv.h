// Fully connected layers of few rows in fp16 and bf16.
#pragma once

#include <cstdint>

#include "engine/graph/dtype.h"
#include "engine/graph/shared_buffer.h"
#include "engine/plan/kernel.h"
#include "engine/plan/registry.h"
#include "layers/cpu/elementwise/epilogue.h"
#include "layers/cpu/tile/packed_kernel.h"
#include "layers/cpu/tile/tile_pack.h"
#include "layers/ops/clamp.h"

namespace pipit::internal {

/// y = clamp(x w + bias + residual), then what the epilogue says, where x, y and the residual are rows of f16 or bf16
/// that follow each other. Weights are kept in this type and decoded in registers, sums are f32: such a layer takes as
/// long as reading its weights.
class NarrowGemv {
 public:
  struct Problem {
    std::int64_t rows = 0;
    std::int64_t depth = 0;
    std::int64_t outputs = 0;
    Clamp activation;
    DType stored = DType::f16;  ///< or bf16
  };

  NarrowGemv(const Problem& problem, const WeightView& weights, Epilogue epilogue);

  /// Why another kernel is better; nothing where this one is to be used.
  static Refusal refuse(const Problem& problem);

  std::size_t scratch_bytes() const {
    return static_cast<std::size_t>(problem_.rows * depth_) * sizeof(float);
  }
  /// The work of run(), as Kernel has it.
  KernelWork work() const {
    return {problem_.rows * depth_ * panels_.padded_outputs(), Products::fp32, f32_tiles().isa};
  }
  std::size_t packed_bytes() const { return packed_.bytes(); }
  /// bias [outputs] and the residual may be null.
  void run(const std::byte* x, const float* bias, const std::byte* residual, std::byte* y,
           const RunContext& context) const;

 private:
  void run_panel(std::int64_t panel, const float* x, const float* bias, const std::byte* residual,
                 std::byte* y) const;

  Problem problem_;
  std::int64_t depth_;  // filled up with zeros to whole blocks
  const PackedKernels& kernels_;
  TilePanels panels_;
  SharedBuffer packed_;
  Epilogue epilogue_;
};

}  // namespace pipit::internal
