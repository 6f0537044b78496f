#include "models/sampled_scores.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "engine/base/error.h"
#include "layers/evaluate.h"
#include "layers/ops/cast.h"
#include "layers/ops/quantize.h"
#include "layers/passes/rewriter.h"

namespace pipit::internal {

namespace {

constexpr std::int64_t kMaxElements = 1 << 18;  // that a run computes
constexpr std::int64_t kElementsOfAll = 1 << 19;
constexpr std::size_t kMaxNodes = 64;
constexpr std::int64_t kMinRuns = 4, kMaxRuns = 24;

bool is_real(DType type) {
  return type == DType::f32 || type == DType::f64 || is_stored_float(type);
}

class TailSampler {
 public:
  TailSampler(const Graph& graph, const std::function<ValueRange(ValueId)>& bounds)
      : graph_(graph), bounds_(bounds), needed_(graph.values().size()), values_(graph.values().size()) {}

  void run(const std::function<bool(const Tensor&)>& take) {
    const ValueId output = graph_.outputs().at(0);
    needed_[index(output)] = true;
    find_tail();
    if (tail_.empty()) return;
    const std::int64_t runs =
        std::clamp(kElementsOfAll / std::max<std::int64_t>(elements_, 1), kMinRuns, kMaxRuns);
    for (std::int64_t i = 0; i < runs; ++i) {
      constexpr std::array kScales{0.5, 2.0, 8.0, 32.0};
      make_up(kScales[static_cast<std::size_t>(i) % kScales.size()]);
      for (const Node* node : tail_) compute(*node);
      const Tensor& scores = *values_[index(output)];
      if (scores.desc().dtype != DType::f32 || !take(scores)) return;
    }
  }

 private:
  const Value& value(ValueId id) const { return graph_.value(id); }

  // The layers to compute, from the last one back, and the values with which they begin.
  void find_tail() {
    const std::vector<Node>& nodes = graph_.nodes();
    for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
      const auto is_needed = [&](ValueId id) { return needed_[index(id)]; };
      if (std::ranges::none_of(node->outputs, is_needed)) continue;
      if (node->layer->traits().weights || !fits(*node)) continue;
      tail_.push_back(&*node);
      for (const ValueId id : node->inputs) {
        if (id != kNoValue) needed_[index(id)] = true;
      }
    }
    std::ranges::reverse(tail_);
    std::vector<bool> computed(needed_.size());
    for (const Node* node : tail_) {
      for (const ValueId id : node->outputs) computed[index(id)] = true;
    }
    for (std::size_t i = 0; i < needed_.size(); ++i) {
      const auto id = static_cast<ValueId>(i);
      if (!needed_[i] || computed[i]) continue;
      if (value(id).constant != nullptr) {
        values_[i] = value(id).constant;
      } else {
        begins_.push_back(id);
      }
    }
  }

  bool fits(const Node& node) {
    std::int64_t all = elements_;
    for (const std::vector<ValueId>& ids : {node.inputs, node.outputs}) {
      for (const ValueId id : ids) {
        if (id == kNoValue) continue;
        const std::int64_t more = value(id).desc.shape.elements();
        if (more > kMaxElements - all) return false;
        all += more;
      }
    }
    if (tail_.size() == kMaxNodes) return false;
    elements_ = all;
    return true;
  }

  void make_up(double scale) {
    std::normal_distribution<double> normal(0, scale);
    std::uniform_real_distribution<double> share(0, 1);
    const auto one = [&](const ValueRange& range) {
      const bool from = std::isfinite(range.low), to = std::isfinite(range.high);
      if (from && to) return range.low + share(random_) * (range.high - range.low);
      const double x = normal(random_);
      return from ? range.low + std::abs(x) : to ? range.high - std::abs(x) : x;
    };
    for (const ValueId id : begins_) {
      const TensorDesc& desc = value(id).desc;
      if (desc.dtype == DType::boolean) {
        Tensor tensor(TensorDesc{desc.shape, DType::boolean});
        const TensorView view = tensor.view();
        for (std::size_t i = 0; i < view.desc.bytes(); ++i)
          view.data[i] = static_cast<std::byte>(share(random_) < 0.5);
        values_[index(id)] = std::make_shared<Tensor>(std::move(tensor));
        continue;
      }
      Tensor tensor(TensorDesc{desc.shape});
      const ValueRange range = is_real(desc.dtype) ? bounds_(id) : ValueRange{-kInfinity, kInfinity};
      for (float& x : tensor.values<float>()) x = static_cast<float>(one(range));
      values_[index(id)] = std::make_shared<Tensor>(std::move(tensor));
    }
  }

  void compute(const Node& node) {
    std::vector<std::shared_ptr<const Tensor>> inputs;
    for (const ValueId id : node.inputs) inputs.push_back(id == kNoValue ? nullptr : values_[index(id)]);
    if (only_rounds(node, *inputs.at(0))) {
      values_[index(node.outputs[0])] = inputs[0];
      return;
    }
    std::vector<Tensor> outputs = evaluate(*node.layer, inputs);
    for (std::size_t i = 0; i < outputs.size(); ++i)
      values_[index(node.outputs[i])] = std::make_shared<Tensor>(std::move(outputs[i]));
  }

  bool only_rounds(const Node& node, const Tensor& input) const {
    if (input.desc().dtype != DType::f32) return false;
    if (layer_if<Quantize>(node) || layer_if<Dequantize>(node)) return true;
    return layer_if<Cast>(node) && is_real(value(node.outputs[0]).desc.dtype);
  }

  static constexpr double kInfinity = std::numeric_limits<double>::infinity();

  const Graph& graph_;
  const std::function<ValueRange(ValueId)>& bounds_;
  std::vector<bool> needed_;
  std::vector<const Node*> tail_;
  std::vector<ValueId> begins_;
  std::int64_t elements_ = 0;
  std::vector<std::shared_ptr<const Tensor>> values_;
  std::mt19937 random_{1};
};

}  // namespace

void sample_scores(const Graph& graph, const std::function<ValueRange(ValueId)>& bounds,
                   const std::function<bool(const Tensor&)>& take) {
  if (graph.value(graph.outputs().at(0)).constant != nullptr) return;
  try {
    TailSampler(graph, bounds).run(take);
  } catch (const Error&) {  // NOLINT(bugprone-empty-catch): a layer that takes no such values
  }
}

}  // namespace pipit::internal
