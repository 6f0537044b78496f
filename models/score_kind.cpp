#include "models/score_kind.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "layers/ops/binary.h"
#include "layers/ops/cast.h"
#include "layers/ops/pool.h"
#include "layers/ops/quantize.h"
#include "layers/ops/reduce.h"
#include "layers/ops/reshaping.h"
#include "layers/ops/slicing.h"
#include "layers/ops/softmax.h"
#include "layers/ops/unary.h"
#include "layers/passes/rewriter.h"
#include "models/sampled_scores.h"

namespace pipit::internal {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::int64_t kMaxConstants = 1 << 16;  // elements of a constant whose bounds are looked for
constexpr double kClose =
    1e-3;  // what a clip may take away (a guard before a logarithm) and the sum still stands

struct Range : ValueRange {
  Range() : ValueRange{-kInfinity, kInfinity} {}
  Range(double least, double most) : ValueRange{least, most} {}

  bool within(double least, double most) const { return low >= least && high <= most; }
  // What cannot be said (infinity less infinity) is nothing.
  Range checked() const { return std::isnan(low) || std::isnan(high) ? Range{} : *this; }
};

Range join(const Range& a, const Range& b) {
  return {std::min(a.low, b.low), std::max(a.high, b.high)};
}

// What is known of the elements of a value.
struct Facts {
  Range range;
  std::optional<double> total;  // sum of a sample's elements, the same for every sample
  int logarithms = 0;  // the values are those of this many groups, each of values >= 0 that add up to 1

  // How many groups there are in a sample, of which each adds up to 1, as far as the total tells; 0: none.
  int groups() const {
    const double whole = range.low >= 0 && total ? std::round(*total) : 0;
    const bool can_be = whole == 1 || (whole > 1 && whole <= kMaxConstants && range.high <= 1);
    return can_be && std::abs(*total - whole) < 1e-5 * whole ? static_cast<int>(whole) : 0;
  }
};

// 0 times infinity is 0: the bound is never reached.
double times(double a, double b) {
  return a == 0 || b == 0 ? 0 : a * b;
}

Range product(const Range& a, const Range& b) {
  const auto [low, high] =
      std::minmax({times(a.low, b.low), times(a.low, b.high), times(a.high, b.low), times(a.high, b.high)});
  return {low, high};
}

// 1 / a for a range without negative values: 1/0 is infinity.
Range inverse(const Range& a) {
  return a.low >= 0 ? Range{1 / a.high, a.low > 0 ? 1 / a.low : kInfinity} : Range{};
}

std::int64_t per_sample(const Shape& shape) {
  return shape.rank() > 0 && shape[0] > 0 ? shape.elements() / shape[0] : 0;
}

class FactFinder {
 public:
  explicit FactFinder(const Graph& graph)
      : graph_(graph), facts_(graph.values().size()), producers_(graph.values().size()) {}

  Facts of_output() {
    for (const Node& node : graph_.nodes()) {
      for (const ValueId id : node.outputs) producers_[index(id)] = &node;
      const bool one = node.outputs.size() == 1 || layer_if<Split>(node) != nullptr;
      for (const ValueId id : node.outputs) {
        if (one) facts_[index(id)] = of(node);
      }
    }
    return of(graph_.outputs().at(0));
  }

  Facts of(ValueId id) const {
    if (id == kNoValue) return {};
    const Value& value = graph_.value(id);
    if (value.constant == nullptr) return facts_[index(id)];
    Facts facts;
    if (value.desc.dtype != DType::f32 || value.desc.elements() == 0 || value.desc.elements() > kMaxConstants)
      return facts;
    const auto [low, high] = std::ranges::minmax(value.constant->values<float>());
    facts.range = Range{low, high}.checked();
    return facts;
  }

 private:
  const Shape& shape(ValueId id) const { return graph_.value(id).desc.shape; }

  Facts of(const Node& node) const {
    if (const auto* unary = layer_if<Unary>(node)) return of_unary(unary->attributes(), of(node.inputs[0]));
    if (const auto* binary = layer_if<Binary>(node)) return of_binary(node, binary->attributes());
    if (const auto* softmax = layer_if<Softmax>(node)) return of_softmax(node, softmax->attributes());
    if (const auto* reduce = layer_if<Reduce>(node)) return of_reduce(node, reduce->attributes());
    if (const auto* pool = layer_if<Pool>(node)) return of_pool(node, pool->attributes());
    if (layer_if<Concat>(node)) return of_concat(node);
    if (layer_if<Where>(node)) return {join(of(node.inputs[1]).range, of(node.inputs[2]).range), {}};
    // In what integers mean nothing changes but for rounding.
    if (layer_if<Quantize>(node) || layer_if<Dequantize>(node) || layer_if<ToLayout>(node))
      return of(node.inputs[0]);
    if (layer_if<Cast>(node)) return of_cast(node);
    const Movement movement = node.layer->traits().movement;
    if (movement == Movement::rearranged || movement == Movement::repeated) return moved(node);
    return {};
  }

