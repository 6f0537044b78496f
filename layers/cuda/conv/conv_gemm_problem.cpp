#include "layers/cuda/conv/conv_gemm_problem.h"

#include <fmt/format.h>

#include <limits>

#include "engine/cuda/runtime.h"
#include "layers/common/layer_kernel.h"
#include "layers/cuda/conv/conv_gemm_launch.h"

namespace pipit::cuda {

Refusal refuse_conv_gemm(const NodeSpec& spec, const ConvAttributes& attributes, std::int64_t units) {
  const TensorDesc& x = *spec.inputs[0];
  const TensorDesc& y = spec.outputs[0];
  const Window& w = attributes.window;
  if (w.rank != 2) return "only two spatial dimensions are handled";
  if (attributes.groups != 1) return fmt::format("{} groups; only 1 is handled", attributes.groups);
  if (spec.constant(1) == nullptr) return "weights are computed at run time";
  if (spec.has_input(2) && spec.constant(2) == nullptr) return "the bias is computed at run time";
  if (!is_channels_last(y)) return "the output must be channels_last";
  if (spec.has_input(3) && !is_channels_last(*spec.inputs[3])) return "the residual must be channels_last";
  if (y.elements() == 0 || x.elements() == 0) return "empty tensors are not handled";
  // Offsets into x are 32-bit, and taps reach one window beyond its borders.
  constexpr std::int64_t kLimit = std::numeric_limits<std::int32_t>::max() / 2;
  if (x.elements() / x.shape[1] > kLimit / units || y.elements() / y.shape[1] > kLimit)
    return "the tensors are too large for 32-bit offsets";
  const std::int64_t high = x.shape[2] + w.span(0) + w.pad_begin[0] + w.pad_end[0];
  const std::int64_t wide = x.shape[3] + w.span(1) + w.pad_begin[1] + w.pad_end[1];
  if (high > 32768 || wide > 32768 || high * wide > kLimit / units || w.taps() > kLimit / units)
    return "the window is too large for 32-bit offsets";
  return std::nullopt;
}

ConvShape conv_gemm_shape(const NodeSpec& spec, const ConvAttributes& attributes, std::int64_t units) {
  const Window& w = attributes.window;
  const Shape& x = spec.inputs[0]->shape;
  const Shape& y = spec.outputs[0].shape;
  const auto narrow = [](std::int64_t v) { return static_cast<int>(v); };
  ConvShape s;
  s.batch = narrow(x[0]), s.in_h = narrow(x[2]), s.in_w = narrow(x[3]);
  s.in_c = narrow(units);
  s.out_h = narrow(y[2]), s.out_w = narrow(y[3]), s.out_c = narrow(y[1]);
  s.kernel_h = narrow(w.kernel[0]), s.kernel_w = narrow(w.kernel[1]);
  s.stride_h = narrow(w.stride[0]), s.stride_w = narrow(w.stride[1]);
  s.dilation_h = narrow(w.dilation[0]), s.dilation_w = narrow(w.dilation[1]);
  s.pad_h = narrow(w.pad_begin[0]), s.pad_w = narrow(w.pad_begin[1]);
  return s;
}

std::vector<ConvVariant> conv_gemm_variants(const ConvShape& shape, int gpu) {
  int processors = 0;
  bool clusters = false;
  PIPIT_CUDA(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, gpu));
  PIPIT_CUDA(conv_gemm_has_clusters(clusters));
  if (shape.in_c != 4) return conv_variants(shape, processors, clusters);
  const ConvTile narrow{128, 64, 1};  // the one tile that reads narrow pixels
  const bool pays = clusters && pays_to_overlap(shape, narrow, processors);
  std::vector<ConvVariant> variants{{narrow, pays}};
  if (clusters) variants.push_back({narrow, !pays});
  return variants;
}

ConvVariant named_variant(const std::vector<ConvVariant>& variants, std::string_view name) {
  if (name.empty()) return variants.front();
  for (const ConvVariant& variant : variants) {
    if (variant.name() == name) return variant;
  }
  fail("there is no variant '{}'", name);
}

std::vector<std::string> names_of(const std::vector<ConvVariant>& variants) {
  std::vector<std::string> names;
  for (const ConvVariant& variant : variants) names.push_back(variant.name());
  return names;
}

}  // namespace pipit::cuda
