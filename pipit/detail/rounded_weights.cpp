#include "pipit/detail/rounded_weights.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "engine/base/error.h"
#include "layers/ops/matmul.h"
#include "layers/passes/rewriter.h"
#include "quant/int8_roles.h"
#include "sparsity/layer_walk.h"
#include "sparsity/round_weights.h"

namespace pipit::internal::detail {

namespace {

std::size_t depth_of(const NewWeights& weights) {
  const Shape& shape = weights.weights.shape();
  return static_cast<std::size_t>(shape.elements() / shape[0]);
}

// The mean over groups of the convolution of Gram::relative_error().
double loss_of(const std::vector<Gram>& sums, const NewWeights& weights) {
  const std::span<const float> w = weights.weights.values<float>(), b = weights.bias;
  const std::size_t each = w.size() / sums.size();
  double loss = 0;
  for (std::size_t g = 0; g < sums.size(); ++g) {
    const std::size_t outputs = sums[g].outputs;
    loss +=
        sums[g].relative_error(w.subspan(g * each, each), b.empty() ? b : b.subspan(g * outputs, outputs));
  }
  return loss / static_cast<double>(sums.size());
}

// Rounds one layer of the walk.
class LayerRounder {
 public:
  LayerRounder(ThreadPool& pool, std::vector<RoundingLoss>& losses) : pool_(pool), losses_(losses) {}

  // Whether the sums of the columns of a layer with these weights can be held.
  static bool takes(const Shape& weights) { return weights.elements() / weights[0] <= most_depth(); }

  // `fits`: whether an output may have this bias and scale; else it keeps the nearest integers.
  template <typename Fits>
  IntegerWeights round(const WalkedLayer& layer, const NewWeights& dense, const IntegerWeights& nearest,
                       RoundingGrid grid, const Fits& fits) {
    grid.adjust_bias = layer_if<MatMul>(layer.node()) == nullptr;
    const std::vector<Gram> sums = layer.sums();
    IntegerWeights made = round_weights(sums, dense, nearest, grid, {}, pool_);
    const Shape& shape = dense.weights.shape();
    const std::size_t depth = depth_of(dense);
    const std::size_t groups = (depth + grid.group - 1) / grid.group;
    for (std::size_t o = 0; o < static_cast<std::size_t>(shape[0]); ++o) {
      if (fits(made.bias.empty() ? 0.0F : made.bias[o], made.scales[o * groups])) continue;
      const auto copy = [&](const auto& from, auto& to, std::size_t each) {
        std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(o * each), each,
                    to.begin() + static_cast<std::ptrdiff_t>(o * each));
      };
      copy(nearest.integers, made.integers, depth);
      copy(nearest.scales, made.scales, groups);
      if (!made.bias.empty()) made.bias[o] = dense.bias.empty() ? 0.0F : dense.bias[o];
    }
    losses_.push_back({layer.node().name, loss_of(sums, real_values(nearest, shape, grid.group)),
                       loss_of(sums, real_values(made, shape, grid.group))});
    return made;
  }

 private:
  ThreadPool& pool_;
  std::vector<RoundingLoss>& losses_;
};

WalkOptions walk_options(const RoundingRun& run) {
  WalkOptions walk;
  walk.threads = run.threads;
  return walk;
}

// Rounds the values that integer layers read, as they do.
ChangeValue activation_rounding(const Graph& graph, const Roles& roles) {
  std::vector<bool> integer(graph.values().size(), false);
  for (std::size_t n = 0; n < graph.nodes().size(); ++n) {
    if (roles.of_node[n] == Role::floating) continue;
    for (const ValueId id : graph.nodes()[n].inputs) {
      if (id != kNoValue && !graph.value(id).is_constant()) integer[index(id)] = true;
    }
  }
  return [&roles, integer = std::move(integer)](ValueId id, Tensor& value) {
    const float scale = roles.scale[index(id)];
    if (!integer[index(id)] || !(scale > 0) || value.desc().dtype != DType::f32) return;
    for (float& x : value.values<float>()) x = std::clamp(std::nearbyint(x / scale), -127.0F, 127.0F) * scale;
  };
}

}  // namespace