  Facts of_cast(const Node& node) const {
    const DType from = graph_.value(node.inputs[0]).desc.dtype;
    const DType to = graph_.value(node.outputs[0]).desc.dtype;
    const auto is_real = [](DType type) {
      return type == DType::f32 || type == DType::f64 || is_stored_float(type);
    };
    if (from == DType::boolean && is_real(to)) return {{0, 1}, {}};
    return is_real(from) && is_real(to) ? of(node.inputs[0]) : Facts{};
  }

  // Elements in other places: their sum stays where all of them do and samples are kept apart.
  Facts moved(const Node& node) const {
    Facts facts = of(node.inputs[0]);
    const Shape &from = shape(node.inputs[0]), &to = shape(node.outputs[0]);
    const auto* transpose = layer_if<Transpose>(node);
    const bool all = from.elements() == to.elements() && per_sample(from) == per_sample(to) &&
                     (layer_if<Reshape>(node) || layer_if<DepthToSpace>(node) ||
                      (transpose != nullptr && transpose->attributes().permutation.at(0) == 0));
    if (!all) {
      facts.total.reset();
      facts.logarithms = 0;
    }
    return facts;
  }

  static Facts of_unary(const UnaryAttributes& function, const Facts& x) {
    using enum UnaryKind;
    const Range& r = x.range;
    Facts y;
    switch (function.kind) {
      case hard_sigmoid:
        y.range = {0, 1};
        break;
      case softsign:
        y.range = {-1, 1};
        break;
      case abs:
        y.range = {0, std::max(std::abs(r.low), std::abs(r.high))};
        break;
      case neg:
        y.range = {-r.high, -r.low};
        if (x.total) y.total = -*x.total;
        break;
      case reciprocal:
        y.range = inverse(r);
        break;
      case log:
        y.range = {r.low > 0 ? std::log(r.low) : -kInfinity, r.high > 0 ? std::log(r.high) : kInfinity};
        y.logarithms = x.groups();
        break;
      case relu:
      case clip:
      case sigmoid:
      case tanh:
      case exp:
      case erf:
      case softplus:
        y.range = {unary_value(function, r.low), unary_value(function, r.high)};
        if (function.kind == relu || function.kind == clip) keep_total(x, y);
        break;
      default:
        break;
    }
    y.range = y.range.checked();
    return y;
  }

  // Where a clip hardly touches what there is.
  static void keep_total(const Facts& x, Facts& y) {
    if (y.range.low - x.range.low <= kClose && x.range.high - y.range.high <= kClose) y.total = x.total;
  }

  Facts of_binary(const Node& node, const BinaryAttributes& attributes) const {
    using enum BinaryKind;
    const ValueId first = node.inputs[0], second = node.inputs[1];
    const Facts a = of(first), b = of(second);
    Facts y;
    if (is_comparison(attributes.kind)) {
      y.range = {0, 1};
      return y;
    }
    switch (attributes.kind) {
      case add:
        y.range = {a.range.low + b.range.low, a.range.high + b.range.high};
        break;
      case sub:
        y.range = {a.range.low - b.range.high, a.range.high - b.range.low};
        break;
      case mul:
        y.range = product(a.range, b.range);
        break;
      case div:
        y = of_quotient(first, second);
        break;
      case min:
        y.range = {std::min(a.range.low, b.range.low), std::min(a.range.high, b.range.high)};
        break;
      case max:
        y.range = {std::max(a.range.low, b.range.low), std::max(a.range.high, b.range.high)};
        break;
      default:
        break;
    }
    y.range = y.range.checked();
    if (!y.total) y.total = total_of_binary(node, attributes.kind);
    if (attributes.activation.is_identity()) return y;
    UnaryAttributes clip{UnaryKind::clip, attributes.activation.low, attributes.activation.high};
    return of_unary(clip, y);
  }

  // Sums add up, and a number scales them.
  std::optional<double> total_of_binary(const Node& node, BinaryKind kind) const {
    const Shape& out = shape(node.outputs[0]);
    const Facts a = of(node.inputs[0]), b = of(node.inputs[1]);
    if ((kind == BinaryKind::add || kind == BinaryKind::sub) && a.total && b.total &&
        shape(node.inputs[0]) == out && shape(node.inputs[1]) == out)
      return kind == BinaryKind::add ? *a.total + *b.total : *a.total - *b.total;
    const auto number = [](const Facts& facts) { return facts.range.low == facts.range.high; };
    if (kind == BinaryKind::mul && a.total && number(b) && shape(node.inputs[0]) == out)
      return *a.total * b.range.low;
    if (kind == BinaryKind::mul && b.total && number(a) && shape(node.inputs[1]) == out)
      return *b.total * a.range.low;
    if (kind == BinaryKind::div && a.total && number(b) && b.range.low != 0 && shape(node.inputs[0]) == out)
      return *a.total / b.range.low;
    return {};
  }

