#include <algorithm>

#include "engine/platform/isa.h"
#include "layers/cpu/families.h"
#include "layers/cpu/tile/tile_kernel.h"
#include "layers/cpu_kernels.h"

namespace pipit::internal {

void register_cpu(Registry& registry) {
  chosen_isa();  // a wrong PIPIT_ISA is reported here, not by the first node that multiplies

  register_cpu_conv_depthwise(registry);
  register_cpu_conv_groups(registry);
  register_cpu_conv_few(registry);
  register_cpu_conv_gemv(registry);
  register_cpu_conv_winograd(registry);
  register_cpu_conv_tile(registry);
  register_cpu_conv_im2col(registry);
  register_cpu_pool(registry);
  register_cpu_linear_tile(registry);
  register_cpu_linear(registry);
  register_cpu_recurrent(registry);
  register_cpu_normalization(registry);
  register_cpu_softmax(registry);
  register_cpu_table_movement(registry);
  register_cpu_resize(registry);
  register_cpu_filtered_resize(registry);
  register_cpu_grid_sample(registry);
  register_cpu_elementwise(registry);
  register_cpu_typed_elementwise(registry);
  register_cpu_normalize_image(registry);
  register_cpu_reduce(registry);
  register_cpu_concat(registry);
  register_cpu_channel_shuffle(registry);
  register_cpu_movement(registry);
  register_cpu_narrow_cast(registry);
  register_cpu_weight_only(registry);
  register_cpu_dynamic_quantize(registry);
  register_cpu_dynamic_conv(registry);
  register_cpu_qconv_depthwise_quads(registry);
  register_cpu_qconv_depthwise(registry);
  register_cpu_qconv_groups(registry);
  register_cpu_qconv_winograd(registry);
  register_cpu_qconv_tile(registry);
  register_cpu_qelementwise(registry);
  register_cpu_qpool(registry);
  register_cpu_attention(registry);
}

std::int64_t cpu_panel_outputs() {
  return std::max(16, f32_tiles().panel());
}

bool cpu_picks_inputs() {
  return f32_tiles().picks;
}

double cpu_bf16_products() {
  // In 16 cycles TDPBF16PS adds 8192 products, and two FMA units 512. VDPBF16PS adds twice as many as FMA.
  const TileKernels* tiles = bf16_tiles();
  return tiles == nullptr ? 0 : tiles->isa == Isa::amx ? 16 : 2;
}

}  // namespace pipit::internal
