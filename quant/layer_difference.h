// Layer by layer: what INT8 makes of the values that the same model computes in fp32.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/runtime/session.h"
#include "layers/ops/quantization.h"
#include "quant/tensor_difference.h"

namespace pipit::internal {

/// How every value of a graph is stored: dtype f32 for those that are not quantized. What only moves integers hands on
/// the quantization of its (first) input.
std::vector<Quantization> value_quantizations(const Graph& graph);

/// One node of the fp32 graph and its first output.
struct LayerDifference {
  std::string node;
  std::string type;    ///< Conv, Gemm, ...
  std::string tensor;  ///< the output's name in both graphs
  Shape shape;
  Precision precision = Precision::fp32;  ///< what the node computes in: int8, fp32, bf16; on a GPU also fp16
  bool output8 = false;  ///< whether its output is stored in 8 bits; otherwise nothing is clipped
  TensorDifference difference;
};

/// Compares two plans of one model that keep every value, one in fp32, one quantized from the same fused graph, both
/// on the CPU or both on a GPU. For each batch: begin(), a run of the reference with reference() as its observer, then
/// one of the other with quantized().
class LayerComparison {
 public:
  /// Throws Error when a plan does not keep every value.
  LayerComparison(const ExecutionPlan& reference, const ExecutionPlan& quantized);
  ~LayerComparison();
  LayerComparison(const LayerComparison&) = delete;
  LayerComparison& operator=(const LayerComparison&) = delete;

  /// Only the first `images` of the batch that comes next count. Throws Error when that is not in [1, batch].
  void begin(std::int64_t images);
  RunObserver& reference();
  RunObserver& quantized();

  /// In the order of the graph: every node that computes f32 values, without views and changes of layout.
  const std::vector<LayerDifference>& layers() const { return layers_; }

 private:
  class ReferenceObserver;
  class QuantizedObserver;
  std::vector<LayerDifference> layers_;
  std::vector<Tensor> values_;  // of the reference's last run, row-major, one per layer
  std::int64_t batch_ = 1;
  std::int64_t images_ = 1;
  std::unique_ptr<ReferenceObserver> reference_;
  std::unique_ptr<QuantizedObserver> quantized_;
};

}  // namespace pipit::internal