  // x / sum(x) and x / (x + c) lie in [0, 1] where x does not become negative.
  Facts of_quotient(ValueId x, ValueId divisor) const {
    const Facts a = of(x), b = of(divisor);
    Facts y{product(a.range, inverse(b.range)), {}};
    const Node* node = producers_[index(divisor)];
    if (node == nullptr || a.range.low < 0) return y;
    const auto* reduce = layer_if<Reduce>(*node);
    if (reduce != nullptr && reduce->attributes().kind == ReduceKind::sum && node->inputs[0] == x) {
      const bool apart = !reduced_dims(reduce->attributes(), shape(x))[0];
      return {{0, 1}, apart ? std::optional<double>(per_sample(shape(divisor))) : std::nullopt};
    }
    const auto* sum = layer_if<Binary>(*node);
    if (sum == nullptr || sum->attributes().kind != BinaryKind::add) return y;
    for (int i = 0; i < 2; ++i) {
      const auto side = static_cast<std::size_t>(i);
      if (node->inputs[side] == x && of(node->inputs[1 - side]).range.low >= 0) y.range = {0, 1};
    }
    return y;
  }

  Facts of_softmax(const Node& node, const SoftmaxAttributes& attributes) const {
    const Shape& x = shape(node.inputs[0]);
    const SoftmaxGroups groups = softmax_groups(attributes, x);
    std::int64_t size = 1;
    for (int d = groups.begin; d < groups.end; ++d) size *= x[d];
    const bool apart = groups.begin > 0 && size > 0;
    Facts y;
    const double total = apart ? static_cast<double>(per_sample(x)) / static_cast<double>(size) : 0;
    if (attributes.log) {
      y.range = {-kInfinity, 0};
      y.logarithms = static_cast<int>(total);
    } else {
      y.range = {0, 1};
      if (apart) y.total = total;
    }
    return y;
  }

  // The sum of a sample over places that become one, or their mean.
  std::optional<double> reduced_total(const Node& node, bool mean) const {
    const Facts x = of(node.inputs[0]);
    const std::int64_t from = per_sample(shape(node.inputs[0])), to = per_sample(shape(node.outputs[0]));
    if (!x.total || from == 0 || to == 0) return {};
    return mean ? *x.total * static_cast<double>(to) / static_cast<double>(from) : *x.total;
  }

  Facts of_reduce(const Node& node, const ReduceAttributes& attributes) const {
    using enum ReduceKind;
    const Range x = of(node.inputs[0]).range;
    const bool apart = !reduced_dims(attributes, shape(node.inputs[0]))[0];
    const std::int64_t to = std::max<std::int64_t>(shape(node.outputs[0]).elements(), 1);
    const double count = static_cast<double>(shape(node.inputs[0]).elements()) / static_cast<double>(to);
    if (attributes.kind == mean) return {x, apart ? reduced_total(node, true) : std::nullopt};
    if (attributes.kind == max || attributes.kind == min) return {x, {}};
    if (attributes.kind == prod && x.within(0, 1)) return {{0, 1}, {}};
    if (attributes.kind == sum)
      return {{times(count, x.low), times(count, x.high)}, apart ? reduced_total(node, false) : std::nullopt};
    return {};
  }

  Facts of_pool(const Node& node, const PoolAttributes& attributes) const {
    const Range x = of(node.inputs[0]).range;
    if (attributes.kind == PoolKind::max) return {x, {}};
    if (attributes.kind != PoolKind::average) return {};
    if (attributes.global) return {x, reduced_total(node, true)};
    return {attributes.count_include_pad ? join(x, {0, 0}) : x, {}};
  }

  Facts of_concat(const Node& node) const {
    const auto* concat = layer_if<Concat>(node);
    Facts y = of(node.inputs[0]);
    for (std::size_t i = 1; i < node.inputs.size(); ++i) {
      const Facts next = of(node.inputs[i]);
      y.range = join(y.range, next.range);
      y.logarithms = y.logarithms > 0 && next.logarithms > 0 ? y.logarithms + next.logarithms : 0;
      y.total = y.total && next.total ? std::optional(*y.total + *next.total) : std::nullopt;
    }
    if (concat->attributes().axis == 0 || -concat->attributes().axis == shape(node.outputs[0]).rank()) {
      y.total.reset();
      y.logarithms = 0;
    }
    return y;
  }

