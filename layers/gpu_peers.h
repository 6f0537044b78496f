// Convolutions as other programs run them on a GPU: what pipit's are held against. No candidates of any plan.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/plan/kernel.h"
#include "layers/ops/conv.h"

namespace pipit::internal {

/// One convolution of two spatial dimensions with a bias. Its attributes' activation must be none.
struct ConvProblem {
  ConvAttributes attributes;
  Shape x;                                ///< [N, C, H, W]
  std::shared_ptr<const Tensor> weights;  ///< f32 [O, C/groups, h, w]
  std::vector<float> bias;                ///< [O]
};

enum class PeerCall {
  framework,  ///< as frameworks do by default: the first plan of the library's heuristics, then a kernel adds the bias
  best  ///< the first four plans that add the bias themselves, of which the fastest is to be found by timing them
};

struct PeerConv {
  std::string name;                      ///< "nhwc, plan 0"
  TensorDesc x, y;                       ///< f16
  std::shared_ptr<const Kernel> kernel;  ///< reads x, writes y; nothing else is handed to it
};

/// Why cuDNN cannot be used; empty where it can.
std::string cudnn_problem();

/// cuDNN's plans for it in f16 (sums in f32), with x and y in one layout; see CudnnPlan::find() for what it leaves out.
/// Builds them, which takes long: threads may do that at the same time. Throws UnsupportedError, with the reason, where
/// there is none.
std::vector<PeerConv> cudnn_convolutions(const ConvProblem& problem, PeerCall call, Layout layout, int gpu);

}  // namespace pipit::internal
