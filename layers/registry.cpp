#include "layers/registry.h"

#include "engine/platform/isa.h"
#include "layers/cpu/families.h"
#include "layers/cpu/half_storage.h"
#include "layers/gpu_kernels.h"
#include "layers/reference/reference.h"

namespace pipit {

namespace {

Registry build() {
  Registry registry;
  chosen_isa();  // a wrong PIPIT_ISA is reported here, not by the first node that multiplies

  register_cpu_conv_depthwise(registry);
  register_cpu_conv_winograd(registry);
  register_cpu_conv_tile(registry);
  register_cpu_conv_im2col(registry);
  register_cpu_pool(registry);
  register_cpu_linear_tile(registry);
  register_cpu_linear(registry);
  register_cpu_normalization(registry);
  register_cpu_softmax(registry);
  register_cpu_resize(registry);
  register_cpu_elementwise(registry);
  register_cpu_reduce(registry);
  register_cpu_concat(registry);
  register_cpu_movement(registry);
  register_cpu_half_cast(registry);
  register_cpu_weight_only(registry);
  register_cpu_dynamic_quantize(registry);
  register_cpu_dynamic_conv(registry);
  register_cpu_qconv_depthwise_quads(registry);
  register_cpu_qconv_depthwise(registry);
  register_cpu_qconv_winograd(registry);
  register_cpu_qconv_tile(registry);
  register_cpu_qelementwise(registry);
  register_cpu_qpool(registry);

  register_cuda(registry);

  register_reference_conv(registry);
  register_reference_conv_transpose(registry);
  register_reference_pool(registry);
  register_reference_linear(registry);
  register_reference_normalization(registry);
  register_reference_softmax(registry);
  register_reference_resize(registry);
  register_reference_unary(registry);
  register_reference_binary(registry);
  register_reference_reduce(registry);
  register_reference_slicing(registry);
  register_reference_reshaping(registry);
  register_reference_cast(registry);
  add_half_storage(registry);
  register_reference_weight_only(registry);
  register_reference_dynamic_int8(registry);
  register_reference_quantized(registry);
  register_reference_quantize_axis(registry);
  return registry;
}

}  // namespace

const Registry& default_registry() {
  static const Registry registry = build();
  return registry;
}

}  // namespace pipit
