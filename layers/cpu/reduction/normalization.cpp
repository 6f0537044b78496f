// Batch and layer normalization.
#include "layers/ops/normalization.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/platform/simd.h"
#include "layers/common/layer_kernel.h"
#include "layers/cpu/elementwise/epilogue.h"
#include "layers/cpu/families.h"
#include "layers/cpu/vector/row_kernels.h"
#include "layers/cpu/vector/tap_grid.h"
#include "layers/cpu/work_sharing.h"
#include "layers/ops/operands.h"

namespace pipit::internal {

namespace {

Refusal refuse_unless_same_layout(const NodeSpec& spec) {
  const TensorDesc& x = *spec.inputs[0];
  const TensorDesc& y = spec.outputs[0];
  if ((is_channels_last(x) && is_channels_last(y)) || (is_row_major(x) && is_row_major(y)))
    return std::nullopt;
  return "input and output must have one layout";
}

// y = x * scale + shift with one pair for the whole span.
PIPIT_INLINE inline void affine_span(const float* x, float scale, float shift, float* y, std::int64_t count) {
  PIPIT_INDEPENDENT
  for (std::int64_t i = 0; i < count; ++i) y[i] = x[i] * scale + shift;
}
// ---- batch normalization: a scale and a shift per channel, known at creation

Refusal refuse_batch_norm(const NodeSpec& spec) {
  if (Refusal reason = refuse_unless_stored_floats(spec)) return reason;
  if (Refusal reason = refuse_unless_same_layout(spec)) return reason;
  for (std::size_t i = 1; i < 5; ++i) {
    if (spec.constant(i) == nullptr) return "scale, bias, mean and variance must be constants";
  }
  return std::nullopt;
}

bool goes_by_rows(const NodeSpec& spec) {
  return is_channels_last(*spec.inputs[0]) && is_channels_last(spec.outputs[0]);
}

class FoldedBatchNorm final : public Kernel {
 public:
  explicit FoldedBatchNorm(const NodeSpec& spec)
      : channels_(affine_channels(spec)),
        by_rows_(goes_by_rows(spec)),
        type_(spec.outputs[0].dtype),
        threads_(spec.threads),
        epilogue_(1, spec.fusion.followers) {}
  std::size_t scratch_bytes() const override {
    const std::size_t row = by_rows_ ? channels_.factors.size() : static_cast<std::size_t>(kStaged);
    return is_stored_float(type_) ? row * static_cast<std::size_t>(threads_) * sizeof(float) : 0;
  }
  bool reads_constant(std::size_t index) const override { return index == 0; }
  std::size_t packed_bytes() const override {
    return (channels_.factors.size() + channels_.shifts.size()) * sizeof(float);
  }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    if (is_stored_float(type_)) {
      return by_rows_ ? run_stored_rows(inputs[0], outputs[0].data, context)
                      : run_stored_planes(inputs[0], outputs[0].data, context);
    }
    const TensorDesc& desc = inputs[0].desc;
    const float* x = inputs[0].as<float>();
    float* y = outputs[0].as<float>();
    const std::int64_t channels = desc.shape[1];
    const std::int64_t spatial = positions_of(desc.shape);
    if (by_rows_) {
      parallel_chunks(context.pool, desc.shape[0] * spatial, rows_per_chunk(channels),
                      [&](std::int64_t begin, std::int64_t end) {
                        const SpanRows span{channels, end - begin, channels};
                        row_kernels().affine(x + begin * channels, channels_.factors.data(),
                                             channels_.shifts.data(), y + begin * channels, span);
                        epilogue_.apply(y + begin * channels, 0, span);
                      });
    } else {
      parallel_chunks(context.pool, desc.shape[0] * channels, rows_per_chunk(spatial),
                      [&](std::int64_t begin, std::int64_t end) {
                        for (std::int64_t plane = begin; plane < end; ++plane) {
                          const auto c = static_cast<std::size_t>(plane % channels);
                          simd<affine_span>(x + plane * spatial, channels_.factors[c], channels_.shifts[c],
                                            y + plane * spatial, spatial);
                        }
                      });
    }
  }

 private:
  void run_stored_rows(const ConstTensorView& x, std::byte* y, const RunContext& context) const {
    const std::int64_t channels = x.desc.shape[1];
    const std::int64_t rows = x.desc.shape[0] * positions_of(x.desc.shape);
    const std::int64_t step = rows_per_chunk(channels);
    context.pool.parallel_for((rows + step - 1) / step, [&](std::int64_t chunk, int worker) {
      float* row = reinterpret_cast<float*>(context.scratch) + worker * channels;
      for (std::int64_t r = chunk * step; r < std::min(rows, (chunk + 1) * step); ++r) {
        widen_row(type_, x.data, r * channels, row, channels);
        row_kernels().affine(row, channels_.factors.data(), channels_.shifts.data(), row, {channels});
        epilogue_.apply(row, 0, {channels});
        narrow_row(row, type_, y, r * channels, channels);
      }
    });
  }

