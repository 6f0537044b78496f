#include "models/onnx/read/attention.h"

#include <cmath>
#include <limits>

#include "layers/common/dispatch.h"
#include "layers/ops/reshaping.h"
#include "layers/ops/softmax.h"

namespace pipit::internal::onnx {

namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

// Whether no row of a bias that is known is all -inf.
bool leaves_every_query(NodeContext& node, const Tensor& bias) {
  const std::int64_t keys = bias.shape().rank() == 0 ? 1 : bias.shape()[bias.shape().rank() - 1];
  bool leaves = true;
  with_dtype(node.desc(node.input(0)).dtype, [&]<typename T>(std::type_identity<T>) {
    if constexpr (std::is_floating_point_v<T>) {
      const std::span<const T> values = bias.values<T>();
      for (std::size_t row = 0; row < values.size(); row += static_cast<std::size_t>(keys)) {
        bool any = false;
        for (const T value : values.subspan(row, static_cast<std::size_t>(keys)))
          any = any || !(std::isinf(value) && value < 0);
        leaves = leaves && any;
      }
    }
  });
  return leaves;
}

void check_parts(const Steps& steps, const AttentionParts& parts) {
  const Shape& q = steps.shape(parts.query);
  const Shape& k = steps.shape(parts.key);
  const Shape& v = steps.shape(parts.value);
  if (q.rank() != 4 || k.rank() != 4 || v.rank() != 4)
    fail("query {}, key {}, value {}: expected 4 dimensions", q.str(), k.str(), v.str());
  const bool fits = q[0] == k[0] && q[0] == v[0] && k[1] == v[1] && k[2] == v[2] && q[3] == k[3] &&
                    k[1] > 0 && q[1] % k[1] == 0;
  if (!fits) fail("query {}, key {} and value {} do not fit", q.str(), k.str(), v.str());
}

// Heads that share a key are rows of one product. A bias [samples or 1, heads or 1, queries or 1, keys], or of fewer
// dimensions, for such rows.
ValueId bias_of_groups(Steps& steps, ValueId bias, const Shape& scores, std::int64_t key_heads) {
  const std::int64_t heads = scores[1], queries = scores[2], group = heads / key_heads;
  const Shape given = steps.shape(bias);
  std::vector<std::int64_t> dims(static_cast<std::size_t>(4 - given.rank()), 1);
  for (const std::int64_t extent : given.dims()) dims.push_back(extent);
  for (int d = 0; d < 4; ++d) {
    if (dims[static_cast<std::size_t>(d)] != 1 && dims[static_cast<std::size_t>(d)] != scores[d])
      fail("mask {} for scores {}", given.str(), scores.str());
  }
  if (dims[1] == 1 && dims[2] == 1) return steps.reshape(bias, Shape(dims));
  const Shape apart{dims[0], dims[1] == 1 ? 1 : key_heads, dims[1] == 1 ? 1 : group, dims[2], dims[3]};
  const Shape whole{apart[0], apart[1], group, queries, dims[3]};
  ValueId spread = steps.reshape(bias, apart);
  if (!(apart == whole)) spread = steps.add<Expand>({spread}, ExpandAttributes{whole});
  return steps.reshape(spread, Shape{apart[0], apart[1], group * queries, dims[3]});
}

}  // namespace

AttentionResults attend(Steps& steps, const AttentionParts& parts) {
  check_parts(steps, parts);
  const Shape q = steps.shape(parts.query);
  const Shape k = steps.shape(parts.key);
  const DType type = steps.dtype(parts.query);
  const double scale = parts.scale.value_or(1 / std::sqrt(static_cast<double>(q[3])));
  // Heads that share a key are rows of one product, and of all that follows.
  const Shape scores{q[0], q[1], q[2], k[2]};
  const Shape rows{q[0], k[1], q[1] / k[1] * q[2], k[2]};
  const ValueId joined = steps.reshape(parts.query, Shape{rows[0], rows[1], rows[2], q[3]});
  const ValueId query = steps.binary(BinaryKind::mul, joined, steps.number(type, scale));
  const bool shares = k[1] != q[1];
  const ValueId bias_of_rows =
      shares && parts.bias != kNoValue ? bias_of_groups(steps, parts.bias, scores, k[1]) : parts.bias;
  AttentionResults results{};
  results.scores = steps.matmul(query, steps.transpose(parts.key, {0, 1, 3, 2}));
  results.capped = results.scores;
  if (parts.softcap != 0) {
    const ValueId cap = steps.number(type, parts.softcap);
    const ValueId inside = steps.unary(steps.binary(BinaryKind::div, results.scores, cap), {UnaryKind::tanh});
    results.capped = steps.binary(BinaryKind::mul, inside, cap);
  }
  results.biased = add_bias(steps, results.capped, bias_of_rows);
  if (!(steps.shape(results.biased) == rows))
    fail("mask {} for scores {}", steps.shape(parts.bias).str(), scores.str());
  results.probabilities = steps.add<Softmax>({results.biased}, SoftmaxAttributes{.axis = 3});
  if (parts.bias != kNoValue) {
    const Value& bias = steps.node().value(parts.bias);
    if (!bias.is_constant() || !leaves_every_query(steps.node(), *bias.constant)) {
      const ValueId most = steps.reduce(ReduceKind::max, bias_of_rows, {-1});
      const ValueId none = steps.binary(BinaryKind::equal, most, steps.number(type, kMinusInfinity));
      results.probabilities = steps.where(none, steps.number(type, 0), results.probabilities);
    }
  }
  results.output = steps.reshape(steps.matmul(results.probabilities, parts.value),
                                 Shape{q[0], q[1], q[2], steps.shape(parts.value)[3]});
  for (ValueId* shown : {&results.scores, &results.capped, &results.biased, &results.probabilities})
    *shown = steps.reshape(*shown, scores);
  return results;
}

ValueId split_heads(Steps& steps, ValueId x, std::int64_t heads) {
  const Shape shape = steps.shape(x);
  if (shape.rank() != 3) fail("{}: expected [batch, positions, heads x size]", shape.str());
  if (heads < 1 || shape[2] % heads != 0) fail("{} heads of {}", heads, shape.str());
  return steps.transpose(steps.reshape(x, Shape{shape[0], shape[1], heads, shape[2] / heads}), {0, 2, 1, 3});
}

ValueId join_heads(Steps& steps, ValueId x) {
  const Shape shape = steps.shape(x);
  return steps.reshape(steps.transpose(x, {0, 2, 1, 3}), Shape{shape[0], shape[2], shape[1] * shape[3]});
}

ValueId add_bias(Steps& steps, ValueId a, ValueId b) {
  if (a == kNoValue) return b;
  return b == kNoValue ? a : steps.binary(BinaryKind::add, a, b);
}

ValueId bias_where(Steps& steps, ValueId allowed, DType type, double masked) {
  return steps.where(allowed, steps.number(type, 0), steps.number(type, masked));
}

ValueId window_bias(Steps& steps, const AttentionWindow& window, std::int64_t queries, std::int64_t keys,
                    std::int64_t offset, DType type, double masked) {
  Tensor allowed = steps.node().allocate(TensorDesc{Shape{queries, keys}, DType::boolean});
  std::int64_t at = 0;
  for (bool& value : allowed.values<bool>()) {
    const std::int64_t before = at / keys + offset - at % keys;
    value = (window.left < 0 || before <= window.left) && (window.right < 0 || -before <= window.right);
    ++at;
  }
  return bias_where(steps, steps.constant(std::move(allowed)), type, masked);
}

}  // namespace pipit::internal::onnx
