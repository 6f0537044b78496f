// Kernels of the candidate "pooled_stem" and their launch.
#include "layers/cuda/conv/pooled_stem/kernel.cuh"
#include "layers/cuda/device/launch.cuh"

namespace pipit::internal::cuda {

namespace {

using Stem = void (*)(PooledStemArgs);

Stem stem_of(bool int8, bool from_bytes) {
  if (from_bytes) return int8 ? run_pooled_stem<std::int32_t, true> : run_pooled_stem<float, true>;
  return int8 ? run_pooled_stem<std::int32_t, false> : run_pooled_stem<float, false>;
}

}  // namespace

cudaError_t prepare_pooled_stem(bool int8, bool from_bytes) {
  return allow_shared(reinterpret_cast<const void*>(stem_of(int8, from_bytes)), kPooledStemMaxShared + 1024);
}

cudaError_t launch_pooled_stem(const PooledStemArgs& args, cudaStream_t stream) {
  const PooledStemShape& shape = args.plan.shape;
  const auto shared = static_cast<std::size_t>(args.plan.shared_bytes) + 1024;  // for the alignment
  return launch_kernel(stem_of(shape.element_bytes == 1, shape.from_bytes),
                       {dim3(static_cast<unsigned>(args.workers), static_cast<unsigned>(args.plan.parts)),
                        dim3(pooled_stem::kThreads), shared, true},
                       stream, args);
}

}  // namespace pipit::internal::cuda
