#include "layers/cpu/linear/narrow_gemv.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/platform/isa_build.h"
#include "layers/cpu/vector/row_kernels.h"

namespace pipit::internal {

namespace {

constexpr std::int64_t kMaxRows = 16;
// The limit of a panel in f32: a larger one, widened for the tile kernel, leaves the second-level cache before it is
// used.
constexpr std::int64_t kMaxPanelBytes = 1 << 20;
constexpr std::int64_t kMaxPanel = 64;  // outputs

}  // namespace

Refusal NarrowGemv::refuse(const Problem& problem) {
#if PIPIT_ISA_X86
  // Every CPU with AVX2 is expected to have F16C, but it is a feature of its own.
  if (packed_kernels().isa == Isa::avx2 && !cpu_has_f16c()) return "the CPU has no F16C";
#endif
  const bool multiplies = stored_tiles(problem.stored) != nullptr;
  if (multiplies && problem.stored == DType::bf16)
    return "the CPU multiplies bfloat16: tile reads as few bytes for a single row";
  const bool widens_in_cache =
      multiplies || problem.depth * f32_tiles().panel() * std::int64_t{sizeof(float)} <= kMaxPanelBytes;
  if (problem.rows > kMaxRows && widens_in_cache)
    return fmt::format("{} rows, more than {}: decoding the weights for each few would take too long",
                       problem.rows, kMaxRows);
  return std::nullopt;
}

NarrowGemv::NarrowGemv(const Problem& problem, const WeightView& weights, Epilogue epilogue)
    : problem_(problem),
      depth_((problem.depth + kPackedBlock - 1) / kPackedBlock * kPackedBlock),
      kernels_(packed_kernels()),
      panels_(f32_tiles(), depth_, problem.outputs),
      epilogue_(std::move(epilogue)) {
  HostBuffer packed = zeroed_host_buffer(static_cast<std::size_t>(panels_.bytes() / 2));
  const HostBuffer panel(static_cast<std::size_t>(problem.depth * panels_.panel) * sizeof(float));
  WeightView of_panel = weights;
  for (std::int64_t p = 0; p < panels_.count(); ++p) {
    const TilePanels one(f32_tiles(), problem.depth, panels_.columns(p));
    pack_f32_panel(one, 0, of_panel, panel.data());
    narrow_row(reinterpret_cast<const float*>(panel.data()), problem.stored,
               packed.data() + panels_.offset(p) / 2, 0, one.bytes() / 4);
    of_panel.data += panels_.panel * weights.output_stride;
  }
  packed_ = SharedBuffer(std::move(packed));
}

void NarrowGemv::run(const std::byte* x, const float* bias, const std::byte* residual, std::byte* y,
                     const RunContext& context) const {
  auto* rows = reinterpret_cast<float*>(context.scratch);
  for (std::int64_t r = 0; r < problem_.rows; ++r) {
    widen_row(problem_.stored, x, r * problem_.depth, rows + r * depth_, problem_.depth);
    std::fill(rows + r * depth_ + problem_.depth, rows + (r + 1) * depth_, 0.0F);
  }
  context.pool.parallel_for(panels_.count(), [&](std::int64_t panel, int /*worker*/) {
    run_panel(panel, rows, bias, residual, y);
  });
}

void NarrowGemv::run_panel(std::int64_t panel, const float* x, const float* bias, const std::byte* residual,
                           std::byte* y) const {
  alignas(64) float sums[kMaxPackedRows * kMaxPanel];
  alignas(64) float added[kMaxPackedRows * kMaxPanel];
  const std::int64_t first = panel * panels_.panel;
  PackedCall call;
  call.weights = packed_.data() + panels_.offset(panel) / 2;
  call.x_stride = depth_;
  call.depth = depth_;
  call.group = depth_;
  call.y = sums;
  call.y_stride = panels_.panel;
  call.finish.columns = panels_.columns(panel);
  call.finish.bias = bias != nullptr ? bias + first : nullptr;
  call.finish.low = problem_.activation.low;
  call.finish.high = problem_.activation.high;
  const int vectors = f32_tiles().vectors(call.finish.columns);
  const auto& multiply = kernels_.multiply_floats[problem_.stored == DType::bf16 ? 1 : 0];
  // In calls of nearly equal size.
  const std::int64_t calls = (problem_.rows + kernels_.rows - 1) / kernels_.rows;
  for (std::int64_t c = 0; c < calls; ++c) {
    const std::int64_t begin = problem_.rows * c / calls;
    const std::int64_t end = problem_.rows * (c + 1) / calls;
    call.x = x + begin * depth_;
    for (std::int64_t r = begin; residual != nullptr && r < end; ++r) {
      widen_row(problem_.stored, residual, r * problem_.outputs + first, added + (r - begin) * panels_.panel,
                call.finish.columns);
      call.residual = added;
    }
    multiply[end - begin - 1][vectors - 1](call);
    for (std::int64_t r = begin; r < end; ++r) {
      float* row = sums + (r - begin) * panels_.panel;
      if (!epilogue_.empty()) epilogue_.apply(row, first, {call.finish.columns});
      narrow_row(row, problem_.stored, y, r * problem_.outputs + first, call.finish.columns);
    }
  }
}

}  // namespace pipit::internal
