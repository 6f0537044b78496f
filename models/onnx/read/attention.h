// Scaled dot-product attention in layers that exist: two matrix products and a softmax.
#pragma once

#include <optional>

#include "models/onnx/read/steps.h"

namespace pipit::internal::onnx {

/// What a query may see of the keys, beside what a mask says. Queries are the last ones of a sequence: query i has the
/// position offset + i.
struct AttentionWindow {
  std::int64_t left = -1;   ///< positions before its own; -1: all
  std::int64_t right = -1;  ///< positions after its own; 0: causal
  bool limited() const { return left >= 0 || right >= 0; }
};

struct AttentionParts {
  ValueId query = kNoValue;  ///< [batch, heads, queries, size]
  ValueId key = kNoValue;    ///< [batch, heads that share a key, keys, size]
  ValueId value = kNoValue;  ///< [batch, heads that share a key, keys, size of results]
  /// Added to the scores, broadcast to [batch, heads, queries, keys]; kNoValue: nothing. Rows of -inf give 0.
  ValueId bias = kNoValue;
  std::optional<double> scale = {};  ///< nothing: 1 / sqrt(size)
  double softcap = 0;                ///< 0: none
};

struct AttentionResults {
  ValueId output;  ///< [batch, heads, queries, size of results]
  ValueId scores, capped, biased, probabilities;
};
AttentionResults attend(Steps& steps, const AttentionParts& parts);

/// x [batch, positions, heads * size] as [batch, heads, positions, size]; throws Error where heads do not divide it.
ValueId split_heads(Steps& steps, ValueId x, std::int64_t heads);
ValueId join_heads(Steps& steps, ValueId x);

/// The sum of two biases, of which either may be kNoValue.
ValueId add_bias(Steps& steps, ValueId a, ValueId b);
/// 0 where `allowed`, `masked` elsewhere.
ValueId bias_where(Steps& steps, ValueId allowed, DType type, double masked);
/// A constant bias [queries, keys].
ValueId window_bias(Steps& steps, const AttentionWindow& window, std::int64_t queries, std::int64_t keys,
                    std::int64_t offset, DType type, double masked);

}  // namespace pipit::internal::onnx
