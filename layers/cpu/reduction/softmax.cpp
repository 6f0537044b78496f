// Softmax and LogSoftmax over elements that follow each other, and over any one run of dimensions in memory.
#include "layers/ops/softmax.h"

#include <algorithm>
#include <cmath>

#include "engine/platform/simd.h"
#include "layers/common/layer_kernel.h"
#include "layers/cpu/families.h"
#include "layers/cpu/vector/fold.h"
#include "layers/cpu/vector/vector_math.h"
#include "layers/cpu/work_sharing.h"
#include "layers/ops/operands.h"

namespace pipit::internal {

namespace {

bool contiguous_groups(const SoftmaxAttributes& attributes, const TensorDesc& desc) {
  const SoftmaxGroups groups = softmax_groups(attributes, desc.shape);
  if (groups.end == desc.shape.rank() && is_row_major(desc)) return true;
  return groups.begin == 1 && groups.end == 2 && is_channels_last(desc);
}

Refusal refuse_softmax(const NodeSpec& spec) {
  if (Refusal reason = refuse_unless_f32(spec)) return reason;
  const SoftmaxAttributes& attributes = layer_as<Softmax>(spec.layer).attributes();
  if (!contiguous_groups(attributes, *spec.inputs[0]) || !contiguous_groups(attributes, spec.outputs[0])) {
    return "the normalized elements must be contiguous";
  }
  return std::nullopt;
}

PIPIT_INLINE inline void exp_all(float* y, std::int64_t count) {
  PIPIT_INDEPENDENT
  for (std::int64_t i = 0; i < count; ++i) y[i] = vector_math::exp_of_negative(y[i]);
}

// y = x - max(x), at most 0.
template <typename V>
PIPIT_INLINE inline float subtract_largest(const float* x, std::int64_t count, float* y) {
  const float highest = fold<LargerOf, V>(x, count);
  PIPIT_INDEPENDENT
  for (std::int64_t i = 0; i < count; ++i) y[i] = x[i] - highest;
  return highest;
}

// Neighbouring rows in one call, and the exponentials of all in one loop: rows are short.
template <typename V>
PIPIT_INLINE inline void normalize_rows(const float* x, std::int64_t rows, std::int64_t count, float* y) {
  for (std::int64_t r = 0; r < rows; ++r) subtract_largest<V>(x + r * count, count, y + r * count);
  exp_all(y, rows * count);
  for (std::int64_t r = 0; r < rows; ++r) {
    float* to = y + r * count;
    const float factor = 1.0F / fold<Plus, V>(to, count);  // of 1 at least
    PIPIT_INDEPENDENT
    for (std::int64_t i = 0; i < count; ++i) to[i] *= factor;
  }
}

template <typename V>
PIPIT_INLINE inline void log_normalize_rows(const float* x, std::int64_t rows, std::int64_t count, float* y) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* from = x + r * count;
    float* to = y + r * count;
    const float highest = subtract_largest<V>(from, count, to);
    exp_all(to, count);
    const float log_sum = std::log(fold<Plus, V>(to, count));
    PIPIT_INDEPENDENT
    for (std::int64_t i = 0; i < count; ++i) to[i] = from[i] - highest - log_sum;
  }
}

void run_softmax(const Softmax& layer, std::span<const ConstTensorView> inputs,
                 std::span<const TensorView> outputs, const RunContext& context) {
  const Shape& shape = inputs[0].desc.shape;
  const SoftmaxGroups groups = softmax_groups(layer.attributes(), shape);
  std::int64_t count = 1;
  for (int d = groups.begin; d < groups.end; ++d) count *= shape[d];
  if (shape.elements() == 0) return;
  const float* x = inputs[0].as<float>();
  float* y = outputs[0].as<float>();
  const auto normalize = layer.attributes().log
                             ? simd<log_normalize_rows<ShortVector>, log_normalize_rows<Vector>>
                             : simd<normalize_rows<ShortVector>, normalize_rows<Vector>>;
  parallel_chunks(context.pool, shape.elements() / count, rows_per_chunk(count),
                  [&](std::int64_t begin, std::int64_t end) {
                    normalize(x + begin * count, end - begin, count, y + begin * count);
                  });
}

// ---- normalized elements that lie `inner` apart

// Memory as [outer][count][inner], normalized over count.
struct Extents {
  std::int64_t outer = 1;
  std::int64_t count = 1;
  std::int64_t inner = 1;
};

