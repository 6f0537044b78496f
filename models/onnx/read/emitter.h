// Adds layers to the graph under construction; a layer of constants becomes a constant.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "engine/graph/graph.h"

namespace pipit::internal::onnx {

class Emitter {
 public:
  /// Bounds what constant folding may produce (bytes in total) and, in proportion, what it may compute and how far
  /// results may outgrow what they are made of: weights are in the file, a few bytes that expand to a gigabyte are not.
  explicit Emitter(std::size_t max_folded_bytes);

  GraphBuilder& builder() { return builder_; }
  const TensorDesc& desc(ValueId id) const { return builder_.value(id).desc; }

  /// Adds a node, or its result where every input is a constant. Throws what shape inference and the
  /// reference kernel throw (without the node's name), and Error when the folding bounds are exceeded.
  /// A Dequantize of a constant stays a node: INT8 kernels want the integers, unless all of a product is known. What
  /// they do not take is folded by the passes (layers/passes/fold_dequantized.cpp).
  std::vector<ValueId> emit(std::string name, LayerPtr layer, std::vector<ValueId> inputs);

  /// The value of a constant, or of a Dequantize of one; null where it is not known while reading.
  std::shared_ptr<const Tensor> known(ValueId id) const;

  /// A new constant for a result that the importer computes itself. `charge` must come before its allocation.
  ValueId constant(std::string name, Tensor tensor) {
    return builder_.add_constant(std::move(name), std::move(tensor));
  }
  /// Takes a result of this size out of the folding bound; throws Error when nothing is left.
  void charge(const TensorDesc& desc);

 private:
  std::vector<ValueId> fold(const std::string& name, const Layer& layer, const std::vector<ValueId>& inputs,
                            const std::vector<TensorDesc>& outputs);

  void charge_growth(const std::vector<const TensorDesc*>& inputs, const std::vector<TensorDesc>& outputs);

  struct Dequantized {
    LayerPtr layer;
    ValueId integers;
  };

  GraphBuilder builder_;
  std::unordered_map<ValueId, Dequantized> dequantized_;
  std::unordered_set<ValueId> dequantized_once_;  // the integers of these
  std::unordered_set<ValueId> computed_;          // results of folding
  std::size_t max_bytes_;
  std::size_t bytes_left_;
  std::size_t growth_left_;
  double work_left_;
};

}  // namespace pipit::internal::onnx
