#include "layers/cpu/epilogue.h"

#include <algorithm>
#include <cmath>

#include "layers/cpu/chunks.h"
#include "layers/cpu/elementwise_spans.h"
#include "layers/cpu/row_kernels.h"
#include "layers/cpu/simd.h"
#include "layers/normalization.h"

namespace pipit {

namespace {

PIPIT_SIMD_CLONES void affine(const float* factors, const float* shifts, float* y, std::int64_t count) {
  PIPIT_INDEPENDENT
  for (std::int64_t i = 0; i < count; ++i) y[i] = y[i] * factors[i] + shifts[i];
}

}  // namespace

AffineChannels affine_channels(const NodeSpec& batch_norm) {
  const double epsilon = layer_as<BatchNorm>(batch_norm.layer).attributes().epsilon;
  const auto parameter = [&](std::size_t i) { return batch_norm.constant(i)->values<float>(); };
  AffineChannels result;
  for (std::size_t c = 0; c < parameter(1).size(); ++c) {
    const double factor = parameter(1)[c] / std::sqrt(static_cast<double>(parameter(4)[c]) + epsilon);
    result.factors.push_back(static_cast<float>(factor));
    result.shifts.push_back(static_cast<float>(parameter(2)[c] - parameter(3)[c] * factor));
  }
  return result;
}

bool Epilogue::absorb(const NodeSpec& next) {
  if (next.outputs[0].dtype != DType::f32 && next.outputs[0].dtype != DType::f16) return false;
  if (const auto* unary = dynamic_cast<const Unary*>(&next.layer)) {
    stages_.push_back({.unary = unary->attributes()});
    return true;
  }
  if (dynamic_cast<const BatchNorm*>(&next.layer) != nullptr && channel_dim_ == 1) {
    AffineChannels a = affine_channels(next);
    stages_.push_back({.kind = Kind::affine, .values = std::move(a.factors), .shifts = std::move(a.shifts)});
    return true;
  }
  return dynamic_cast<const Binary*>(&next.layer) != nullptr && absorb_binary(next);
}

bool Epilogue::absorb_binary(const NodeSpec& next) {
  const BinaryAttributes& attributes = layer_as<Binary>(next.layer).attributes();
  const bool swapped = next.constant(0) != nullptr;
  const Tensor* constant = next.constant(swapped ? 0 : 1);
  if (constant == nullptr || constant->desc().dtype != DType::f32 || !has_binary_span(attributes.kind))
    return false;
  const Shape& shape = constant->shape();
  const Shape& output = next.outputs[0].shape;
  const int dim = channel_dim_ - (output.rank() - shape.rank());  // the channels in the constant's shape
  const bool one = shape.elements() == 1;
  if (!one && (dim < 0 || shape[dim] != shape.elements() || shape[dim] != output[channel_dim_])) return false;
  const auto values = constant->values<float>();
  stages_.push_back({.kind = Kind::binary,
                     .binary = attributes,
                     .swapped = swapped,
                     .step = one ? 0 : 1,
                     .values = {values.begin(), values.end()}});
  return true;
}

void Epilogue::apply(float* y, std::int64_t first, std::int64_t count) const {
  for (const Stage& stage : stages_) {
    switch (stage.kind) {
      case Kind::unary:
        unary_span(stage.unary, y, y, count);
        break;
      case Kind::binary: {
        const StridedFloats row{y, 1};
        const StridedFloats constant{stage.values.data() + first * stage.step, stage.step};
        binary_span(stage.binary, stage.swapped ? constant : row, stage.swapped ? row : constant, y, count);
        break;
      }
      case Kind::affine:
        affine(stage.values.data() + first, stage.shifts.data() + first, y, count);
        break;
    }
  }
}

bool Epilogue::depends_on_channel() const {
  return std::any_of(stages_.begin(), stages_.end(),
                     [](const Stage& s) { return s.kind == Kind::affine || s.step != 0; });
}

void Epilogue::apply_rows(float* y, std::int64_t rows, std::int64_t channels, std::int64_t first) const {
  if (!depends_on_channel()) return apply(y, 0, rows * channels);
  for (std::int64_t r = 0; r < rows; ++r) apply(y + r * channels, first, channels);
}

void Epilogue::apply(Half* y, std::int64_t first, std::int64_t count, float* stage) const {
  if (stages_.size() == 1 && stages_[0].kind == Kind::unary) {
    if (const auto span = half_span(stages_[0].unary.kind)) return span(y, y, count);
  }
  row_kernels().to_float(y, stage, count);
  apply(stage, first, count);
  row_kernels().to_half(stage, y, count);
}

void Epilogue::apply_all(float* y, std::int64_t elements, std::int64_t channels, ThreadPool& pool) const {
  if (empty() || elements == 0) return;
  parallel_chunks(
      pool, elements / channels, rows_per_chunk(channels),
      [&](std::int64_t begin, std::int64_t end) { apply_rows(y + begin * channels, end - begin, channels); });
}

}  // namespace pipit