  void run_stored_planes(const ConstTensorView& x, std::byte* y, const RunContext& context) const {
    const std::int64_t spatial = positions_of(x.desc.shape);
    const auto channels = static_cast<std::int64_t>(channels_.factors.size());
    context.pool.parallel_for(x.desc.shape[0] * channels, [&](std::int64_t plane, int worker) {
      float* stage = reinterpret_cast<float*>(context.scratch) + worker * kStaged;
      const auto c = static_cast<std::size_t>(plane % channels);
      for (std::int64_t i = 0; i < spatial; i += kStaged) {
        const std::int64_t count = std::min(kStaged, spatial - i);
        widen_row(type_, x.data, plane * spatial + i, stage, count);
        simd<affine_span>(stage, channels_.factors[c], channels_.shifts[c], stage, count);
        narrow_row(stage, type_, y, plane * spatial + i, count);
      }
    });
  }

  static constexpr std::int64_t kStaged = 2048;  // elements of a plane that are made f32 at a time
  AffineChannels channels_;
  bool by_rows_;
  DType type_;
  int threads_;
  Epilogue epilogue_;
};

// ---- layer normalization over contiguous elements

// Longest row that is made f32 on the stack.
constexpr std::int64_t kMaxStoredRow = 4096;

// In 16 bits x and y are: scale and bias are constants, and mean and deviation are not wanted.
Refusal refuse_stored_rows(const NodeSpec& spec, std::int64_t row) {
  if (Refusal reason = refuse_unless_stored_floats(spec)) return reason;
  if (!is_stored_float(spec.outputs[0].dtype)) return std::nullopt;
  if (spec.outputs.size() > 1) return "mean and deviation are stored in 16 bits";
  for (std::size_t i = 1; i < 3; ++i) {
    if (spec.has_input(i) && spec.constant(i) == nullptr) return "scale and bias are stored in 16 bits";
  }
  if (row > kMaxStoredRow) return "a row has more than 4096 elements";
  return std::nullopt;
}

Refusal refuse_layer_norm(const NodeSpec& spec) {
  const LayerNormAttributes& attributes = layer_as<LayerNorm>(spec.layer).attributes();
  const Shape& x = spec.inputs[0]->shape;
  const int axis = normalize_axis(attributes.axis, x.rank(), "LayerNorm");
  const Shape normalized(x.dims().subspan(static_cast<std::size_t>(axis)));
  if (Refusal reason = refuse_stored_rows(spec, normalized.elements())) return reason;
  for (std::size_t i = 1; i < 3; ++i) {
    if (spec.has_input(i) && spec.inputs[i]->elements() != normalized.elements()) {
      return "scale and bias must have the normalized shape";
    }
  }
  return refuse_unless_row_major(spec);
}

// The lanes of four vectors as one number, pair by pair.
PIPIT_INLINE inline float total(const Vector (&lanes)[4]) {
  Vector v = (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
  v += __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7);
  v += __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11);
  v += __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13);
  v += __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);
  return v[0];
}

// The same of eight, of which two are one of those.
PIPIT_INLINE inline float total(const ShortVector (&lanes)[8]) {
  ShortVector v = (lanes[0] + lanes[2]) + (lanes[4] + lanes[6]);
  v += (lanes[1] + lanes[3]) + (lanes[5] + lanes[7]);
  v += __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3);
  v += __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5);
  v += __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6);
  return v[0];
}

// The sum of map(x) over a row, in 64 partial sums: rounding errors grow with count / 64, and no addition waits for the
// one before it.
template <typename V, typename Map>
PIPIT_INLINE inline float sum_row(const float* x, std::int64_t count, Map map) {
  constexpr std::int64_t kQuarter = kLanes<Vector>;
  constexpr std::int64_t kRegisters = kQuarter / kLanes<V>;  // of a quarter of the sums
  V lanes[4 * kRegisters] = {};
  std::int64_t i = 0;
  for (; i + 4 * kQuarter <= count; i += 4 * kQuarter) {
    for (std::int64_t part = 0; part < 4 * kRegisters; ++part) {
      V v;
      load(x + i + part * kLanes<V>, v);
      map(v);
      lanes[part] += v;
    }
  }
  for (V* quarter = lanes; i + kQuarter <= count; i += kQuarter, quarter += kRegisters) {
    for (std::int64_t part = 0; part < kRegisters; ++part) {
      V v;
      load(x + i + part * kLanes<V>, v);
      map(v);
      quarter[part] += v;
    }
  }
  float sum = total(lanes);
  for (; i < count; ++i) {
    float v = x[i];
    map(v);
    sum += v;
  }
  return sum;
}

