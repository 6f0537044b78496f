// The layers of GpuCase::followers as the planner describes them to candidates.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "engine/plan/registry.h"

namespace pipit::internal::test {

class FollowerChain {
 public:
  /// first: what the first of them reads, which must outlive this.
  FollowerChain(std::span<const Layer* const> layers, const TensorDesc& first, Precision precision) {
    const TensorDesc* input = &first;
    for (const Layer* layer : layers) {
      Described& d = described_.emplace_back();
      d.inputs[0] = input;
      // Layers are defined on f32; 16 bits are how a plan stores it.
      TensorDesc defined = *input;
      const DType stored = defined.dtype;
      if (is_stored_float(stored)) defined.dtype = DType::f32;
      const TensorDesc* const as_defined = &defined;
      d.outputs = layer->infer({&as_defined, 1});
      d.outputs[0].layout = first.layout;
      if (is_stored_float(stored) && d.outputs[0].dtype == DType::f32) d.outputs[0].dtype = stored;
      d.spec =
          std::make_unique<const NodeSpec>(NodeSpec{*layer, d.inputs, d.outputs, d.constants, precision});
      specs_.push_back(d.spec.get());
      input = d.outputs.data();
    }
  }
  FollowerChain(const FollowerChain&) = delete;
  FollowerChain& operator=(const FollowerChain&) = delete;

  std::span<const NodeSpec* const> specs() const { return specs_; }
  /// The outputs of the last node.
  const std::vector<TensorDesc>& outputs() const { return described_.back().outputs; }

  /// Whether the candidate takes one after the other, after the node that `described` describes with that many of them.
  template <typename Describe>
  bool taken_by(const Candidate& candidate, Describe described) const {
    for (std::size_t i = 0; i < specs_.size(); ++i) {
      if (!candidate.fusions.epilogue || !candidate.fusions.epilogue(described(i), *specs_[i])) return false;
    }
    return true;
  }

 private:
  struct Described {
    std::array<const TensorDesc*, 1> inputs{};
    std::array<std::shared_ptr<const Tensor>, 1> constants;
    std::vector<TensorDesc> outputs;
    std::unique_ptr<const NodeSpec> spec;
  };
  std::deque<Described> described_;
  std::vector<const NodeSpec*> specs_;
};

}  // namespace pipit::internal::test
