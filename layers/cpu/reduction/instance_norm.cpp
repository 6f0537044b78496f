// Instance and group normalization: plane by plane (row_major), or by rows of channels (channels_last).
#include <algorithm>
#include <cmath>

#include "engine/base/ceil_div.h"
#include "engine/platform/simd.h"
#include "layers/common/layer_kernel.h"
#include "layers/cpu/elementwise/epilogue.h"
#include "layers/cpu/families.h"
#include "layers/cpu/work_sharing.h"
#include "layers/ops/normalization.h"
#include "layers/ops/operands.h"

namespace pipit::internal {

namespace {

// ---- moments: rows that the first-level cache holds are read twice, so that squares are of differences from their own
// mean, and put together in f64

constexpr std::int64_t kLanes = 32;  // channels whose sums are in registers

struct Chunk {
  const float* x;
  std::int64_t rows, channels;
  // Per channel: about the mean, and of the differences from it the sum and that of their squares.
  float *means, *differences, *squares;
};

template <bool All>
PIPIT_INLINE inline void moments_of_lanes(const Chunk& job, std::int64_t first, std::int64_t lanes) {
  const std::int64_t count = All ? kLanes : lanes;
  const auto n = static_cast<float>(job.rows);
  float mean[kLanes] = {}, difference[kLanes] = {}, square[kLanes] = {};
  for (std::int64_t r = 0; r < job.rows; ++r) {
    const float* x = job.x + r * job.channels + first;
    for (std::int64_t i = 0; i < count; ++i) mean[i] += x[i];
  }
  for (std::int64_t i = 0; i < count; ++i) mean[i] /= n;
  for (std::int64_t r = 0; r < job.rows; ++r) {
    const float* x = job.x + r * job.channels + first;
    for (std::int64_t i = 0; i < count; ++i) {
      const float d = x[i] - mean[i];
      difference[i] += d;
      square[i] += d * d;
    }
  }
  for (std::int64_t i = 0; i < count; ++i) {
    job.means[first + i] = mean[i];
    job.differences[first + i] = difference[i];
    job.squares[first + i] = square[i];
  }
}

PIPIT_INLINE inline void moments_of_chunk(const Chunk& job) {
  std::int64_t c = 0;
  for (; c + kLanes <= job.channels; c += kLanes) moments_of_lanes<true>(job, c, kLanes);
  if (c < job.channels) moments_of_lanes<false>(job, c, job.channels - c);
}

// Count, mean and sum of squared differences from it, of several sets together (Chan, Golub and LeVeque 1983).
struct Together {
  double count = 0, mean = 0, squares = 0;
  void add(double n, double of_mean, double of_squares) {
    const double difference = of_mean - mean, share = n / (count + n);
    mean += difference * share;
    squares += of_squares + difference * difference * count * share;
    count += n;
  }
  void add(const Chunk& chunk, std::int64_t c) {
    const auto n = static_cast<double>(chunk.rows);
    const double rest = chunk.differences[c] / n;
    add(n, chunk.means[c] + rest, chunk.squares[c] - rest * chunk.differences[c]);
  }
};

// y = (x - origin) * factor + shift.
struct Scaling {
  float origin, factor, shift;
};
// What is left of the mean when the origin, near the values at hand, is taken off goes into the shift: of values far
// from zero, or that are all alike, no digits are lost.
Scaling scaling_of(const Together& m, float origin, float epsilon, float scale, float bias) {
  const auto factor =
      static_cast<float>(scale / std::sqrt(m.squares / m.count + static_cast<double>(epsilon)));
  return {origin, factor, static_cast<float>(bias - (m.mean - origin) * factor)};
}

// ---- planes: those of a group follow each other

// The moments of x as rows of kLanes columns.
Together moments_of(const float* x, std::int64_t count) {
  constexpr std::int64_t kRows = 256;
  float moments[3][kLanes];
  Together all;
  while (count > 0) {
    const std::int64_t columns = std::min(kLanes, count), rows = std::min(kRows, count / columns);
    const Chunk chunk{x, rows, columns, moments[0], moments[1], moments[2]};
    simd<moments_of_chunk>(chunk);
    for (std::int64_t c = 0; c < columns; ++c) all.add(chunk, c);
    x += rows * columns, count -= rows * columns;
  }
  return all;
}

PIPIT_INLINE inline void normalize_span(const float* x, float origin, float factor, float shift, float* y,
                                        std::int64_t count) {
  PIPIT_INDEPENDENT
  for (std::int64_t i = 0; i < count; ++i) y[i] = (x[i] - origin) * factor + shift;
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
  const std::int64_t channels = desc.shape[1], spatial = positions_of(desc.shape);
  const std::int64_t of_group = channels_of_group(layer.attributes(), desc.shape);
  context.pool.parallel_for(desc.shape[0] * channels / of_group, [&](std::int64_t group, int) {
    const std::int64_t first = group * of_group;
    const Together m = moments_of(x + first * spatial, of_group * spatial);
    for (std::int64_t plane = first; plane < first + of_group; ++plane) {
      const std::int64_t c = plane % channels;
      const Scaling by =
          scaling_of(m, static_cast<float>(m.mean), layer.attributes().epsilon, scale[c], bias[c]);
      simd<normalize_span>(x + plane * spatial, by.origin, by.factor, by.shift, y + plane * spatial, spatial);
    }
  });
}

// ---- rows: x is read chunk by chunk for the moments of its channels, and once more for the results

Refusal refuse_rows(const NodeSpec& spec) {
  if (Refusal reason = refuse_unless_f32(spec)) return reason;
  if (!is_channels_last(*spec.inputs[0]) || !is_channels_last(spec.outputs[0]))
    return "x and y must be channels_last";
  return std::nullopt;
}

// y = (x - origin) * factor + shift, each per channel.
struct Results {
  const float* x;
  std::int64_t rows, channels;
  const float *origins, *factors, *shifts;
  float* y;
};
PIPIT_INLINE inline void normalize_rows(const Results& job) {
  for (std::int64_t r = 0; r < job.rows; ++r) {
    const float* x = job.x + r * job.channels;
    float* y = job.y + r * job.channels;
    PIPIT_INDEPENDENT
    for (std::int64_t c = 0; c < job.channels; ++c)
      y[c] = (x[c] - job.origins[c]) * job.factors[c] + job.shifts[c];
  }
}

class InstanceNormRows final : public Kernel {
 public:
  explicit InstanceNormRows(const NodeSpec& spec)
      : epsilon_(layer_as<InstanceNorm>(spec.layer).attributes().epsilon),
        images_(spec.inputs[0]->shape[0]),
        channels_(spec.inputs[0]->shape[1]),
        of_group_(channels_of_group(layer_as<InstanceNorm>(spec.layer).attributes(), spec.inputs[0]->shape)),
        positions_(positions_of(spec.inputs[0]->shape)),
        chunk_rows_(std::max(kMinChunkRows, rows_per_chunk(channels_))),
        chunks_(ceil_div(positions_, chunk_rows_)),
        epilogue_(1, spec.fusion.followers) {}
  // Origins, factors and shifts of every image, and the moments of each of its chunks.
  std::size_t scratch_bytes() const override {
    return static_cast<std::size_t>(images_ * image_floats()) * sizeof(float);
  }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    if (images_ * channels_ * positions_ == 0) return;
    const float* x = inputs[0].as<float>();
    float* y = outputs[0].as<float>();
    const auto of_image = [&](std::int64_t image) {
      return reinterpret_cast<float*>(context.scratch) + image * image_floats();
    };
    for_each_chunk(context.pool, [&](std::int64_t image, std::int64_t chunk, std::int64_t first) {
      simd<moments_of_chunk>(chunk_of(x + first * channels_, of_image(image), chunk));
    });
    context.pool.parallel_for(images_, [&](std::int64_t image, int) {
      find_factors(of_image(image), inputs[1].as<float>(), inputs[2].as<float>());
    });
    for_each_chunk(context.pool, [&](std::int64_t image, std::int64_t chunk, std::int64_t first) {
      const float* origins = of_image(image);
      float* to = y + first * channels_;
      simd<normalize_rows>({x + first * channels_, rows_of(chunk), channels_, origins, origins + channels_,
                            origins + 2 * channels_, to});
      epilogue_.apply(to, 0, {channels_, rows_of(chunk), channels_});
    });
  }

