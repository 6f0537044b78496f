// GridSample: the elements that a position mixes and their weights are found once for all channels.
#include "layers/ops/grid_sample.h"

#include <algorithm>

#include "layers/common/layer_kernel.h"
#include "layers/cpu/families.h"
#include "layers/cpu/work_sharing.h"
#include "layers/ops/operands.h"

namespace pipit::internal {

namespace {

// Positions that are mixed before the next channel.
constexpr std::int64_t kPositions = 64;

Refusal refuse_grid_sample(const NodeSpec& spec) {
  if (Refusal reason = refuse_unless_f32(spec)) return reason;
  return refuse_unless_row_major(spec);
}

class GridSampler final : public Kernel {
 public:
  explicit GridSampler(const NodeSpec& spec)
      : a_(layer_as<GridSample>(spec.layer).attributes()), x_(spec.inputs[0]->shape), threads_(spec.threads) {
    for (int d = 2; d < x_.rank(); ++d) {
      plane_ *= x_[d];
      corners_ *= max_grid_taps(a_.mode);
    }
    for (int d = 2; d < x_.rank(); ++d) positions_ *= spec.outputs[0].shape[d];
  }

  std::size_t scratch_bytes() const override { return worker_bytes() * static_cast<std::size_t>(threads_); }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const std::int64_t chunks = (positions_ + kPositions - 1) / kPositions;
    context.pool.parallel_for(x_[0] * chunks, [&](std::int64_t task, int worker) {
      const std::int64_t sample = task / chunks;
      const std::int64_t first = task % chunks * kPositions;
      const std::int64_t count = std::min(kPositions, positions_ - first);
      std::byte* memory = context.scratch + static_cast<std::size_t>(worker) * worker_bytes();
      Corners corners;
      corners.offsets = reinterpret_cast<std::int64_t*>(memory);
      corners.weights = reinterpret_cast<float*>(corners.offsets + kPositions * corners_);
      const float* grid = inputs[1].as<float>() + (sample * positions_ + first) * (x_.rank() - 2);
      for (std::int64_t p = 0; p < count; ++p) find_corners(grid + p * (x_.rank() - 2), corners, p);
      for (std::int64_t c = 0; c < x_[1]; ++c) {
        const float* x = inputs[0].as<float>() + (sample * x_[1] + c) * plane_;
        float* y = outputs[0].as<float>() + (sample * x_[1] + c) * positions_ + first;
        for (std::int64_t p = 0; p < count; ++p) {
          float sum = 0;
          for (std::int64_t k = p * corners_; k < p * corners_ + corners.count[p]; ++k)
            sum += corners.weights[k] * x[corners.offsets[k]];
          y[p] = sum;
        }
      }
    });
  }

 private:
  struct Corners {
    std::int64_t* offsets = nullptr;  // [positions][corners_]
    float* weights = nullptr;         // likewise
    std::int64_t count[kPositions] = {};
  };

  std::size_t worker_bytes() const {
    return worker_stride(static_cast<std::size_t>(kPositions * corners_) *
                         (sizeof(std::int64_t) + sizeof(float)));
  }

  void find_corners(const float* position, Corners& corners, std::int64_t p) const {
    std::int64_t* offsets = corners.offsets + p * corners_;
    float* weights = corners.weights + p * corners_;
    std::int64_t count = 1;
    offsets[0] = 0;
    weights[0] = 1;
    std::int64_t step = 1;
    for (int d = x_.rank() - 1; d >= 2; --d) {
      const GridTaps taps = grid_taps(a_, position[x_.rank() - 1 - d], x_[d]);
      // From the last tap on, as the first one replaces what the others are made of.
      for (int tap = taps.count - 1; tap >= 0; --tap) {
        const auto t = static_cast<std::size_t>(tap);
        for (std::int64_t k = 0; k < count; ++k) {
          offsets[tap * count + k] = offsets[k] + taps.index[t] * step;
          weights[tap * count + k] = weights[k] * taps.weight[t];
        }
      }
      count *= taps.count;
      step *= x_[d];
    }
    corners.count[p] = count;
  }

  GridSampleAttributes a_;
  Shape x_;
  int threads_;
  std::int64_t plane_ = 1;
  std::int64_t positions_ = 1;
  std::int64_t corners_ = 1;
};

}  // namespace

void register_cpu_grid_sample(Registry& registry) {
  registry.add(GridSample::kType, DeviceKind::cpu, {"corners", refuse_grid_sample, [](const NodeSpec& spec) {
                                                      return std::make_unique<GridSampler>(spec);
                                                    }});
}

}  // namespace pipit::internal
