#include "layers/cuda/conv/followers.h"

#include <cmath>
#include <initializer_list>
#include <numbers>

#include "layers/common/layer_kernel.h"
#include "layers/cuda/conv/gemm_problem.h"
#include "layers/ops/pool.h"
#include "layers/ops/quantize.h"
#include "layers/ops/qunary.h"
#include "layers/ops/unary.h"

namespace pipit::internal::cuda {

namespace {

// Nothing where HalfFunction does not describe it, or its parameters are beyond what halves can be: with an infinite
// slope 0 would become NaN.
std::optional<HalfFunction> function_of(const UnaryAttributes& a) {
  constexpr double kMax = 65504;
  for (const double parameter : {a.alpha, a.beta}) {
    if (!(std::abs(parameter) <= kMax)) return std::nullopt;
  }
  const auto logistic = [](bool times_x, double alpha) {
    return HalfFunction{HalfGate::logistic, times_x, static_cast<float>(-alpha * std::numbers::log2e)};
  };
  switch (a.kind) {
    case UnaryKind::sigmoid:
      return logistic(false, 1);
    case UnaryKind::silu:
      return logistic(true, 1);
    case UnaryKind::swish:
      return logistic(true, a.alpha);
    case UnaryKind::hard_sigmoid:
      return HalfFunction{HalfGate::linear, false, static_cast<float>(a.alpha), static_cast<float>(a.beta)};
    case UnaryKind::hard_swish:
      return HalfFunction{HalfGate::linear, true, 1.0F / 6, 0.5F};
    case UnaryKind::leaky_relu:
      return HalfFunction{HalfGate::sign, true, static_cast<float>(a.alpha)};
    default:
      return std::nullopt;
  }
}

}  // namespace

bool fuses_function(const NodeSpec& spec, const NodeSpec& next) {
  return spec.fusion.followers.empty() && next.layer.type() == Unary::kType &&
         spec.outputs[0].dtype == DType::f16 && next.outputs[0].dtype == DType::f16 &&
         half_function_of(next).has_value();
}

std::optional<HalfFunction> half_function_of(const NodeSpec& unary) {
  return function_of(layer_as<Unary>(unary.layer).attributes());
}

HalfFunction follower_function(const NodeSpec& spec) {
  // An average may follow as well (followers.h).
  if (spec.fusion.followers.empty() || spec.fusion.followers[0]->layer.type() != Unary::kType) return {};
  return half_function_of(*spec.fusion.followers[0]).value();
}

bool fuses_table(const NodeSpec& spec, const NodeSpec& next) {
  const DType type = spec.outputs[0].dtype;
  return spec.fusion.followers.empty() && next.layer.type() == QUnary::kType &&
         (type == DType::i8 || type == DType::u8) && next.outputs[0].dtype == type;
}

std::optional<ByteTable> follower_table(const NodeSpec& spec) {
  // An average may follow instead of it (followers.h).
  if (spec.fusion.followers.empty() || spec.fusion.followers[0]->layer.type() != QUnary::kType)
    return std::nullopt;
  return unary_table(layer_as<QUnary>(spec.fusion.followers[0]->layer).attributes());
}

DeviceBuffer upload_table(const std::optional<ByteTable>& table) {
  return table ? DeviceBuffer(table->data(), table->size()) : DeviceBuffer();
}

namespace {

bool is_real(DType type) {
  return type == DType::f16 || type == DType::f32;
}

}  // namespace

bool is_average(const NodeSpec& node) {
  if (node.layer.type() != Pool::kType) return false;
  const PoolAttributes& a = layer_as<Pool>(node.layer).attributes();
  return a.global && a.kind == PoolKind::average && is_real(node.inputs[0]->dtype) &&
         is_real(node.outputs[0].dtype);
}

bool averages(const NodeSpec& spec) {
  return std::ranges::any_of(spec.fusion.followers, [](const NodeSpec* node) { return is_average(*node); });
}

// Narrow images and lists of blocks have no such kernel.
bool fuses_average(const NodeSpec& spec, const ConvShape& shape) {
  constexpr int kNarrow = 4;
  return !averages(spec) && shape.in_c != kNarrow && kept_depth(spec, shape).all() &&
         average_pays(shape, spec.gpu);
}

bool quantizes_average(const NodeSpec& spec, const NodeSpec& next) {
  return !spec.fusion.followers.empty() && is_average(*spec.fusion.followers.back()) &&
         next.layer.type() == Quantize::kType;
}

ConvAverage average_args(const NodeSpec& spec, const ConvShape& shape, const ConvTile& tile) {
  ConvAverage average;
  if (!averages(spec)) return average;
  const std::span<const NodeSpec* const> followers = spec.fusion.followers;
  const NodeSpec& last = *followers.back();
  const bool quantizes = !is_average(last);
  const NodeSpec& mean = quantizes ? *followers[followers.size() - 2] : last;
  average.images = images_of(shape, tile);
  average.positions = static_cast<int>(shape.positions());
  average.rows = average.images * average.positions;
  average.factor = 1 / static_cast<float>(average.positions);
  average.result =
      AverageResult(mean.outputs[0].dtype, quantizes ? &layer_as<Quantize>(last.layer).y() : nullptr);
  return average;
}

}  // namespace pipit::internal::cuda
