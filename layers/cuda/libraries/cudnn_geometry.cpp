#include "layers/cuda/libraries/cudnn_geometry.h"

#if PIPIT_HAVE_CUDNN

#include <algorithm>
#include <array>

#include "layers/common/image.h"

namespace pipit::cuda {

namespace {

// The last two spatial extents, or all three; the library knows no convolution over one dimension.
std::vector<std::int64_t> spatial(const std::array<std::int64_t, 3>& values, int rank) {
  return {values.begin() + (rank == 3 ? 0 : 1), values.end()};
}

CudnnConv::Tensor channels_last(std::int64_t batch, std::int64_t channels,
                                const std::vector<std::int64_t>& extents) {
  CudnnConv::Tensor tensor;
  tensor.extents = {batch, channels};
  tensor.extents.insert(tensor.extents.end(), extents.begin(), extents.end());
  tensor.strides.resize(tensor.extents.size());
  std::int64_t step = channels;
  for (std::size_t axis = tensor.extents.size() - 1; axis >= 2; --axis) {
    tensor.strides[axis] = step;
    step *= tensor.extents[axis];
  }
  tensor.strides[1] = 1;
  tensor.strides[0] = step;
  return tensor;
}

}  // namespace

void set_geometry(CudnnConv& conv, const ConvAttributes& attributes, const NodeSpec& spec,
                  std::int64_t channels) {
  const Image x(*spec.inputs[0]);
  const Image y(spec.outputs[0]);
  const int rank = attributes.window.rank;
  const Window w = as_3d(attributes.window);
  conv.x = channels_last(x.batch, channels, spatial(x.extent, rank));
  conv.w = channels_last(y.channels, channels / attributes.groups, spatial(w.kernel, rank));
  conv.y = channels_last(y.batch, y.channels, spatial(y.extent, rank));
  conv.stride = spatial(w.stride, rank);
  conv.dilation = spatial(w.dilation, rank);
  conv.pad_begin = spatial(w.pad_begin, rank);
  conv.pad_end = spatial(w.pad_end, rank);
  for (std::size_t i = 0; i < conv.pad_end.size(); ++i) {
    // With ceil_mode or a remainder the output has its own extent; end padding that yields it.
    const std::int64_t span = (conv.w.extents[i + 2] - 1) * conv.dilation[i] + 1;
    conv.pad_end[i] = std::max<std::int64_t>(
        0, (conv.y.extents[i + 2] - 1) * conv.stride[i] + span - conv.x.extents[i + 2] - conv.pad_begin[i]);
  }
}

}  // namespace pipit::cuda

#endif
