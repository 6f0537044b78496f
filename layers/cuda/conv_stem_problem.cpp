#include "layers/cuda/conv_stem_problem.h"

#include <fmt/format.h>

#include <limits>

#include "layers/layer_kernel.h"

namespace pipit::cuda {

Refusal refuse_stem_problem(const NodeSpec& spec, const ConvAttributes& attributes) {
  const TensorDesc& x = *spec.inputs[0];
  const TensorDesc& y = spec.outputs[0];
  const Window& w = attributes.window;
  if (w.rank != 2) return "only two spatial dimensions are handled";
  if (attributes.groups != 1) return fmt::format("{} groups; only 1 is handled", attributes.groups);
  if (x.shape[1] > kStemMaxChannels)
    return fmt::format("{} channels; at most {} are handled", x.shape[1], kStemMaxChannels);
  if (spec.has_input(3)) return "a residual is not handled";
  if (spec.constant(1) == nullptr) return "weights are computed at run time";
  if (spec.has_input(2) && spec.constant(2) == nullptr) return "the bias is computed at run time";
  if (!is_channels_last(y)) return "the output must be channels_last";
  if (y.elements() == 0 || x.elements() == 0) return "empty tensors are not handled";
  constexpr std::int64_t kLimit = std::numeric_limits<std::int32_t>::max() / 2;
  if (x.elements() > kLimit || y.elements() / y.shape[1] > kLimit || y.shape[1] > kLimit / 4096)
    return "the tensors are too large for 32-bit offsets";
  for (std::size_t i = 0; i < 2; ++i) {
    constexpr std::int64_t kWidest = 1024;  // beyond, no window fits the shared memory
    if (w.span(static_cast<int>(i)) > kWidest || w.stride[i] > kWidest || w.pad_begin[i] > kLimit / 4 ||
        w.pad_end[i] > kLimit / 4)
      return "the window is too large for the shared memory";
  }
  return std::nullopt;
}

Refusal refuse_stem_memory(const StemArgs& args) {
  if (args.shared_bytes > kStemMaxShared)
    return fmt::format("weights and pixels of a tile need {} bytes of shared memory; at most {} are taken",
                       args.shared_bytes, kStemMaxShared);
  return std::nullopt;
}

void set_stem_strides(StemArgs& args, const TensorDesc& x) {
  const Strides strides = x.strides();
  const auto narrow = [](std::int64_t v) { return static_cast<int>(v); };
  args.x_image = strides[0];
  args.x_channel = narrow(strides[1]), args.x_row = narrow(strides[2]), args.x_pixel = narrow(strides[3]);
}

}  // namespace pipit::cuda
