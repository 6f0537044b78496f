// A convolution with its epilogue as a graph of cuDNN operations.
#pragma once

#include <vector>

#include "layers/cuda/libraries/cudnn_descriptor.h"
#include "layers/cuda/libraries/cudnn_graph.h"

#if PIPIT_HAVE_CUDNN

namespace pipit::cuda {

/// What the tensors of a graph are called when it runs.
enum CudnnId : std::int64_t { kX = 1, kW, kY, kBias, kMultiplier, kResidual, kResidualScale, kFirstVirtual };

/// The operations, with every descriptor that they point to.
class CudnnOperations {
 public:
  CudnnOperations(const CudnnConv& conv, cudnnHandle_t handle);
  const Descriptor& graph() const { return graph_; }

 private:
  const Descriptor& keep(Descriptor part) { return parts_.emplace_back(std::move(part)); }
  /// A value that never reaches memory.
  const Descriptor& between(const CudnnConv::Tensor& like, cudnnDataType_t type);
  void convolution(const CudnnConv& conv, const Descriptor& x, const Descriptor& w, const Descriptor& y);
  void pointwise(cudnnPointwiseMode_t mode, cudnnDataType_t math, const Descriptor& in,
                 const Descriptor* other, const Descriptor& out, const CudnnConv* bounds = nullptr);
  void add_floating_point(const CudnnConv& conv);
  void add_int8(const CudnnConv& conv);

  std::vector<Descriptor> parts_;
  std::vector<Descriptor> operations_;
  std::int64_t next_ = kFirstVirtual;
  Descriptor graph_;
};

}  // namespace pipit::cuda

#endif
