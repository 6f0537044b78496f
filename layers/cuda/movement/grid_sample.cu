// GridSample of f32 and f16.
#include "layers/ops/grid_sample.h"

#include "layers/cuda/device/kernel.cuh"
#include "layers/cuda/families.h"
#include "layers/cuda/movement/grid_sample_kernel.cuh"

namespace pipit::internal {

namespace {

using namespace cuda;

template <int Taps>
void launch_grid_sample(const GridSampling& g, int dims, const TensorView& y,
                        std::span<const ConstTensorView> inputs, const RunContext& context) {
  const auto run = [&](auto kernel) {
    const dim3 grid(blocks_for(g.size), blocks_for(g.channels, kGridChannels));
    kernel<<<grid, kThreads, 0, static_cast<cudaStream_t>(context.stream)>>>(g, Out(y), In(inputs[0]),
                                                                             In(inputs[1]));
    check_launch("grid sample");
  };
  switch (dims) {
    case 1:
      return run(grid_sample<Taps, 1>);
    case 2:
      return run(grid_sample<Taps, 2>);
    case 3:
      return run(grid_sample<Taps, 3>);
    default:
      return run(grid_sample<Taps, 4>);
  }
}

void run_grid_sample(const GridSample& layer, std::span<const ConstTensorView> inputs,
                     std::span<const TensorView> outputs, const RunContext& context) {
  const Shape& x = inputs[0].desc.shape;
  const TensorView& y = outputs[0];
  if (y.desc.elements() == 0) return;
  const Strides strides = inputs[0].desc.strides();
  GridSampling g;
  const int dims = x.rank() - 2;
  const std::int64_t positions = y.desc.elements() / (x[0] * x[1]);
  g.size = static_cast<unsigned>(x[0] * positions);
  g.positions = Divisor(positions);
  g.channels = static_cast<int>(x[1]);
  g.x_image = static_cast<int>(strides[0]);
  g.x_channel = static_cast<int>(strides[1]);
  for (int d = 0; d < dims; ++d) {
    g.extent[d] = static_cast<int>(x[x.rank() - 1 - d]);
    g.stride[d] = static_cast<int>(strides[static_cast<std::size_t>(x.rank() - 1 - d)]);
  }
  const GridSampleAttributes& a = layer.attributes();
  g.padding = a.padding;
  g.align_corners = a.align_corners;
  switch (a.mode) {
    case ResizeMode::nearest:
      return launch_grid_sample<1>(g, dims, y, inputs, context);
    case ResizeMode::linear:
      return launch_grid_sample<2>(g, dims, y, inputs, context);
    case ResizeMode::cubic:
      return launch_grid_sample<4>(g, dims, y, inputs, context);
  }
}

Refusal refuse_grid_sample(const NodeSpec& spec) {
  if (Refusal reason = refuse_unless_float_or_half(spec)) return reason;
  if (spec.inputs[0]->shape[1] > 65535 * kGridChannels) return "more than 524,280 channels";
  return refuse_unless_row_major(spec);
}

}  // namespace

void register_cuda_grid_sample(Registry& registry) {
  add_kernel<GridSample>(registry, "positions", refuse_grid_sample, run_grid_sample);
}

}  // namespace pipit::internal
