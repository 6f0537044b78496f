// One model in fp32 and in INT8 with any choice of layers that stay in floating point.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "compile/compile.h"

namespace pipit::internal {

class MixedModel {
 public:
  /// `fused`: without layouts (fuse() of layers/passes/passes.h), not equalized. `options`: how everything is
  /// compiled; the precision and scales are set here. `kept_as`: what the layers stay in that are chosen here: fp32,
  /// fp16, which the CPU computes in fp32, or bf16. Throws Error when the plan does not fit the graph, or leaves
  /// nothing that could compute in INT8.
  MixedModel(Graph fused, QuantizationPlan plan, CompileOptions options, Precision kept_as = Precision::fp32);

  /// The layers with weights that compute in INT8 as the plan says, in the order of the graph.
  const std::vector<std::string>& layers() const { return layers_; }
  /// The additions, products, activation functions and average pools that compute in INT8 because all that they read is
  /// INT8 already. Keeping one spares its operands and result a rounding for little time.
  const std::vector<std::string>& followers() const { return followers_; }
  const QuantizationPlan& plan() const { return plan_; }
  Precision kept_as() const { return kept_as_; }

  /// Equalized as the plan says, so that values are comparable.
  std::shared_ptr<const ExecutionPlan> in_fp32(bool keep_every_value = false) const;
  /// In INT8 but for `floating` (of layers() and followers()) and what the plan keeps; where that is all, in
  /// what it is kept in.
  std::shared_ptr<const ExecutionPlan> in_int8(const std::set<std::string>& floating = {},
                                               bool keep_every_value = false) const;
  /// With this one layer in INT8 and all others in floating point, in fp32 where they are otherwise kept in bf16.
  /// Layers without weights follow as far as they read nothing else.
  std::shared_ptr<const ExecutionPlan> alone_in_int8(const std::string& layer) const;
  /// Throughout, whatever layers are kept in.
  std::shared_ptr<const ExecutionPlan> in_bf16() const;
  /// With nothing in INT8, the other end of what in_int8() mixes: in_fp32() where floating_point_is_fp32().
  std::shared_ptr<const ExecutionPlan> in_floating_point() const;
  bool floating_point_is_fp32() const;

 private:
  std::shared_ptr<const ExecutionPlan> in(Precision precision, bool keep_every_value) const;
  std::shared_ptr<const ExecutionPlan> in_int8_but_for(const std::set<std::string>& floating,
                                                       Precision kept_as, bool keep_every_value) const;
  std::shared_ptr<const ExecutionPlan> build(Graph graph, CompileOptions options,
                                             bool keep_every_value) const;
  Graph fused_;
  QuantizationPlan plan_;
  CompileOptions options_;
  Precision kept_as_;
  std::vector<std::string> layers_;
  std::vector<std::string> followers_;
};

}  // namespace pipit::internal
