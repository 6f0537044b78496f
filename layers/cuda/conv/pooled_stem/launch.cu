// Kernels of the candidate "pooled_stem" and their launch.
#include "layers/cuda/conv/pooled_stem/kernel.cuh"
#include "layers/cuda/device/launch.cuh"

namespace pipit::internal::cuda {

namespace {

using Stem = void (*)(PooledStemArgs);

template <typename Sum>
Stem of_sums(const PooledStemShape& shape) {
  return shape.from_bytes ? run_pooled_stem<Sum, true> : run_pooled_stem<Sum, false>;
}

Stem stem_of(const PooledStemShape& shape) {
  if (shape.element_bytes == 1) return of_sums<std::int32_t>(shape);
  return shape.bf16 ? of_sums<BfloatSum>(shape) : of_sums<float>(shape);
}

}  // namespace

cudaError_t prepare_pooled_stem(const PooledStemShape& shape) {
  return allow_shared(reinterpret_cast<const void*>(stem_of(shape)), kPooledStemMaxShared + 1024);
}

cudaError_t launch_pooled_stem(const PooledStemArgs& args, cudaStream_t stream) {
  const PooledStemShape& shape = args.plan.shape;
  const auto shared = static_cast<std::size_t>(args.plan.shared_bytes) + 1024;  // for the alignment
  return launch_kernel(stem_of(shape),
                       {dim3(static_cast<unsigned>(args.workers), static_cast<unsigned>(args.plan.parts)),
                        dim3(pooled_stem::kThreads), shared, true},
                       stream, args);
}

}  // namespace pipit::internal::cuda
