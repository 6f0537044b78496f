#include "layers/registry.h"

#include "layers/cpu_kernels.h"
#include "layers/gpu_kernels.h"
#include "layers/reference/reference.h"

namespace pipit::internal {

namespace {

Registry build() {
  Registry registry;
  register_cpu(registry);
  register_cuda(registry);
  register_reference_conv(registry);
  register_reference_conv_transpose(registry);
  register_reference_pool(registry);
  register_reference_linear(registry);
  register_reference_normalization(registry);
  register_reference_softmax(registry);
  register_reference_resize(registry);
  register_reference_grid_sample(registry);
  register_reference_unary(registry);
  register_reference_binary(registry);
  register_reference_reduce(registry);
  register_reference_recurrent(registry);
  register_reference_slicing(registry);
  register_reference_indexing(registry);
  register_reference_reshaping(registry);
  register_reference_channel_shuffle(registry);
  register_reference_cast(registry);
  register_reference_normalize_image(registry);
  add_narrow_storage(registry);
  register_reference_weight_only(registry);
  register_reference_dynamic_int8(registry);
  register_reference_quantized(registry);
  register_reference_quantize_axis(registry);
  return registry;
}

}  // namespace

const Registry& default_registry() {
  static const Registry& registry = *new Registry(build());
  return registry;
}

}  // namespace pipit::internal
