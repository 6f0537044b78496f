// The kernels of depthwise convolutions of halves that are compiled, and their launch.
#include "layers/cuda/conv/depthwise/kernel.cuh"
#include "layers/cuda/device/launch.cuh"

namespace pipit::internal::cuda {

namespace {

using depthwise::kThreads;

struct Instance {
  int window, stride, columns, channels;
  void (*plain)(ConvDepthwiseArgs);
  void (*function)(ConvDepthwiseArgs);
  auto kernel(const ConvDepthwiseArgs& a) const {
    return a.function.gate == HalfGate::none ? plain : function;
  }
};

template <int Window, int Stride, int Columns, int Channels, int Blocks>
constexpr Instance instance() {
  return {Window,
          Stride,
          Columns,
          Channels,
          &depthwise::depthwise_halves<Window, Stride, Columns, Channels, Blocks, false>,
          &depthwise::depthwise_halves<Window, Stride, Columns, Channels, Blocks, true>};
}

// Few columns for small products, in which every thread is on its own, more where there is more to do. Windows of five
// and seven rows have registers for the weights of two channels.
constexpr Instance kInstances[] = {instance<3, 1, 2, 4, 4>(), instance<3, 1, 4, 4, 3>(),
                                   instance<3, 2, 1, 4, 4>(), instance<3, 2, 2, 4, 4>(),
                                   instance<5, 1, 2, 2, 4>(), instance<5, 1, 4, 2, 3>(),
                                   instance<5, 2, 1, 2, 4>(), instance<5, 2, 2, 2, 3>(),
                                   instance<7, 1, 2, 2, 2>(), instance<7, 2, 1, 2, 2>()};

const Instance* find_instance(const ConvDepthwiseArgs& a) {
  for (const Instance& i : kInstances) {
    if (i.window == a.window && i.stride == a.stride && i.columns == a.columns) return &i;
  }
  return nullptr;
}

}  // namespace

cudaError_t prepare_conv_depthwise_quads(ConvDepthwiseArgs& args, bool& overlap) {
  const void* kernel = nullptr;
  const auto kernel_of = [&](const Instance& i) { return reinterpret_cast<const void*>(i.kernel(args)); };
  const cudaError_t status = depthwise::choose(args, kInstances, kernel_of, kernel);
  return status == cudaSuccess ? can_overlap(kernel, overlap) : status;
}

cudaError_t launch_conv_depthwise_quads(const ConvDepthwiseArgs& args, bool overlap, cudaStream_t stream) {
  const Instance* instance = find_instance(args);
  if (instance == nullptr) return cudaErrorInvalidValue;
  const std::int64_t blocks = depthwise::blocks_for(args, instance->channels, args.columns, args.rows);
  return launch_kernel(instance->kernel(args),
                       {dim3(static_cast<unsigned>(blocks)), dim3(kThreads), 0, overlap}, stream, args);
}

}  // namespace pipit::internal::cuda