// None where the normalized dimensions do not follow each other in memory.
std::optional<Extents> extents_of(const SoftmaxAttributes& attributes, const TensorDesc& desc) {
  const SoftmaxGroups groups = softmax_groups(attributes, desc.shape);
  const bool by_rows = is_row_major(desc);
  Extents result;
  for (int d = 0; d < desc.shape.rank(); ++d) {
    const bool normalized = d >= groups.begin && d < groups.end;
    // In channels_last order the channels lie inside all others.
    const bool inside = d >= groups.end ? by_rows || groups.begin != 1 : !by_rows && d == 1;
    (normalized ? result.count : inside ? result.inner : result.outer) *= desc.shape[d];
  }
  const bool together = by_rows || groups.end - groups.begin <= 1 || groups.begin >= 2;
  return together ? std::optional(result) : std::nullopt;
}

Refusal refuse_strided_softmax(const NodeSpec& spec) {
  if (Refusal reason = refuse_unless_f32(spec)) return reason;
  const TensorDesc& x = *spec.inputs[0];
  if (x.layout != spec.outputs[0].layout && !x.layouts_coincide())
    return "input and output have different layouts";
  if (!extents_of(layer_as<Softmax>(spec.layer).attributes(), x))
    return "the normalized dimensions are apart in memory";
  return std::nullopt;
}

// The number of neighbours that are normalized together.
constexpr std::int64_t kColumns = 64;

// Sums of 64 rows are added up separately, so that the rounding error does not grow with all rows.
PIPIT_INLINE inline void normalize_columns(const float* x, std::int64_t count, std::int64_t step,
                                           std::int64_t columns, bool log, float* y) {
  constexpr std::int64_t kRows = 64;
  float highest[kColumns];
  float sum[kColumns] = {};
  for (std::int64_t c = 0; c < columns; ++c) highest[c] = x[c];
  for (std::int64_t r = 1; r < count; ++r) {
    const float* row = x + r * step;
    for (std::int64_t c = 0; c < columns; ++c) highest[c] = row[c] > highest[c] ? row[c] : highest[c];
  }
  for (std::int64_t first = 0; first < count; first += kRows) {
    float part[kColumns] = {};
    for (std::int64_t r = first; r < std::min(count, first + kRows); ++r) {
      PIPIT_INDEPENDENT
      for (std::int64_t c = 0; c < columns; ++c) {
        const float e = vector_math::exp_of_negative(x[r * step + c] - highest[c]);
        part[c] += e;
        if (!log) y[r * step + c] = e;
      }
    }
    for (std::int64_t c = 0; c < columns; ++c) sum[c] += part[c];
  }
  if (log) {
    for (std::int64_t c = 0; c < columns; ++c) sum[c] = std::log(sum[c]);
    for (std::int64_t r = 0; r < count; ++r) {
      PIPIT_INDEPENDENT
      for (std::int64_t c = 0; c < columns; ++c) y[r * step + c] = x[r * step + c] - highest[c] - sum[c];
    }
    return;
  }
  for (std::int64_t r = 0; r < count; ++r) {
    PIPIT_INDEPENDENT
    for (std::int64_t c = 0; c < columns; ++c) y[r * step + c] /= sum[c];
  }
}

void run_strided_softmax(const Softmax& layer, std::span<const ConstTensorView> inputs,
                         std::span<const TensorView> outputs, const RunContext& context) {
  if (inputs[0].desc.elements() == 0) return;
  const Extents e = extents_of(layer.attributes(), inputs[0].desc).value();
  const float* x = inputs[0].as<float>();
  float* y = outputs[0].as<float>();
  const std::int64_t blocks = (e.inner + kColumns - 1) / kColumns;
  parallel_chunks(context.pool, e.outer * blocks, rows_per_chunk(e.count * std::min(e.inner, kColumns)),
                  [&](std::int64_t begin, std::int64_t end) {
                    for (std::int64_t block = begin; block < end; ++block) {
                      const std::int64_t column = block % blocks * kColumns;
                      const std::int64_t offset = block / blocks * e.count * e.inner + column;
                      simd<normalize_columns>(x + offset, e.count, e.inner,
                                              std::min(kColumns, e.inner - column), layer.attributes().log,
                                              y + offset);
                    }
                  });
}

}  // namespace

void register_cpu_softmax(Registry& registry) {
  add_layer_kernel<Softmax>(registry, "contiguous", refuse_softmax, run_softmax);
  add_layer_kernel<Softmax>(registry, "strided", refuse_strided_softmax, run_strided_softmax);
}

}  // namespace pipit::internal
