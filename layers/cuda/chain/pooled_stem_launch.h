// What the candidate "pooled_stem" asks of its kernels.
#pragma once

#include <cuda_runtime_api.h>

#include "layers/cuda/chain/pooled_stem_plan.h"
#include "layers/cuda/conv/conv_tile.h"
#include "layers/cuda/conv/image_scale.h"
#include "layers/cuda/conv/pair_bounds.h"

namespace pipit::cuda {

struct PooledStemArgs {
  PooledStemPlan plan;
  const float* x = nullptr;  ///< null: the image is bytes
  const std::uint8_t* bytes =
      nullptr;                   ///< of image 0, row 0, pixel 0 what channel 0 of the convolution is made of
  const float* table = nullptr;  ///< [channels][256]: what the bytes stand for
  int x_image = 0, x_channel = 0, x_row = 0, x_pixel = 0;  ///< strides of x or bytes in elements
  ImageScale x_scale;                                      ///< INT8
  const std::byte* weights = nullptr;                      ///< pack_pooled_stem
  const std::byte* constants = nullptr;  ///< biases, in INT8 then multipliers: pack_unit_constants
  std::byte* y = nullptr;                ///< [images, out_h, out_w, 64]
  PairBounds bounds;
  int workers = 1;      ///< of every part
  int least_steps = 0;  ///< of every worker; the first more_steps have one more
  int more_steps = 0;
  /// Four neighbouring pixels are read at once: of a channel, which lie together on 16 bytes, or of three channels of
  /// bytes, on 4.
  bool runs_of_four = false;
  Divisor runs;  ///< of a part's row of the image: PooledStemPlan::runs_of
  Divisor steps, mid_row, mid_ring, image_ring;
};

/// Lets the kernel use its shared memory on the current GPU.
cudaError_t prepare_pooled_stem(bool int8, bool from_bytes);
/// After prepare_pooled_stem: launches only.
cudaError_t launch_pooled_stem(const PooledStemArgs& args, cudaStream_t stream);

}  // namespace pipit::cuda
