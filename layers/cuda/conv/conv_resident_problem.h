// A node as "resident_gemm" computes it: what the candidates in fp16 and INT8 share.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/cuda/runtime.h"
#include "engine/plan/registry.h"
#include "layers/cuda/conv/conv_resident_launch.h"

namespace pipit::cuda {

/// A plan and whether its launch overlaps with the kernel in front.
struct ResidentWay {
  ResidentPlan plan;
  bool overlap = true;
  std::string name() const { return plan.name() + (overlap ? "+overlap" : ""); }
};

/// What no instance handles, beside what refuse_conv_gemm names.
Refusal refuse_resident_gemm(const NodeSpec& spec, const ConvShape& shape);
/// The ways to run it, the likely best first.
std::vector<ResidentWay> resident_ways(const NodeSpec& spec, const ConvShape& shape);
std::vector<std::string> resident_variants(const NodeSpec& spec, const ConvShape& shape);
/// The one that the spec names, or the first. Throws Error when there is none of that name.
ResidentWay resident_way(const NodeSpec& spec, const ConvShape& shape);
/// Kernel::kept_share() of the kernel that would be made.
double resident_kept_share(const NodeSpec& spec, const ConvShape& shape);
/// Of "resident_gemm" in the spec's variant, or the one that it chooses.
Estimate resident_estimate(const NodeSpec& spec, const ConvShape& shape);

/// What the kernel needs beside weights and the epilogue's operands, for as long as this lives.
class ResidentProblem {
 public:
  ResidentProblem(const NodeSpec& spec, const ConvShape& shape);
  const ResidentWay& way() const { return way_; }
  const KeptDepth& depth() const { return depth_; }
  double kept_share() const { return depth_.share(way_.plan.columns); }
  /// Of its own on the GPU.
  std::size_t packed_bytes() const { return places_.bytes() + tile_blocks_.bytes(); }
  /// All but weights and what the epilogue reads.
  ResidentArgs args() const;
  /// Packed weights on the GPU, as the kernel reads them.
  CUtensorMap weights_map(const void* weights) const;
  CUtensorMap x_map(const void* x) const;

 private:
  ConvShape shape_;
  KeptDepth depth_;
  ResidentWay way_;
  DeviceBuffer places_;
  DeviceBuffer tile_blocks_;
  bool paired_ = false;
  int blocks_ = 0;
  int workers_ = 1;
};

}  // namespace pipit::cuda