std::map<std::string, QuantizedWeights> rounded_int8_weights(const Graph& equal, const QuantizationPlan& plan,
                                                             const std::set<std::string>& in_4_bits,
                                                             RoundingRun run,
                                                             std::vector<RoundingLoss>& losses) {
  const Roles roles = choose_roles(equal, plan);
  std::map<std::string, float> input_scales;
  for (std::size_t n = 0; n < equal.nodes().size(); ++n) {
    const Node& node = equal.nodes()[n];
    if (roles.of_node[n] == Role::weighted) input_scales[node.name] = roles.scale[index(node.inputs[0])];
  }
  const std::shared_ptr<ThreadPool> pool = shared_pool(run.threads);
  LayerRounder rounder(*pool, losses);
  std::map<std::string, QuantizedWeights> rounded;
  const auto visit = [&](const WalkedLayer& layer) -> std::optional<NewWeights> {
    const Node& node = layer.node();
    const auto found = input_scales.find(node.name);
    if (found == input_scales.end()) return std::nullopt;
    const float input_scale = found->second;
    const NewWeights dense = weights_of(equal, node);
    const Shape& shape = dense.weights.shape();
    const int bits = in_4_bits.contains(node.name) ? 4 : 8;
    const WeightLevels levels = weight_levels(bits);
    const RoundingGrid grid{.low = levels.low,
                            .high = levels.high,
                            .group = depth_of(dense),
                            .keep_scales = !plan.weights_per_channel};
    IntegerWeights made;
    try {
      const QuantizedWeights near = quantize_weights(shape, dense.weights.values<float>(), dense.bias,
                                                     input_scale, plan.weights_per_channel, bits);
      const std::span<const std::int8_t> integers = near.weights.values<std::int8_t>();
      const IntegerWeights nearest{{integers.begin(), integers.end()}, near.scales, dense.bias};
      if (!LayerRounder::takes(shape)) return real_values(nearest, shape, grid.group);
      made = rounder.round(layer, dense, nearest, grid,
                           [&](float bias, float scale) { return fits_bias(bias, input_scale, scale); });
    } catch (const Error& e) {
      fail("node '{}': {}", node.name, e.what());
    }
    NewWeights real = real_values(made, shape, grid.group);
    if (made.bias.empty()) made.bias.assign(made.scales.size(), 0.0F);
    Tensor integers(TensorDesc{shape, DType::i8});
    std::ranges::copy(made.integers, integers.values<std::int8_t>().begin());
    rounded.emplace(node.name,
                    QuantizedWeights{std::move(integers), quantize_bias(made.bias, input_scale, made.scales),
                                     std::move(made.scales)});
    return real;
  };
  const WalkOptions walk = walk_options(run);
  walk_layers(equal, std::move(run.images), walk, visit, run.progress, activation_rounding(equal, roles));
  return rounded;
}

std::map<std::string, StoredLayer> rounded_stored_weights(const Graph& fused,
                                                          const WeightOnlyOptions& options, RoundingRun run,
                                                          std::vector<RoundingLoss>& losses) {
  const std::shared_ptr<ThreadPool> pool = shared_pool(run.threads);
  LayerRounder rounder(*pool, losses);
  std::map<std::string, StoredLayer> rounded;
  const auto visit = [&](const WalkedLayer& layer) -> std::optional<NewWeights> {
    const Node& node = layer.node();
    const std::optional<WeightFormat> format = stored_format(fused, node, options);
    if (!format) return std::nullopt;
    const NewWeights dense = weights_of(fused, node);
    const Shape& shape = dense.weights.shape();
    const auto depth = static_cast<std::int64_t>(depth_of(dense));
    const bool bytes = format->bits == 8;
    const RoundingGrid grid{.low = bytes ? -127 : -8,
                            .high = bytes ? 127 : 7,
                            .group = static_cast<std::size_t>(format->group(depth))};
    IntegerWeights made;
    try {
      const StoredWeights near = store_weights(*format, shape[0], dense.weights.values<float>(), *pool);
      const std::span<const float> scales = near.scales.values<float>();
      const IntegerWeights nearest{
          stored_integers(*format, near, depth), {scales.begin(), scales.end()}, dense.bias};
      if (!LayerRounder::takes(shape)) return real_values(nearest, shape, grid.group);
      made = rounder.round(layer, dense, nearest, grid,
                           [](float bias, float /*scale*/) { return std::isfinite(bias); });
    } catch (const Error& e) {
      fail("node '{}': {}", node.name, e.what());
    }
    rounded.emplace(node.name,
                    StoredLayer{pack_weights(*format, shape[0], made.integers, made.scales), made.bias});
    return real_values(made, shape, grid.group);
  };
  const WalkOptions walk = walk_options(run);
  walk_layers(fused, std::move(run.images), walk, visit, run.progress);
  return rounded;
}

}  // namespace pipit::internal::detail
