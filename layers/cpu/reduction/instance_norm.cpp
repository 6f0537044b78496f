// Instance and group normalization: plane by plane (row_major), or by rows of channels (channels_last).
#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/base/ceil_div.h"
#include "engine/platform/simd.h"
#include "layers/common/layer_kernel.h"
#include "layers/cpu/elementwise/epilogue.h"
#include "layers/cpu/families.h"
#include "layers/cpu/vector/reductions.h"
#include "layers/cpu/vector/row_kernels.h"
#include "layers/cpu/work_sharing.h"
#include "layers/ops/normalization.h"
#include "layers/ops/operands.h"

namespace pipit {

namespace {

std::int64_t positions(const Shape& shape) {
  std::int64_t count = 1;
  for (int d = 2; d < shape.rank(); ++d) count *= shape[d];
  return count;
}

// ---- planes: those of a group follow each other

PIPIT_INLINE inline void normalize_span(const float* x, float mean, float factor, float bias, float* y,
                                        std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) y[i] = (x[i] - mean) * factor + bias;
}

Refusal refuse_planes(const NodeSpec& spec) {
  if (Refusal reason = refuse_unless_f32(spec)) return reason;
  return refuse_unless_row_major(spec);
}

void run_planes(const InstanceNorm& layer, std::span<const ConstTensorView> inputs,
                std::span<const TensorView> outputs, const RunContext& context) {
  const TensorDesc& desc = inputs[0].desc;
  if (desc.elements() == 0) return;
  const float* x = inputs[0].as<float>();
  const float* scale = inputs[1].as<float>();
  const float* bias = inputs[2].as<float>();
  float* y = outputs[0].as<float>();
  const std::int64_t channels = desc.shape[1], spatial = positions(desc.shape);
  const std::int64_t of_group = channels_of_group(layer.attributes(), desc.shape);
  context.pool.parallel_for(desc.shape[0] * channels / of_group, [&](std::int64_t group, int) {
    const std::int64_t first = group * of_group;
    const SpanMoments m = moments_of(x + first * spatial, of_group * spatial, layer.attributes().epsilon);
    for (std::int64_t plane = first; plane < first + of_group; ++plane) {
      const std::int64_t c = plane % channels;
      simd<normalize_span>(x + plane * spatial, m.mean, m.inverse_deviation * scale[c], bias[c],
                           y + plane * spatial, spatial);
    }
  });
}

// ---- rows: x is read for the sums of its channels and once more for the results

Refusal refuse_rows(const NodeSpec& spec) {
  if (Refusal reason = refuse_unless_f32(spec)) return reason;
  if (!is_channels_last(*spec.inputs[0]) || !is_channels_last(spec.outputs[0]))
    return "x and y must be channels_last";
  return std::nullopt;
}

constexpr std::int64_t kLanes = 32;  // channels whose sums are in registers

struct Sums {
  const float* x;
  std::int64_t rows, channels;
  const float*
      origin;   // per channel, near the mean: what is left when it is taken off loses no digits in squares
  float* sums;  // per channel, of x - origin
  float* squares;
};

template <bool All>
PIPIT_INLINE inline void sum_lanes(const Sums& job, std::int64_t first, std::int64_t lanes) {
  float sum[kLanes] = {}, square[kLanes] = {}, origin[kLanes];
  const std::int64_t count = All ? kLanes : lanes;
  for (std::int64_t i = 0; i < count; ++i) origin[i] = job.origin[first + i];
  for (std::int64_t r = 0; r < job.rows; ++r) {
    const float* x = job.x + r * job.channels + first;
    for (std::int64_t i = 0; i < count; ++i) {
      const float d = x[i] - origin[i];
      sum[i] += d;
      square[i] += d * d;
    }
  }
  for (std::int64_t i = 0; i < count; ++i) {
    job.sums[first + i] = sum[i];
    job.squares[first + i] = square[i];
  }
}

PIPIT_INLINE inline void sum_rows(const Sums& job) {
  std::int64_t c = 0;
  for (; c + kLanes <= job.channels; c += kLanes) sum_lanes<true>(job, c, kLanes);
  if (c < job.channels) sum_lanes<false>(job, c, job.channels - c);
}

class InstanceNormRows final : public Kernel {
 public:
  explicit InstanceNormRows(const NodeSpec& spec)
      : epsilon_(layer_as<InstanceNorm>(spec.layer).attributes().epsilon),
        images_(spec.inputs[0]->shape[0]),
        channels_(spec.inputs[0]->shape[1]),
        of_group_(channels_of_group(layer_as<InstanceNorm>(spec.layer).attributes(), spec.inputs[0]->shape)),
        positions_(positions(spec.inputs[0]->shape)),
        chunk_rows_(std::max(kFewRows, rows_per_chunk(channels_))),
        chunks_(ceil_div(positions_, chunk_rows_)),
        epilogue_(1, spec.fusion.followers) {}
  // Of every image an origin, then sums and squares of every chunk, of which the first become factors and shifts.
  std::size_t scratch_bytes() const override {
    return static_cast<std::size_t>(images_ * image_floats()) * sizeof(float);
  }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    if (images_ * channels_ * positions_ == 0) return;
    const float* x = inputs[0].as<float>();
    float* y = outputs[0].as<float>();
    auto* scratch = reinterpret_cast<float*>(context.scratch);
    context.pool.parallel_for(images_, [&](std::int64_t image, int) {
      find_origin(x + image * positions_ * channels_, scratch + image * image_floats());
    });
    for_each_chunk(
        context.pool, [&](std::int64_t image, std::int64_t chunk, std::int64_t begin, std::int64_t rows) {
          float* of_image = scratch + image * image_floats();
          float* sums = of_image + (1 + 2 * chunk) * channels_;
          simd<sum_rows>({x + begin * channels_, rows, channels_, of_image, sums, sums + channels_});
        });
    context.pool.parallel_for(images_, [&](std::int64_t image, int) {
      find_factors(scratch + image * image_floats(), inputs[1].as<float>(), inputs[2].as<float>());
    });
    for_each_chunk(context.pool, [&](std::int64_t image, std::int64_t, std::int64_t begin,
                                     std::int64_t rows) {
      const float* factors = scratch + image * image_floats() + channels_;
      const SpanRows span{channels_, rows, channels_};
      row_kernels().affine(x + begin * channels_, factors, factors + channels_, y + begin * channels_, span);
      epilogue_.apply(y + begin * channels_, 0, span);
    });
  }

