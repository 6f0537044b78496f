// Attention of ONNX, and MultiHeadAttention and Attention of com.microsoft.
#include <fmt/format.h>

#include <limits>

#include "layers/ops/reshaping.h"
#include "layers/ops/slicing.h"
#include "models/onnx/read/attention.h"
#include "models/onnx/read/operators.h"

namespace pipit::internal::onnx {

namespace {

constexpr double kMasked = -std::numeric_limits<double>::infinity();

// Without a value at the end of a list: an output that does not exist.
struct Cache {
  ValueId key, value;
};

// Keys and values of earlier positions come before those of the node.
ValueId after_past(Steps& steps, int past, ValueId x) {
  if (!steps.node().has_input(past)) return x;
  return steps.concat({steps.node().input(past), x}, 2);
}

// Masks that end before the last key hide those after their end.
ValueId padded_mask(Steps& steps, ValueId mask, std::int64_t keys) {
  const Shape shape = steps.shape(mask);
  if (shape.rank() == 0 || shape.rank() > 4) fail("attn_mask is {}", shape.str());
  const int last = shape.rank() - 1;
  const bool allowed = steps.dtype(mask) == DType::boolean;
  if (shape[last] >= keys || shape[last] == 1) return mask;
  PadAttributes pad{.value = allowed ? 0 : kMasked};
  pad.begin.resize(static_cast<std::size_t>(shape.rank()));
  pad.end.resize(static_cast<std::size_t>(shape.rank()));
  pad.end.back() = keys - shape[last];
  return steps.add<Pad>({mask}, std::move(pad));
}

// Of as many keys as the sample has: those from there on are hidden, and its queries are the last of them.
ValueId length_bias(Steps& steps, ValueId lengths, const AttentionWindow& window, std::int64_t queries,
                    std::int64_t keys, DType type) {
  const std::int64_t samples = steps.shape(lengths).elements();
  const ValueId count = steps.reshape(steps.cast(lengths, DType::i64), Shape{samples, 1, 1, 1});
  const ValueId position = steps.iota(keys, 3, 4);
  ValueId allowed = steps.binary(BinaryKind::less, position, count);
  if (window.limited()) {
    const ValueId own = steps.binary(
        BinaryKind::add,
        steps.binary(BinaryKind::sub, count, steps.number(DType::i64, static_cast<double>(queries))),
        steps.iota(queries, 2, 4));
    const ValueId before = steps.binary(BinaryKind::sub, own, position);
    const auto limit = [&](BinaryKind kind, std::int64_t distance) {
      const ValueId inside =
          steps.binary(kind, before, steps.number(DType::i64, static_cast<double>(distance)));
      allowed = steps.binary(BinaryKind::logical_and, allowed, inside);
    };
    if (window.left >= 0) limit(BinaryKind::less_equal, window.left);
    if (window.right >= 0) limit(BinaryKind::greater_equal, -window.right);
  }
  return bias_where(steps, allowed, type, kMasked);
}

AttentionWindow read_attention_window(NodeContext& node) {
  AttentionWindow window{node.attributes().integer("left_window_size", -1),
                         node.attributes().integer("right_window_size", -1)};
  if (window.left < -1 || window.right < -1)
    fail("window of {} before and {} after", window.left, window.right);
  if (node.attributes().flag("is_causal", false)) window.right = 0;
  return window;
}

// Inputs: query, key, value, mask, past key, past value, keys per sample. Outputs: result, key, value, scores.
std::vector<ValueId> convert_onnx_attention(NodeContext& node) {
  Steps steps(node);
  AttentionParts parts;
  const bool flat = node.input_shape(0).rank() == 3;
  const DType type = node.desc(node.input(0)).dtype;
  const std::int64_t heads = node.attributes().integer("q_num_heads", 0);
  const std::int64_t key_heads = node.attributes().integer("kv_num_heads", heads);
  parts.query = flat ? split_heads(steps, node.input(0), heads) : node.input(0);
  Cache cache{flat ? split_heads(steps, node.input(1), key_heads) : node.input(1),
              flat ? split_heads(steps, node.input(2), key_heads) : node.input(2)};
  if (node.has_input(4) != node.has_input(5)) fail("past_key and past_value come together");
  const std::int64_t past = node.has_input(4) ? node.input_shape(4)[2] : 0;
  parts.key = cache.key = after_past(steps, 4, cache.key);
  parts.value = cache.value = after_past(steps, 5, cache.value);
  if (node.attributes().has("scale")) parts.scale = node.attributes().number("scale", 1);
  parts.softcap = node.attributes().number("softcap", 0);
  node.attributes().ignore({"softmax_precision"});  // f32 at least in any case
  const AttentionWindow window = read_attention_window(node);
  const Shape query = steps.shape(parts.query);
  const std::int64_t keys = steps.shape(parts.key).rank() == 4 ? steps.shape(parts.key)[2] : 0;
  if (query.rank() != 4) fail("query {}: expected 3 or 4 dimensions", query.str());
  if (node.has_input(3)) {
    parts.bias = padded_mask(steps, node.input(3), keys);
    if (steps.dtype(parts.bias) == DType::boolean) parts.bias = bias_where(steps, parts.bias, type, kMasked);
  }
  if (node.has_input(6)) {
    parts.bias = add_bias(steps, parts.bias, length_bias(steps, node.input(6), window, query[2], keys, type));
  } else if (window.limited()) {
    parts.bias = add_bias(steps, parts.bias, window_bias(steps, window, query[2], keys, past, type, kMasked));
  }
  const std::int64_t mode = node.attributes().integer("qk_matmul_output_mode", 0);
  if (mode < 0 || mode > 3) fail("attribute 'qk_matmul_output_mode' is {}", mode);
  const AttentionResults results = attend(steps, parts);
  const ValueId shown[] = {results.scores, results.capped, results.biased, results.probabilities};
  return {flat ? join_heads(steps, results.output) : results.output, cache.key, cache.value,
          shown[static_cast<std::size_t>(mode)]};
}

// key_padding_mask or mask_index of com.microsoft: 1 for every key that counts, or how many of each sample do.
ValueId padding_bias(Steps& steps, ValueId mask, std::int64_t samples, std::int64_t keys, DType type,
                     double masked) {
  const Shape shape = steps.shape(mask);
  const ValueId whole = steps.cast(mask, DType::i64);
  ValueId allowed = kNoValue;
  if (shape == Shape{samples}) {
    allowed =
        steps.binary(BinaryKind::less, steps.iota(keys, 3, 4), steps.reshape(whole, Shape{samples, 1, 1, 1}));
  } else if (shape.rank() == 2 && shape[1] == keys) {
    allowed = steps.cast(steps.reshape(whole, Shape{shape[0], 1, 1, keys}), DType::boolean);
  } else if (shape.rank() == 3 && shape[2] == keys) {
    allowed = steps.cast(steps.reshape(whole, Shape{shape[0], 1, shape[1], keys}), DType::boolean);
  } else {
    fail_unsupported("a mask of shape {} for {} samples of {} keys", shape.str(), samples, keys);
  }
  return bias_where(steps, allowed, type, masked);
}

// What both operators of com.microsoft do once they have their heads; the mask is input `mask`, what is added to the
// scores the next one.
std::vector<ValueId> finish_microsoft(Steps& steps, AttentionParts& parts, int mask, int bias,
                                      std::int64_t past) {
  NodeContext& node = steps.node();
  const DType type = steps.dtype(parts.query);
  const double masked = node.attributes().number("mask_filter_value", -10000);
  const float scale = node.attributes().number("scale", 0);
  if (scale != 0) parts.scale = scale;
  const std::int64_t samples = steps.shape(parts.query)[0];
  const std::int64_t queries = steps.shape(parts.query)[2];
  const std::int64_t keys = steps.shape(parts.key)[2];
  if (node.has_input(mask)) parts.bias = padding_bias(steps, node.input(mask), samples, keys, type, masked);
  if (node.has_input(bias)) parts.bias = add_bias(steps, parts.bias, node.input(bias));
  if (node.attributes().flag("unidirectional", false)) {
    const ValueId causal = window_bias(steps, {-1, 0}, queries, keys, past, type, kMasked);
    parts.bias = add_bias(steps, parts.bias, causal);
  }
  const AttentionResults results = attend(steps, parts);
  return {join_heads(steps, results.output), parts.key, parts.value};
}

std::int64_t required_heads(NodeContext& node) {
  const std::int64_t heads = node.attributes().required_integer("num_heads");
  if (heads < 1) fail("attribute 'num_heads' is {}", heads);
  return heads;
}

// x [batch, positions, heads, parts, size], of which one part as [batch, heads, positions, size].
ValueId packed_part(Steps& steps, ValueId x, std::int64_t part) {
  const Shape shape = steps.shape(x);
  const ValueId one =
      steps.reshape(steps.slice(x, 3, part, part + 1), Shape{shape[0], shape[1], shape[2], shape[4]});
  return steps.transpose(one, {0, 2, 1, 3});
}

// Inputs: query, key, value, bias, mask of keys, what is added to the scores, past key, past value.
std::vector<ValueId> convert_multi_head_attention(NodeContext& node) {
  Steps steps(node);
  const std::int64_t heads = required_heads(node);
  AttentionParts parts;
  const Shape query = node.input_shape(0);
  std::int64_t start = 0;  // in the bias of all projections
  // A projection, with its part of their common bias.
  const auto projection = [&](int input) {
    ValueId x = node.input(input);
    if (node.has_input(3)) {
      const std::int64_t width = steps.shape(x)[2];
      if (node.input_shape(3).rank() != 1 || start + width > node.input_shape(3)[0])
        fail("bias {} for {} more from {} on", node.input_shape(3).str(), width, start);
      x = steps.binary(BinaryKind::add, x, steps.slice(node.input(3), 0, start, start + width));
      start += width;
    }
    return split_heads(steps, x, heads);
  };
  const auto is_packed = [&](int input, std::int64_t count) {
    const Shape& shape = node.input_shape(input);
    return shape.rank() == 5 && shape[2] == heads && shape[3] == count;
  };
  if (is_packed(0, 3)) {
    if (node.has_input(3)) fail_unsupported("a bias of packed queries, keys and values");
    parts.query = packed_part(steps, node.input(0), 0);
    parts.key = packed_part(steps, node.input(0), 1);
    parts.value = packed_part(steps, node.input(0), 2);
  } else {
    if (query.rank() != 3) fail("query {}: expected 3 dimensions, or 5 of packed ones", query.str());
    parts.query = projection(0);
    if (is_packed(1, 2)) {
      if (node.has_input(3)) fail_unsupported("a bias of packed keys and values");
      parts.key = packed_part(steps, node.input(1), 0);
      parts.value = packed_part(steps, node.input(1), 1);
    } else if (node.input_shape(1).rank() == 4) {
      if (node.has_input(3)) fail_unsupported("a bias with keys by head");
      parts.key = node.input(1);
      parts.value = node.input(2);
    } else {
      parts.key = projection(1);
      parts.value = projection(2);
    }
  }
  std::int64_t past = 0;
  if (node.has_input(6) && node.has_input(7)) {
    past = node.input_shape(6).rank() == 4 ? node.input_shape(6)[2] : 0;
    parts.key = after_past(steps, 6, parts.key);
    parts.value = after_past(steps, 7, parts.value);
  }
  return finish_microsoft(steps, parts, 4, 5, past);
}

// Inputs: x, weights of all three projections, their bias, mask, past, what is added to the scores.
std::vector<ValueId> convert_microsoft_attention(NodeContext& node) {
  Steps steps(node);
  const std::int64_t heads = required_heads(node);
  if (node.has_input(4) || node.has_input(6)) fail_unsupported("input 'past'");
  if (node.attributes().flag("do_rotary", false)) fail_unsupported("attribute 'do_rotary' = 1");
  const ValueId projected =
      add_bias(steps, steps.matmul(node.input(0), node.input(1)), node.optional_input(2));
  const std::int64_t width = steps.shape(projected)[steps.shape(projected).rank() - 1];
  const std::vector<std::int64_t> sizes =
      node.attributes().integers("qkv_hidden_sizes").value_or(std::vector<std::int64_t>(3, width / 3));
  if (sizes.size() != 3 || sizes[0] < 0 || sizes[1] < 0 || sizes[2] < 0 ||
      sizes[0] + sizes[1] + sizes[2] != width)
    fail("projections of {} in all do not fit {} columns", fmt::join(sizes, ","), width);
  const std::vector<ValueId> parts_of =
      steps.emit(std::make_shared<Split>(SplitAttributes{2, sizes}), {projected});
  AttentionParts parts;
  parts.query = split_heads(steps, parts_of[0], heads);
  parts.key = split_heads(steps, parts_of[1], heads);
  parts.value = split_heads(steps, parts_of[2], heads);
  std::vector<ValueId> outputs = finish_microsoft(steps, parts, 3, 5, 0);
  outputs.resize(1);
  return outputs;
}

constexpr Operator kAttentionOperators[] = {
    {"Attention", 23, kLastOpset, 3, 7, convert_onnx_attention},
    {"com.microsoft::Attention", 1, kLastOpset, 2, 7, convert_microsoft_attention},
    {"com.microsoft::MultiHeadAttention", 1, kLastOpset, 1, 8, convert_multi_head_attention},
};

}  // namespace

std::span<const Operator> attention_operators() {
  return kAttentionOperators;
}

}  // namespace pipit::internal::onnx
