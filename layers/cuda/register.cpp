#include "layers/cuda/families.h"
#include "layers/gpu_kernels.h"

namespace pipit::internal {

void register_cuda(Registry& registry) {
  register_cuda_conv_rows(registry);
  register_cuda_depthwise_quads(registry);
  register_cuda_depthwise(registry);
  register_cuda_qconv_narrow(registry);
  register_cuda_stem(registry);
  register_cuda_spread_gemm(registry);
  register_cuda_resident_gemm(registry);
  register_cuda_qconv_cudnn(registry);
  register_cuda_qconv_pipelined(registry);
  register_cuda_conv_implicit_gemm(registry);
  register_cuda_qconv_implicit_gemm(registry);
  register_cuda_conv_cudnn(registry);
  register_cuda_conv_im2col(registry);
  register_cuda_direct(registry);
  register_cuda_linear_skinny(registry);
  register_cuda_linear(registry);
  register_cuda_packed_gemm(registry);
  register_cuda_unpacked_gemm(registry);
  register_cuda_dynamic_quantize(registry);
  register_cuda_dynamic_gemm(registry);
  register_cuda_unary(registry);
  register_cuda_binary(registry);
  register_cuda_cast(registry);
  register_cuda_concat_rows(registry);
  register_cuda_channel_shuffle(registry);
  register_cuda_split_rows(registry);
  register_cuda_movement(registry);
  register_cuda_pad_gather(registry);
  register_cuda_indexing(registry);
  register_cuda_order(registry);
  register_cuda_grid_sample(registry);
  register_cuda_normalize_image(registry);
  register_cuda_small_windows(registry);
  register_cuda_pool(registry);
  register_cuda_normalization(registry);
  register_cuda_softmax(registry);
  register_cuda_reduce(registry);
  register_cuda_resize(registry);
  register_cuda_recurrent(registry);
  register_cuda_quantize_axis(registry);
  register_cuda_qelementwise(registry);
  register_cuda_qfunctions(registry);
  register_cuda_qpool(registry);
  register_cuda_pooled_stem(registry);
  register_cuda_squeeze_excite(registry);
  register_cuda_resident_block(registry);
  register_cuda_projected_sum(registry);
  register_cuda_row_chain(registry);
}

}  // namespace pipit::internal