 private:
  // Fewer would leave much to add up, of wide images.
  static constexpr std::int64_t kFewRows = 32;

  std::int64_t image_floats() const { return (1 + 2 * chunks_) * channels_; }

  // Chunks do not depend on the number of threads, so that sums do not.
  template <typename Body>
  void for_each_chunk(ThreadPool& pool, const Body& body) const {
    pool.parallel_for(images_ * chunks_, [&](std::int64_t task, int) {
      const std::int64_t image = task / chunks_, chunk = task % chunks_, first = chunk * chunk_rows_;
      body(image, chunk, image * positions_ + first, std::min(chunk_rows_, positions_ - first));
    });
  }

  // The mean of the first rows.
  void find_origin(const float* x, float* origin) const {
    const std::int64_t rows = std::min(kFewRows, positions_);
    float* sums = origin + channels_;
    std::fill_n(origin, channels_, 0.0F);
    simd<sum_rows>({x, rows, channels_, origin, sums, sums + channels_});
    for (std::int64_t c = 0; c < channels_; ++c) origin[c] = sums[c] / static_cast<float>(rows);
  }

  // Of each group from the moments of its channels; factors and shifts take the place of the first chunk's sums.
  void find_factors(float* of_image, const float* scale, const float* bias) const {
    const float* origin = of_image;
    float *factors = of_image + channels_, *shifts = factors + channels_;
    const auto n = static_cast<double>(positions_);
    for (std::int64_t first = 0; first < channels_; first += of_group_) {
      const auto moments_of_channel = [&](std::int64_t c) {
        double sum = 0, square = 0;
        for (std::int64_t chunk = 0; chunk < chunks_; ++chunk) {
          sum += factors[2 * chunk * channels_ + c];
          square += shifts[2 * chunk * channels_ + c];
        }
        return std::pair(origin[c] + sum / n, square - sum * sum / n);
      };
      double mean = 0, squares = 0;
      for (std::int64_t c = first; c < first + of_group_; ++c) {
        const auto [of_channel, around] = moments_of_channel(c);
        // The mean of those so far moves by a share of the difference (Chan, Golub and LeVeque 1983).
        const auto before = static_cast<double>(c - first);
        const double difference = of_channel - mean;
        mean += difference / (before + 1);
        squares += around + difference * difference * n * before / (before + 1);
      }
      const double deviation = std::sqrt(std::max(squares, 0.0) / (n * static_cast<double>(of_group_)) +
                                         static_cast<double>(epsilon_));
      for (std::int64_t c = first; c < first + of_group_; ++c) {
        const double factor = scale[c] / deviation;
        factors[c] = static_cast<float>(factor);
        shifts[c] = static_cast<float>(bias[c] - mean * factor);
      }
    }
  }

  float epsilon_;
  std::int64_t images_, channels_, of_group_, positions_, chunk_rows_, chunks_;
  Epilogue epilogue_;
};

}  // namespace

void register_cpu_instance_norm(Registry& registry) {
  Candidate rows{"rows", refuse_rows,
                 [](const NodeSpec& spec) { return std::make_unique<InstanceNormRows>(spec); }};
  rows.fuses_epilogue = fuses_image_epilogue;
  registry.add(InstanceNorm::kType, DeviceKind::cpu, std::move(rows));
  add_layer_kernel<InstanceNorm>(registry, "planes", refuse_planes, run_planes);
}

}  // namespace pipit
