// Which layers are one attention: softmax(scale q k + bias) v, with the transposes around.
#pragma once

#include <optional>
#include <span>

#include "engine/plan/kernel.h"

namespace pipit::internal {

/// An operand in its memory layout, before the transposes of the chain.
struct AttentionOperand {
  int input = -1;                    ///< of the kernel; -1: a constant
  const Tensor* constant = nullptr;  ///< of a bias
  Shape shape;
  Strides strides{};
  float scale = 1;
};

struct AttentionChain {
  AttentionOperand query;                ///< [..., queries, size]
  AttentionOperand key;                  ///< [..., size, keys]
  AttentionOperand value;                ///< [..., keys, size of results]
  std::optional<AttentionOperand> bias;  ///< broadcast to [..., queries, keys]
  bool zero_without_keys = false;        ///< rows whose bias is -inf throughout give 0 instead of NaN
  Shape result;                          ///< [..., queries, size of results]
  Strides result_strides{};

  /// Empty if the nodes are not an attention.
  static std::optional<AttentionChain> of(const NodeSpec& first, std::span<const ChainLink> links);
  /// Whether an attention may begin with the node.
  static bool may_begin(const NodeSpec& first);
};

}  // namespace pipit::internal