struct LayerNormRows {
  const float* x;
  std::int64_t rows;
  std::int64_t count;  // elements of a row
  float epsilon;
  bool rms;
  const float* scale;  // this and the others may be null
  const float* bias;
  float* y;
  float* mean;
  float* inverse_deviation;
};

// y = (x - mean) * factor * scale + bias; in two passes, so that a large mean costs no accuracy; 0 with rms.
template <typename V>
PIPIT_INLINE inline void normalize_rows(const LayerNormRows& job) {
  const std::int64_t count = job.count;
  const auto n = static_cast<float>(count);
  const float* scale = job.scale;
  const float* bias = job.bias;
  for (std::int64_t r = 0; r < job.rows; ++r) {
    const float* x = job.x + r * count;
    float* y = job.y + r * count;
    const float mean = job.rms ? 0 : sum_row<V>(x, count, [](auto&) PIPIT_INLINE {}) / n;
    const float squares = sum_row<V>(x, count, [mean](auto& v) PIPIT_INLINE { v = (v - mean) * (v - mean); });
    const float factor = 1 / std::sqrt(squares / n + job.epsilon);
    if (scale != nullptr && bias != nullptr) {
      PIPIT_INDEPENDENT
      for (std::int64_t i = 0; i < count; ++i) y[i] = (x[i] - mean) * factor * scale[i] + bias[i];
    } else if (scale != nullptr) {
      PIPIT_INDEPENDENT
      for (std::int64_t i = 0; i < count; ++i) y[i] = (x[i] - mean) * factor * scale[i];
    } else {
      PIPIT_INDEPENDENT
      for (std::int64_t i = 0; i < count; ++i)
        y[i] = (x[i] - mean) * factor + (bias == nullptr ? 0 : bias[i]);
    }
    if (job.mean != nullptr) job.mean[r] = mean;
    if (job.inverse_deviation != nullptr) job.inverse_deviation[r] = factor;
  }
}

void run_layer_norm(const LayerNorm& layer, std::span<const ConstTensorView> inputs,
                    std::span<const TensorView> outputs, const RunContext& context) {
  const Shape& shape = inputs[0].desc.shape;
  const int axis = normalize_axis(layer.attributes().axis, shape.rank(), "LayerNorm");
  std::int64_t count = 1;
  for (int d = axis; d < shape.rank(); ++d) count *= shape[d];
  std::int64_t rows = 1;
  for (int d = 0; d < axis; ++d) rows *= shape[d];
  const float* scale = optional_data<float>(inputs, 1);
  const float* bias = optional_data<float>(inputs, 2);
  const DType type = inputs[0].desc.dtype;
  if (is_stored_float(type)) {
    parallel_chunks(context.pool, rows, rows_per_chunk(count), [&](std::int64_t begin, std::int64_t end) {
      alignas(64) float row[kMaxStoredRow];
      for (std::int64_t r = begin; r < end; ++r) {
        widen_row(type, inputs[0].data, r * count, row, count);
        simd<normalize_rows<ShortVector>, normalize_rows<Vector>>({row, 1, count, layer.attributes().epsilon,
                                                                   layer.attributes().rms, scale, bias, row,
                                                                   nullptr, nullptr});
        narrow_row(row, type, outputs[0].data, r * count, count);
      }
    });
    return;
  }
  const float* x = inputs[0].as<float>();
  const auto row_of = [&](std::size_t output, std::int64_t row, std::int64_t length) {
    return outputs.size() > output ? outputs[output].as<float>() + row * length : nullptr;
  };
  parallel_chunks(context.pool, rows, rows_per_chunk(count), [&](std::int64_t begin, std::int64_t end) {
    simd<normalize_rows<ShortVector>, normalize_rows<Vector>>(
        {x + begin * count, end - begin, count, layer.attributes().epsilon, layer.attributes().rms, scale,
         bias, row_of(0, begin, count), row_of(1, begin, 1), row_of(2, begin, 1)});
  });
}

}  // namespace

void register_cpu_normalization(Registry& registry) {
  Candidate folded{"folded", refuse_batch_norm,
                   [](const NodeSpec& spec) { return std::make_unique<FoldedBatchNorm>(spec); }};
  folded.fusions.epilogue = [](const NodeSpec& spec, const NodeSpec& next) {
    return goes_by_rows(spec) && fuses_image_epilogue(spec, next);
  };
  registry.add(BatchNorm::kType, DeviceKind::cpu, std::move(folded));
  add_layer_kernel<LayerNorm>(registry, "contiguous", refuse_layer_norm, run_layer_norm);
  register_cpu_instance_norm(registry);
  register_cpu_lrn(registry);
}

}  // namespace pipit::internal
