// The kernels of depthwise convolutions that are compiled, in fp16, bf16 and INT8, and their launch.
#include "layers/cuda/conv/depthwise/kernel.cuh"
#include "layers/cuda/device/launch.cuh"

namespace pipit::internal::cuda {

namespace {

using depthwise::kQuad;
using depthwise::kThreads;
using depthwise::Result;

template <typename Args>
struct Instance {
  int window, stride, columns, channels;
  void (*kernels[4])(Args);  // by kind_of(Args)
};

int kind_of(const ConvDepthwiseArgs& a) {
  return (a.function.gate == HalfGate::none ? 0 : 1) + (a.bf16 ? 2 : 0);
}
int kind_of(const QDepthwiseArgs& a) {
  const Result result = a.stored != StoredType::i8 ? Result::real
                        : a.table != nullptr       ? Result::looked_up
                                                   : Result::bytes;
  return static_cast<int>(result);
}

template <int Window, int Stride, int Columns, int Channels, int Blocks, int BfloatBlocks = Blocks>
constexpr Instance<ConvDepthwiseArgs> halves() {
  return {
      Window,
      Stride,
      Columns,
      Channels,
      {&depthwise::depthwise_halves<__half, Window, Stride, Columns, Channels, Blocks, false>,
       &depthwise::depthwise_halves<__half, Window, Stride, Columns, Channels, Blocks, true>,
       &depthwise::depthwise_halves<__nv_bfloat16, Window, Stride, Columns, Channels, BfloatBlocks, false>,
       &depthwise::depthwise_halves<__nv_bfloat16, Window, Stride, Columns, Channels, BfloatBlocks, true>}};
}

template <int Window, int Stride, int Columns, int Blocks>
constexpr Instance<QDepthwiseArgs> bytes() {
  return {Window,
          Stride,
          Columns,
          kQuad,
          {&depthwise::depthwise_quads<Window, Stride, Columns, Blocks, Result::bytes>,
           &depthwise::depthwise_quads<Window, Stride, Columns, Blocks, Result::looked_up>,
           &depthwise::depthwise_quads<Window, Stride, Columns, Blocks, Result::real>, nullptr}};
}

// Few columns for small products, in which every thread is on its own, more where there is more to do. In 16 bits
// windows of five and seven rows have registers for the weights of two channels. With bfloat16 the compiler needs a few
// more of them.
constexpr Instance<ConvDepthwiseArgs> kHalves[] = {
    halves<3, 1, 2, 4, 4>(),    halves<3, 1, 4, 4, 3>(), halves<3, 2, 1, 4, 4>(), halves<3, 2, 2, 4, 4>(),
    halves<5, 1, 2, 2, 4, 3>(), halves<5, 1, 4, 2, 3>(), halves<5, 2, 1, 2, 4>(), halves<5, 2, 2, 2, 3>(),
    halves<7, 1, 2, 2, 2>(),    halves<7, 2, 1, 2, 2>()};
constexpr Instance<QDepthwiseArgs> kBytes[] = {bytes<3, 1, 2, 4>(), bytes<3, 1, 7, 3>(), bytes<3, 2, 2, 4>(),
                                               bytes<5, 1, 2, 4>(), bytes<5, 1, 4, 3>(), bytes<5, 2, 1, 4>(),
                                               bytes<5, 2, 3, 3>(), bytes<7, 1, 2, 2>(), bytes<7, 2, 1, 2>()};

template <typename Args, std::size_t N>
cudaError_t prepare(const Instance<Args> (&instances)[N], Args& args, bool& overlap) {
  const void* kernel = nullptr;
  const auto kernel_of = [&](const Instance<Args>& i) {
    return reinterpret_cast<const void*>(i.kernels[kind_of(args)]);
  };
  const cudaError_t status = depthwise::choose(args, instances, kernel_of, kernel);
  return status == cudaSuccess ? can_overlap(kernel, overlap) : status;
}

template <typename Args, std::size_t N>
cudaError_t launch(const Instance<Args> (&instances)[N], const Args& a, bool overlap, cudaStream_t stream) {
  for (const Instance<Args>& i : instances) {
    if (i.window != a.window || i.stride != a.stride || i.columns != a.columns) continue;
    const std::int64_t blocks = depthwise::blocks_for(a, i.channels, a.columns, a.rows);
    return launch_kernel(i.kernels[kind_of(a)],
                         {dim3(static_cast<unsigned>(blocks)), dim3(kThreads), 0, overlap}, stream, a);
  }
  return cudaErrorInvalidValue;
}

}  // namespace

cudaError_t prepare_conv_depthwise_quads(ConvDepthwiseArgs& args, bool& overlap) {
  return prepare(kHalves, args, overlap);
}
cudaError_t launch_conv_depthwise_quads(const ConvDepthwiseArgs& args, bool overlap, cudaStream_t stream) {
  return launch(kHalves, args, overlap, stream);
}
cudaError_t prepare_qconv_depthwise(QDepthwiseArgs& args, bool& overlap) {
  return prepare(kBytes, args, overlap);
}
cudaError_t launch_qconv_depthwise_quads(const QDepthwiseArgs& args, bool overlap, cudaStream_t stream) {
  return launch(kBytes, args, overlap, stream);
}

}  // namespace pipit::internal::cuda
