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
  /// Limits constant folding: the bytes of all results, and in proportion to that the work and how much larger results
  /// may be than their operands. A small file cannot make the reader fill memory or compute for hours.
  explicit Emitter(std::size_t max_folded_bytes);

  GraphBuilder& builder() { return builder_; }
  const TensorDesc& desc(ValueId id) const { return builder_.value(id).desc; }

  /// Adds a node, or, if every input is a constant, the node's result as a constant. Passes on errors of shape
  /// inference and of the reference kernel (without the node's name), and throws Error beyond the folding limits.
  /// A Dequantize of a constant stays a node, because INT8 kernels need the integers; only a product of which all
  /// operands are known is folded with it. A pass folds those that no kernel uses (layers/passes/fold_dequantized.cpp).
  std::vector<ValueId> emit(std::string name, LayerPtr layer, std::vector<ValueId> inputs);

  /// The value of a constant or of a Dequantize of a constant, else null.
  std::shared_ptr<const Tensor> known(ValueId id) const;

  /// A new constant for a result that the importer computes itself. `charge` must come before its allocation.
  ValueId constant(std::string name, Tensor tensor) {
    return builder_.add_constant(std::move(name), std::move(tensor));
  }
  /// The same for a result that later ones may be computed from: what a Dequantize makes of it counts, too.
  ValueId computed_constant(std::string name, Tensor tensor) {
    const ValueId id = constant(std::move(name), std::move(tensor));
    computed_.insert(id);
    return id;
  }
  /// Subtracts a result of this size from what folding may still produce; throws Error if that is exceeded.
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
  std::unordered_set<ValueId> dequantized_once_;  // integers that a Dequantize has read
  std::unordered_set<ValueId> computed_;          // results of folding
  std::size_t max_bytes_;
  std::size_t bytes_left_;
  std::size_t growth_left_;
  double work_left_;
};

}  // namespace pipit::internal::onnx