 private:
  // With fewer rows, merging the moments of many channels would take a large share of the time.
  static constexpr std::int64_t kMinChunkRows = 32;

  std::int64_t image_floats() const { return 3 * (1 + chunks_) * channels_; }
  Chunk chunk_of(const float* x, float* of_image, std::int64_t chunk) const {
    float* moments = of_image + 3 * (1 + chunk) * channels_;
    return {x, rows_of(chunk), channels_, moments, moments + channels_, moments + 2 * channels_};
  }
  std::int64_t rows_of(std::int64_t chunk) const {
    return std::min(chunk_rows_, positions_ - chunk * chunk_rows_);
  }

  // Chunks do not depend on the number of threads, so that sums do not.
  template <typename Body>
  void for_each_chunk(ThreadPool& pool, const Body& body) const {
    pool.parallel_for(images_ * chunks_, [&](std::int64_t task, int) {
      const std::int64_t image = task / chunks_, chunk = task % chunks_;
      body(image, chunk, image * positions_ + chunk * chunk_rows_);
    });
  }

  void find_factors(float* of_image, const float* scale, const float* bias) const {
    float *origins = of_image, *factors = origins + channels_, *shifts = factors + channels_;
    for (std::int64_t first = 0; first < channels_; first += of_group_) {
      Together group;
      for (std::int64_t c = first; c < first + of_group_; ++c) {
        Together channel;
        for (std::int64_t chunk = 0; chunk < chunks_; ++chunk) {
          channel.add(chunk_of(nullptr, of_image, chunk), c);
        }
        origins[c] = static_cast<float>(channel.mean);
        group.add(channel.count, channel.mean, channel.squares);
      }
      for (std::int64_t c = first; c < first + of_group_; ++c) {
        const Scaling by = scaling_of(group, origins[c], epsilon_, scale[c], bias[c]);
        factors[c] = by.factor;
        shifts[c] = by.shift;
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
  rows.fusions.epilogue = fuses_image_epilogue;
  registry.add(InstanceNorm::kType, DeviceKind::cpu, std::move(rows));
  add_layer_kernel<InstanceNorm>(registry, "planes", refuse_planes, run_planes);
}

}  // namespace pipit::internal
