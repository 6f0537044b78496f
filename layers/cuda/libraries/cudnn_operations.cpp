#include "layers/cuda/libraries/cudnn_operations.h"

#if PIPIT_HAVE_CUDNN

#include <algorithm>
#include <cmath>
#include <limits>

namespace pipit::cuda {

namespace {

constexpr std::size_t kMaxParts = 32;

cudnnDataType_t data_type(DType type) {
  switch (type) {
    case DType::f16:
      return CUDNN_DATA_HALF;
    case DType::i8:
      return CUDNN_DATA_INT8;
    default:
      return CUDNN_DATA_FLOAT;
  }
}

Descriptor make_tensor(const CudnnConv::Tensor& tensor, cudnnDataType_t type, std::int64_t id,
                       bool is_virtual = false) {
  Descriptor d(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  d.set(CUDNN_ATTR_TENSOR_DATA_TYPE, type);
  d.set(CUDNN_ATTR_TENSOR_DIMENSIONS, tensor.extents);
  d.set(CUDNN_ATTR_TENSOR_STRIDES, tensor.strides);
  d.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id);
  d.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, std::int64_t{16});
  d.set_bool(CUDNN_ATTR_TENSOR_IS_VIRTUAL, is_virtual);
  d.finalize();
  return d;
}

// One value per output channel, or one for all.
CudnnConv::Tensor channel_values(const CudnnConv& conv, bool one = false) {
  const std::int64_t channels = one ? 1 : conv.y.extents[1];
  CudnnConv::Tensor tensor{conv.y.extents, conv.y.strides};
  std::fill(tensor.extents.begin(), tensor.extents.end(), 1);
  std::fill(tensor.strides.begin(), tensor.strides.end(), channels);
  tensor.extents[1] = channels;
  tensor.strides[1] = 1;
  return tensor;
}

Descriptor convolution_of(const CudnnConv& conv) {
  Descriptor d(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  d.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, static_cast<std::int64_t>(conv.stride.size()));
  d.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, conv.is_int8() ? CUDNN_DATA_INT32 : CUDNN_DATA_FLOAT);
  d.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
  d.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, conv.pad_begin);
  d.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, conv.pad_end);
  d.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, conv.dilation);
  d.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, conv.stride);
  d.finalize();
  return d;
}

}  // namespace

CudnnOperations::CudnnOperations(const CudnnConv& conv, cudnnHandle_t handle) {
  parts_.reserve(kMaxParts);  // references to parts stay valid
  conv.is_int8() ? add_int8(conv) : add_floating_point(conv);
  graph_ = Descriptor(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  std::vector<cudnnBackendDescriptor_t> list(operations_.begin(), operations_.end());
  graph_.set_handle(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle);
  graph_.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
             static_cast<std::int64_t>(list.size()), list.data());
  graph_.finalize();
}

const Descriptor& CudnnOperations::between(const CudnnConv::Tensor& like, cudnnDataType_t type) {
  return keep(make_tensor(like, type, next_++, true));
}

void CudnnOperations::convolution(const CudnnConv& conv, const Descriptor& x, const Descriptor& w,
                                  const Descriptor& y) {
  Descriptor operation(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, keep(convolution_of(conv)));
  operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, x);
  operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, w);
  operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, y);
  operation.set_float(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, 1);
  operation.set_float(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, 0);
  operation.finalize();
  operations_.push_back(std::move(operation));
}

// bounds: where the operation is a Relu.
void CudnnOperations::pointwise(cudnnPointwiseMode_t mode, cudnnDataType_t math, const Descriptor& in,
                                const Descriptor* other, const Descriptor& out, const CudnnConv* bounds) {
  Descriptor how(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  how.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
  how.set(CUDNN_ATTR_POINTWISE_MATH_PREC, math);
  if (bounds != nullptr && bounds->low != 0)
    how.set_double(CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP, bounds->low);
  if (bounds != nullptr && std::isfinite(bounds->high))
    how.set_double(CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, bounds->high);
  how.finalize();
  Descriptor operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, keep(std::move(how)));
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, in);
  if (other != nullptr) operation.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *other);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, out);
  operation.finalize();
  operations_.push_back(std::move(operation));
}

