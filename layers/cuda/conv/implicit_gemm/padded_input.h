// The copy of a byte input that "implicit_gemm" reads where its channels are not the last dimension, or are no multiple
// of 16.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/cuda/runtime.h"
#include "engine/graph/tensor.h"
#include "layers/cuda/conv/gemm_args.h"
#include "layers/cuda/conv/gemm_problem.h"

namespace pipit::internal::cuda {

/// The bytes of that copy: [pixels, 2 * in_c].
inline std::size_t padded_input_bytes(const ConvShape& shape) {
  return static_cast<std::size_t>(shape.batch) * static_cast<std::size_t>(shape.in_h) *
         static_cast<std::size_t>(shape.in_w) * static_cast<std::size_t>(shape.in_c) * 2;
}

/// Queues the copy of x to `to` on `stream`, with zeros after the last channel, and returns `to`.
inline const std::int8_t* pad_input(const ConstTensorView& x, const ConvShape& shape, std::byte* to,
                                    cudaStream_t stream) {
  const Strides strides = x.desc.strides();
  PadBytesArgs args;
  args.x = x.as<std::int8_t>();
  args.y = reinterpret_cast<std::int8_t*>(to);
  args.channels = static_cast<int>(x.desc.shape[1]);
  args.padded = shape.in_c * 2;
  args.pixels_per_image = static_cast<std::int64_t>(shape.in_h) * shape.in_w;
  args.pixels = shape.batch * args.pixels_per_image;
  args.image_stride = strides[0];
  args.channel_stride = strides[1];
  args.pixel_stride = strides[3];  // rows are contiguous in both layouts
  PIPIT_CUDA(launch_pad_bytes(args, stream));
  return args.y;
}

}  // namespace pipit::internal::cuda
