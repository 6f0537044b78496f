// Cubic and antialiased resizing, axis by axis, those that shrink first.
#include "layers/ops/resize.h"

#include <algorithm>
#include <vector>

#include "engine/platform/simd.h"
#include "layers/common/layer_kernel.h"
#include "layers/cpu/families.h"
#include "layers/cpu/work_sharing.h"
#include "layers/ops/operands.h"

namespace pipit::internal {

namespace {

PIPIT_INLINE inline void add_scaled_row(const float* x, float weight, float* y, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) y[i] += weight * x[i];
}

Refusal refuse_filtered_resize(const NodeSpec& spec) {
  if (Refusal reason = refuse_unless_f32(spec)) return reason;
  if (!is_filtered(layer_as<Resize>(spec.layer).attributes()))
    return "only cubic and antialiased mixes are computed";
  const TensorDesc& x = *spec.inputs[0];
  const TensorDesc& y = spec.outputs[0];
  if (!(is_channels_last(x) && is_channels_last(y)) && !(is_row_major(x) && is_row_major(y)))
    return "input and output must have one layout";
  return std::nullopt;
}

class FilteredResize final : public Kernel {
 public:
  explicit FilteredResize(const NodeSpec& spec) {
    const ResizeAttributes& a = layer_as<Resize>(spec.layer).attributes();
    const Shape& x = spec.inputs[0]->shape;
    const Shape& y = spec.outputs[0].shape;
    const bool by_rows = is_row_major(*spec.inputs[0]) && is_row_major(spec.outputs[0]);
    std::vector<int> memory;  // axes as they lie in memory
    for (int axis = 0; axis < a.rank; ++axis) {
      if (by_rows || axis != 1) memory.push_back(axis);
    }
    if (!by_rows) memory.push_back(1);
    std::vector<int> order;  // axes as they are resized
    for (const int axis : memory) {
      if (resizes_axis(a, axis, x[axis])) order.push_back(axis);
    }
    const auto growth = [&](int axis) { return static_cast<double>(y[axis]) / static_cast<double>(x[axis]); };
    std::stable_sort(order.begin(), order.end(), [&](int l, int r) { return growth(l) < growth(r); });
    std::vector<std::int64_t> extents;
    for (const int axis : memory) extents.push_back(x[axis]);
    for (const int axis : order) {
      const std::size_t place =
          static_cast<std::size_t>(std::find(memory.begin(), memory.end(), axis) - memory.begin());
      Pass pass;
      for (std::size_t d = 0; d < extents.size(); ++d) {
        if (d < place) pass.outer *= extents[d];
        if (d > place) pass.inner *= extents[d];
      }
      pass.extent = x[axis];
      for (std::int64_t i = 0; i < y[axis]; ++i) pass.add(resize_taps(a, axis, i, x[axis], y[axis]));
      extents[place] = y[axis];
      passes_.push_back(std::move(pass));
    }
    for (std::size_t p = 0; p + 1 < passes_.size(); ++p)
      between_[p % 2] =
          std::max(between_[p % 2], passes_[p].outer * passes_[p].positions() * passes_[p].inner);
  }

  std::size_t scratch_bytes() const override {
    return static_cast<std::size_t>(aligned(between_[0]) + between_[1]) * sizeof(float);
  }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const float* from = inputs[0].as<float>();
    float* y = outputs[0].as<float>();
    if (outputs[0].desc.elements() == 0) return;
    if (passes_.empty()) std::copy_n(from, outputs[0].desc.elements(), y);
    auto* scratch = reinterpret_cast<float*>(context.scratch);
    for (std::size_t p = 0; p < passes_.size(); ++p) {
      float* to = p + 1 == passes_.size() ? y : p % 2 == 0 ? scratch : scratch + aligned(between_[0]);
      run_pass(passes_[p], from, to, context.pool);
      from = to;
    }
  }

 private:
  struct Pass {
    std::int64_t outer = 1, extent = 1, inner = 1;
    std::vector<std::int64_t> first;  // input position of every position
    std::vector<std::size_t> begin{0};
    std::vector<float> weights;  // of position i from begin[i] on

    std::int64_t positions() const { return std::ssize(first); }
    void add(const ResizeTaps& taps) {
      first.push_back(taps.first);
      for (const double weight : taps.weights) weights.push_back(static_cast<float>(weight));
      begin.push_back(weights.size());
    }
  };

  static std::int64_t aligned(std::int64_t floats) { return (floats + 15) / 16 * 16; }

  static void run_pass(const Pass& pass, const float* x, float* y, ThreadPool& pool) {
    const std::int64_t row = pass.inner;
    const std::int64_t step = rows_per_chunk(row);
    parallel_chunks(pool, pass.outer * pass.positions(), step, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        const auto i = static_cast<std::size_t>(r % pass.positions());
        const float* source = x + (r / pass.positions() * pass.extent + pass.first[i]) * row;
        float* target = y + r * row;
        if (row == 1) {
          float sum = 0;
          for (std::size_t w = pass.begin[i]; w < pass.begin[i + 1]; ++w) {
            if (pass.weights[w] != 0) sum += pass.weights[w] * source[w - pass.begin[i]];
          }
          *target = sum;
          continue;
        }
        std::fill_n(target, row, 0.0F);
        for (std::size_t w = pass.begin[i]; w < pass.begin[i + 1]; ++w, source += row) {
          if (pass.weights[w] != 0) simd<add_scaled_row>(source, pass.weights[w], target, row);
        }
      }
    });
  }

  std::vector<Pass> passes_;
  std::int64_t between_[2] = {};
};

}  // namespace

void register_cpu_filtered_resize(Registry& registry) {
  registry.add(Resize::kType, DeviceKind::cpu, {"filtered", refuse_filtered_resize, [](const NodeSpec& spec) {
                                                  return std::make_unique<FilteredResize>(spec);
                                                }});
}

}  // namespace pipit::internal