// conv -> [+ residual] -> [+ bias] -> [relu]: the order that cuDNN's ready-made fused kernels know.
void CudnnOperations::add_floating_point(const CudnnConv& conv) {
  const cudnnDataType_t type = data_type(conv.dtype);
  const Descriptor& y = keep(make_tensor(conv.y, type, kY));
  int left = (conv.residual ? 1 : 0) + (conv.bias ? 1 : 0) + (conv.bounded() ? 1 : 0);
  const auto result = [&]() -> const Descriptor& {
    return left-- == 0 ? y : between(conv.y, CUDNN_DATA_FLOAT);
  };
  const Descriptor* value = &result();
  convolution(conv, keep(make_tensor(conv.x, type, kX)), keep(make_tensor(conv.w, type, kW)), *value);
  const auto append = [&](cudnnPointwiseMode_t mode, const Descriptor* other, const CudnnConv* bounds) {
    const Descriptor& out = result();
    pointwise(mode, CUDNN_DATA_FLOAT, *value, other, out, bounds);
    value = &out;
  };
  if (conv.residual) append(CUDNN_POINTWISE_ADD, &keep(make_tensor(conv.y, type, kResidual)), nullptr);
  if (conv.bias) append(CUDNN_POINTWISE_ADD, &keep(make_tensor(channel_values(conv), type, kBias)), nullptr);
  if (conv.bounded()) append(CUDNN_POINTWISE_RELU_FWD, nullptr, &conv);
}

// (conv + bias) * multiplier [+ residual * residual_scale], clamped: the order of layers/ops/quantization.h.
void CudnnOperations::add_int8(const CudnnConv& conv) {
  const Descriptor& sums = between(conv.y, CUDNN_DATA_INT32);
  convolution(conv, keep(make_tensor(conv.x, CUDNN_DATA_INT8, kX)),
              keep(make_tensor(conv.w, CUDNN_DATA_INT8, kW)), sums);
  const CudnnConv::Tensor channels = channel_values(conv);
  const Descriptor& biased = between(conv.y, CUDNN_DATA_INT32);
  pointwise(CUDNN_POINTWISE_ADD, CUDNN_DATA_INT32, sums,
            &keep(make_tensor(channels, CUDNN_DATA_INT32, kBias)), biased);
  const Descriptor* value = &between(conv.y, CUDNN_DATA_FLOAT);
  pointwise(CUDNN_POINTWISE_MUL, CUDNN_DATA_FLOAT, biased,
            &keep(make_tensor(channels, CUDNN_DATA_FLOAT, kMultiplier)), *value);
  if (conv.residual) {
    // Two products and a sum would be contracted, and then round differently: bounds that nothing reaches keep them
    // apart.
    CudnnConv apart;
    apart.low = -std::numeric_limits<float>::max();
    const auto bounded = [&](const Descriptor& product) -> const Descriptor& {
      const Descriptor& out = between(conv.y, CUDNN_DATA_FLOAT);
      pointwise(CUDNN_POINTWISE_RELU_FWD, CUDNN_DATA_FLOAT, product, nullptr, out, &apart);
      return out;
    };
    const Descriptor& scaled = between(conv.y, CUDNN_DATA_FLOAT);
    pointwise(CUDNN_POINTWISE_MUL, CUDNN_DATA_FLOAT, keep(make_tensor(conv.y, CUDNN_DATA_INT8, kResidual)),
              &keep(make_tensor(channel_values(conv, true), CUDNN_DATA_FLOAT, kResidualScale)), scaled);
    const Descriptor& sum = between(conv.y, CUDNN_DATA_FLOAT);
    pointwise(CUDNN_POINTWISE_ADD, CUDNN_DATA_FLOAT, bounded(*value), &bounded(scaled), sum);
    value = &sum;
  }
  pointwise(CUDNN_POINTWISE_RELU_FWD, CUDNN_DATA_FLOAT, *value, nullptr,
            keep(make_tensor(conv.y, data_type(conv.y_dtype), kY)), &conv);
}

}  // namespace pipit::cuda

#endif
