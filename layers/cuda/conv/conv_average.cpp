#include "layers/cuda/conv/conv_average.h"

#include "layers/common/layer_kernel.h"
#include "layers/cuda/conv/conv_gemm_problem.h"
#include "layers/cuda/conv/half_follower.h"
#include "layers/ops/pool.h"
#include "layers/ops/quantize.h"

namespace pipit::cuda {

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

}  // namespace pipit::cuda