  const Graph& graph_;
  std::vector<Facts> facts_;  // of each value
  std::vector<const Node*> producers_;
};

constexpr double kSumError = 1e-3;

// What all sampled scores of a sample have in common; rows that overflowed are left out.
struct RowFacts {
  std::int64_t rows = 0;
  double low = kInfinity, high = -kInfinity;
  double least_sum = kInfinity, greatest_sum = -kInfinity;
  double least_exp_sum = kInfinity, greatest_exp_sum = -kInfinity;

  void add(std::span<const float> row) {
    double sum = 0, exp_sum = 0;
    const auto [least, most] = std::ranges::minmax(row);
    for (const float x : row) {
      sum += x;
      exp_sum += std::exp(static_cast<double>(x));
    }
    if (std::isnan(sum) || most == static_cast<float>(kInfinity)) return;
    ++rows;
    low = std::min<double>(low, least);
    high = std::max<double>(high, most);
    least_sum = std::min(least_sum, sum);
    greatest_sum = std::max(greatest_sum, sum);
    least_exp_sum = std::min(least_exp_sum, exp_sum);
    greatest_exp_sum = std::max(greatest_exp_sum, exp_sum);
  }
  bool of_logarithms() const {
    return high <= kSumError && least_exp_sum > 1 - kSumError && greatest_exp_sum < 1 + kSumError;
  }
  bool of_shares() const { return low >= -kSumError && greatest_sum < 1 + kSumError; }
};

// The kind of shares that are moved, cut and put together in forms that are not followed above.
std::optional<ScoreKind> sampled_kind(const Graph& graph, const FactFinder& finder) {
  const TensorDesc& output = graph.value(graph.outputs().at(0)).desc;
  const std::int64_t values = per_sample(output.shape);
  if (output.dtype != DType::f32 || values < 1) return {};
  RowFacts facts;
  const auto width = static_cast<std::size_t>(values);
  const auto bounds = [&](ValueId id) -> ValueRange { return finder.of(id).range; };
  sample_scores(graph, bounds, [&](const Tensor& sample) {
    if (sample.shape() != output.shape) return false;
    const std::span<const float> all = sample.values<float>();
    for (std::size_t i = 0; i < all.size(); i += width) facts.add(all.subspan(i, width));
    return facts.rows == 0 || facts.of_logarithms() || facts.of_shares();
  });
  constexpr std::int64_t kMinRows = 4, kMinRowsOfShares = 16;
  if (facts.rows < kMinRows) return {};
  if (facts.high <= kSumError && facts.least_exp_sum > 1 - kSumError &&
      facts.greatest_exp_sum < 1 + kSumError)
    return ScoreKind::log_softmax;
  if (facts.low < -kSumError || facts.greatest_sum > 1 + kSumError) return {};
  if (facts.least_sum > 1 - kSumError) return ScoreKind::softmax;
  // Probabilities that never exceed 1 together, but for those of classes that were cut off.
  const bool nearly_all = values > 1 && facts.rows >= kMinRowsOfShares && facts.greatest_sum > 0.9;
  return nearly_all ? std::optional(ScoreKind::softmax) : std::nullopt;
}

}  // namespace

ScoreKind score_kind(const Graph& graph) {
  FactFinder finder(graph);
  const Facts facts = finder.of_output();
  if (facts.groups() == 1) return ScoreKind::softmax;
  if (facts.logarithms == 1) return ScoreKind::log_softmax;
  if (const auto kind = sampled_kind(graph, finder)) return *kind;
  // A little is added to a sigmoid where its logarithm is taken in training.
  constexpr double kLittle = 1e-5;
  return facts.range.within(-kLittle, 1 + kLittle) ? ScoreKind::sigmoid : ScoreKind::logits;
}

std::string heads_note(const Graph& graph, ScoreKind kind) {
  if (kind != ScoreKind::sigmoid && kind != ScoreKind::logits) return {};
  const Facts facts = FactFinder(graph).of_output();
  if (kind == ScoreKind::sigmoid && facts.groups() > 1)
    return fmt::format(
        "the scores add up to {0}, as those of {0} softmaxes side by side: in each of these one class is "
        "right, but all classes are taken for independent of each other",
        facts.groups());
  if (kind == ScoreKind::logits && facts.logarithms > 1)
    return fmt::format(
        "the scores are logarithms of {} softmaxes side by side: in each of these one class is right, but "
        "one "
        "softmax is applied to all of them",
        facts.logarithms);
  return {};
}

std::string score_kind_list() {
  std::string names;
  for (const ScoreKind kind : kScoreKinds)
    names.append(names.empty() ? "" : ", ").append(score_kind_name(kind));
  return names;
}

}  // namespace pipit::internal
