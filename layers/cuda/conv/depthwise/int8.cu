// The kernels of INT8 depthwise convolutions that are compiled, and their launch.
#include "layers/cuda/conv/depthwise/kernel.cuh"
#include "layers/cuda/device/launch.cuh"

namespace pipit::internal::cuda {

namespace {

using depthwise::kQuad;
using depthwise::kThreads;
using depthwise::Result;

struct Instance {
  int window, stride, columns;
  int channels = kQuad;
  void (*kernels[3])(QDepthwiseArgs);  // by Result

  auto* kernel(const QDepthwiseArgs& a) const {
    if (a.stored != StoredType::i8) return kernels[static_cast<int>(Result::real)];
    return kernels[static_cast<int>(a.table != nullptr ? Result::looked_up : Result::bytes)];
  }
};

template <int Window, int Stride, int Columns, int Blocks>
constexpr Instance instance() {
  return {Window,
          Stride,
          Columns,
          kQuad,
          {&depthwise::depthwise_quads<Window, Stride, Columns, Blocks, Result::bytes>,
           &depthwise::depthwise_quads<Window, Stride, Columns, Blocks, Result::looked_up>,
           &depthwise::depthwise_quads<Window, Stride, Columns, Blocks, Result::real>}};
}

// Few columns for small products, in which every thread is on its own, many where there is more to do.
constexpr Instance kInstances[] = {instance<3, 1, 2, 4>(), instance<3, 1, 7, 3>(), instance<3, 2, 2, 4>(),
                                   instance<5, 1, 2, 4>(), instance<5, 1, 4, 3>(), instance<5, 2, 1, 4>(),
                                   instance<5, 2, 3, 3>(), instance<7, 1, 2, 2>(), instance<7, 2, 1, 2>()};

const Instance* find_instance(const QDepthwiseArgs& a) {
  for (const Instance& i : kInstances) {
    if (i.window == a.window && i.stride == a.stride && i.columns == a.columns) return &i;
  }
  return nullptr;
}

}  // namespace

cudaError_t prepare_qconv_depthwise(QDepthwiseArgs& args, bool& overlap) {
  const void* kernel = nullptr;
  const auto kernel_of = [&](const Instance& i) { return reinterpret_cast<const void*>(i.kernel(args)); };
  const cudaError_t status = depthwise::choose(args, kInstances, kernel_of, kernel);
  return status == cudaSuccess ? can_overlap(kernel, overlap) : status;
}

cudaError_t launch_qconv_depthwise_quads(const QDepthwiseArgs& args, bool overlap, cudaStream_t stream) {
  const Instance* instance = find_instance(args);
  if (instance == nullptr) return cudaErrorInvalidValue;
  const std::int64_t blocks = depthwise::blocks_for(args, kQuad, args.columns, args.rows);
  return launch_kernel(instance->kernel(args),
                       {dim3(static_cast<unsigned>(blocks)), dim3(kThreads), 0, overlap}, stream, args);
}

}  // namespace pipit::internal::cuda
