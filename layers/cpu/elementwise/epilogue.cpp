#include "layers/cpu/elementwise/epilogue.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <utility>

#include "layers/cpu/elementwise/elementwise_loops.h"
#include "layers/cpu/work_sharing.h"
#include "layers/ops/conv.h"
#include "layers/ops/normalization.h"

namespace pipit::internal {

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

namespace {

/// Whether it is a convolution of one tap and one channel a group, which a batch normalization was (fold_scale_shift).
bool scales_channels(const NodeSpec& conv) {
  const ConvAttributes& a = layer_as<Conv>(conv.layer).attributes();
  const Shape& x = conv.inputs[0]->shape;
  const auto is_constant = [&](std::size_t i) {
    return conv.constant(i) != nullptr && conv.constant(i)->desc().dtype == DType::f32;
  };
  const bool plain = a.window == Window{.rank = a.window.rank};  // one tap, no stride, no padding
  return plain && a.groups == x[1] && x == conv.outputs[0].shape && is_constant(1) &&
         (!conv.has_input(2) || is_constant(2)) && !conv.has_input(3);
}

AffineChannels affine_of_conv(const NodeSpec& conv) {
  const std::span<const float> factors = conv.constant(1)->values<float>();
  AffineChannels result{{factors.begin(), factors.end()}, std::vector<float>(factors.size(), 0.0F)};
  if (conv.has_input(2)) std::ranges::copy(conv.constant(2)->values<float>(), result.shifts.begin());
  return result;
}

std::optional<UnaryAttributes> clip_of(const Clamp& clamp) {
  if (clamp.is_identity()) return std::nullopt;
  return UnaryAttributes{UnaryKind::clip, clamp.low, clamp.high};
}

bool all_finite(const AffineChannels& affine) {
  const auto finite = [](float v) { return std::isfinite(v); };
  return std::all_of(affine.factors.begin(), affine.factors.end(), finite) &&
         std::all_of(affine.shifts.begin(), affine.shifts.end(), finite);
}

// Sums and products with constants, one or one per channel, as a scale and a shift of `channels`; none for anything
// else.
std::optional<AffineChannels> affine_of(const BinaryAttributes& attributes, bool constant_first,
                                        std::span<const float> values, std::int64_t channels) {
  if (!attributes.activation.is_identity()) return std::nullopt;
  const auto count = static_cast<std::size_t>(channels);
  AffineChannels result{std::vector<float>(count, 1.0F), std::vector<float>(count, 0.0F)};
  for (std::size_t c = 0; c < count; ++c) {
    const float v = values[values.size() == 1 ? 0 : c];
    switch (attributes.kind) {
      case BinaryKind::add:
        result.shifts[c] = v;
        break;
      case BinaryKind::sub:
        result.factors[c] = constant_first ? -1.0F : 1.0F;
        result.shifts[c] = constant_first ? v : -v;
        break;
      case BinaryKind::mul:
        result.factors[c] = v;
        break;
      default:
        return std::nullopt;
    }
  }
  return all_finite(result) ? std::optional(std::move(result)) : std::nullopt;
}

// The constant of a Binary, and which operand it is.
struct ConstantOperand {
  const Tensor* tensor;
  bool first;
};

ConstantOperand constant_of(const NodeSpec& binary) {
  const bool first = binary.constant(0) != nullptr;
  return {binary.constant(first ? 0 : 1), first};
}

bool fuses_binary(int channel_dim, const NodeSpec& next) {
  const Tensor* constant = constant_of(next).tensor;
  if (constant == nullptr || constant->desc().dtype != DType::f32 ||
      !has_binary_span(layer_as<Binary>(next.layer).attributes().kind))
    return false;
  const Shape& shape = constant->shape();
  const Shape& output = next.outputs[0].shape;
  if (shape.elements() == 1) return true;
  const int dim = channel_dim - (output.rank() - shape.rank());  // the channels in the constant's shape
  return dim >= 0 && shape[dim] == shape.elements() && shape[dim] == output[channel_dim];
}

}  // namespace

bool Epilogue::fuses(int channel_dim, const NodeSpec& next) {
  if (next.outputs[0].dtype != DType::f32 && !is_stored_float(next.outputs[0].dtype)) return false;
  for (std::size_t i = 0; i < next.inputs.size(); ++i) {
    if (next.has_input(i) && next.constant(i) == nullptr && !(*next.inputs[i] == next.outputs[0]))
      return false;
  }
  if (dynamic_cast<const Unary*>(&next.layer) != nullptr) return true;
  if (dynamic_cast<const BatchNorm*>(&next.layer) != nullptr) return channel_dim == 1;
  if (dynamic_cast<const Conv*>(&next.layer) != nullptr) return channel_dim == 1 && scales_channels(next);
  return dynamic_cast<const Binary*>(&next.layer) != nullptr && fuses_binary(channel_dim, next);
}

bool Epilogue::depends_on_channels(const NodeSpec& next) {
  if (dynamic_cast<const Unary*>(&next.layer) != nullptr) return false;
  return dynamic_cast<const Binary*>(&next.layer) == nullptr ||
         constant_of(next).tensor->shape().elements() != 1;
}

bool fuses_image_epilogue(const NodeSpec& /*spec*/, const NodeSpec& next) {
  return Epilogue::fuses(1, next);
}

bool fuses_matrix_epilogue(const NodeSpec& spec, const NodeSpec& next) {
  return Epilogue::fuses(spec.outputs[0].shape.rank() - 1, next);
}

Epilogue::Epilogue(int channel_dim, std::span<const NodeSpec* const> layers) {
  for (const NodeSpec* layer : layers) {
    if (!fuses(channel_dim, *layer)) fail("a {} is not computed in an epilogue", layer->layer.type());
    if (const auto* unary = dynamic_cast<const Unary*>(&layer->layer)) {
      stages_.push_back({.unary = unary->attributes()});
    } else if (dynamic_cast<const BatchNorm*>(&layer->layer) != nullptr) {
      append(affine_channels(*layer));
    } else if (const auto* conv = dynamic_cast<const Conv*>(&layer->layer)) {
      append(affine_of_conv(*layer));
      if (const auto clip = clip_of(conv->attributes().activation)) stages_.push_back({.unary = *clip});
    } else {
      append_binary(channel_dim, *layer);
    }
  }
}

void Epilogue::append_binary(int channel_dim, const NodeSpec& next) {
  const BinaryAttributes& attributes = layer_as<Binary>(next.layer).attributes();
  const auto [constant, first] = constant_of(next);
  const auto values = constant->values<float>();
  if (auto affine = affine_of(attributes, first, values, next.outputs[0].shape[channel_dim]))
    return append(std::move(*affine));
  stages_.push_back({.kind = Kind::binary,
                     .binary = attributes,
                     .swapped = first,
                     .step = values.size() == 1 ? 0 : 1,
                     .values = {values.begin(), values.end()}});
}

void Epilogue::append(AffineChannels affine) {
  if (!stages_.empty() && stages_.back().kind == Kind::affine) {
    Stage& last = stages_.back();
    AffineChannels merged;
    for (std::size_t c = 0; c < affine.factors.size(); ++c) {
      merged.factors.push_back(last.values[c] * affine.factors[c]);
      merged.shifts.push_back(std::fma(last.shifts[c], affine.factors[c], affine.shifts[c]));
    }
    if (all_finite(merged)) {
      last.values = std::move(merged.factors);
      last.shifts = std::move(merged.shifts);
      return;
    }
  }
  stages_.push_back(
      {.kind = Kind::affine, .values = std::move(affine.factors), .shifts = std::move(affine.shifts)});
}

void Epilogue::apply_stages(float* y, std::int64_t first, const SpanRows& span) const {
  for (const Stage& stage : stages_) {
    switch (stage.kind) {
      case Kind::unary:
        unary_span(stage.unary, y, y, span);
        break;
      case Kind::binary: {
        const StridedFloats rows{y, 1, span.step};
        const StridedFloats constant{stage.values.data() + first * stage.step, stage.step};
        binary_span(stage.binary, stage.swapped ? constant : rows, stage.swapped ? rows : constant, y, span);
        break;
      }
      case Kind::affine:
        row_kernels().affine(y, stage.values.data() + first, stage.shifts.data() + first, y, span);
        break;
    }
  }
}

bool Epilogue::depends_on_channel() const {
  return std::any_of(stages_.begin(), stages_.end(),
                     [](const Stage& s) { return s.kind == Kind::affine || s.step != 0; });
}

void Epilogue::apply(float* y, std::int64_t first, SpanRows span) const {
  // One long row has the shortest loops.
  if (span.step == span.count && !depends_on_channel()) span = {span.rows * span.count};
  if (stages_.size() < 2 || span.rows == 1) return apply_stages(y, first, span);
  // What one stage leaves in the first-level cache the next one finds there.
  const std::int64_t most = rows_per_chunk(span.count);
  for (std::int64_t r = 0; r < span.rows; r += most)
    apply_stages(y + r * span.step, first, {span.count, std::min(most, span.rows - r), span.step});
}

template <typename T>
void Epilogue::apply(T* y, std::int64_t first, const SpanRows& span, float* stage) const {
  if (stages_.size() == 1 && stages_[0].kind == Kind::unary) {
    if (const auto function = stored_span<T>(stages_[0].unary.kind)) return function(y, y, span);
  }
  for (std::int64_t r = 0; r < span.rows; ++r, y += span.step) {
    widen_row(y, stage, span.count);
    apply_stages(stage, first, {span.count});
    narrow_row(stage, y, span.count);
  }
}

template void Epilogue::apply(Half*, std::int64_t, const SpanRows&, float*) const;
template void Epilogue::apply(BFloat16*, std::int64_t, const SpanRows&, float*) const;

void Epilogue::apply_all(float* y, std::int64_t elements, std::int64_t channels, ThreadPool& pool) const {
  if (empty() || elements == 0) return;
  parallel_chunks(pool, elements / channels, rows_per_chunk(channels),
                  [&](std::int64_t begin, std::int64_t end) {
                    apply(y + begin * channels, 0, {channels, end - begin, channels});
                  });
}

}  // namespace pipit::internal
