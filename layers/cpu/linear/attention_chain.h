// Which layers are one attention: softmax(scale q k + bias) v, with the transposes around.
#pragma once

#include <optional>
#include <span>

#include "engine/plan/kernel.h"

namespace pipit::internal {

/// An operand as it lies in memory, without the transposes that were asked for.
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

  /// Nothing where the nodes are anything else.
  static std::optional<AttentionChain> of(const NodeSpec& first, std::span<const ChainLink> links);
  /// Whether one may begin with the node.
  static bool may_begin(const NodeSpec& first);
};

}  // namespace pipit::internal
