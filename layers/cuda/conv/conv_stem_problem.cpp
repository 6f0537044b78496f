#include "layers/cuda/conv/conv_stem_problem.h"

#include <fmt/format.h>

#include <limits>

#include "engine/cuda/runtime.h"
#include "layers/common/layer_kernel.h"
#include "layers/cuda/conv/conv_gemm_problem.h"
#include "layers/cuda/cost/launch_cost.h"
#include "layers/cuda/device/gpu_info.h"

namespace pipit::cuda {

namespace {

struct Way {
  StemTile tile;
  bool overlap = false;
  std::string name() const { return tile.name() + (overlap ? "+overlap" : ""); }
};

ConvShape shape_of(const NodeSpec& spec, const ConvAttributes& attributes) {
  ConvShape shape = conv_gemm_shape(spec, attributes, spec.inputs[0]->shape[1]);
  shape.int8 = spec.inputs[1]->dtype == DType::i8;
  return shape;
}

// First the one to choose by rule.
std::vector<Way> ways_of(const ConvShape& shape, int gpu) {
  constexpr std::size_t kWorthTiming = 3;
  int processors = 0;
  PIPIT_CUDA(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, gpu));
  std::vector<Way> ways;
  for (const StemTile& tile : stem_tiles(shape, processors)) {
    ways.push_back(
        {tile, true});  // an early start was faster on an H200, but for a few launches of one round
    if (ways.size() == kWorthTiming) break;
  }
  if (!ways.empty()) ways.push_back({ways.front().tile, false});
  return ways;
}

// Bytes that are copied at once: x's channels must lie next to each other and fill their units.
int copied_bytes(const StemArgs& args, std::int64_t element) {
  const std::int64_t pixel = args.shape.in_c * element;
  if (args.x_f32 || args.units.group > 1 || (args.x_channel != 1 && args.shape.in_c > 1) ||
      pixel != std::int64_t{args.units.per_pixel} * args.units.unit_bytes)
    return 0;
  for (const int bytes : {16, 8, 4}) {
    const auto fits = [&](std::int64_t elements) { return elements * element % bytes == 0; };
    if (pixel % bytes == 0 && args.pitch * args.units.unit_bytes % bytes == 0 && fits(args.x_pixel) &&
        fits(args.x_row) && fits(args.x_image))
      return bytes;
  }
  return 0;
}

}  // namespace

Refusal refuse_stem_problem(const NodeSpec& spec, const ConvAttributes& attributes) {
  const TensorDesc& x = *spec.inputs[0];
  const TensorDesc& y = spec.outputs[0];
  const Window& w = attributes.window;
  if (w.rank != 2) return "only two spatial dimensions are handled";
  if (attributes.groups != 1) return fmt::format("{} groups; only 1 is handled", attributes.groups);
  const int most = x.dtype == DType::f32 ? kStemNarrow : kStemMaxChannels;
  if (x.shape[1] > most)
    return fmt::format("{} channels{}; at most {} are handled", x.shape[1],
                       x.dtype == DType::f32 ? " of f32" : "", most);
  if (spec.constant(1) == nullptr) return "weights are computed at run time";
  if (spec.has_input(2) && spec.constant(2) == nullptr) return "the bias is computed at run time";
  if (!is_channels_last(y)) return "the output must be channels_last";
  if (spec.has_input(3) && !is_channels_last(*spec.inputs[3])) return "the residual must be channels_last";
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
  const ConvShape shape = shape_of(spec, attributes);
  const StemArgs least = stem_args(shape, {4, 8});
  if (least.shared_bytes > kStemMaxShared)
    return fmt::format("weights and pixels of a tile need {} bytes of shared memory; at most {} are taken",
                       least.shared_bytes, kStemMaxShared);
  return std::nullopt;
}

std::vector<std::string> stem_variants(const NodeSpec& spec, const ConvAttributes& attributes) {
  std::vector<std::string> names;
  for (const Way& way : ways_of(shape_of(spec, attributes), spec.gpu)) names.push_back(way.name());
  return names;
}

Estimate stem_estimate(const NodeSpec& spec, const ConvAttributes& attributes) {
  const StemArgs args = stem_args(spec, attributes);
  const std::int64_t column_tiles = ceil_div(args.shape.out_c, args.tile.width);
  const std::int64_t blocks = args.tiles * column_tiles;
  const int processors = processors_of(spec.gpu);
  LaunchTerms terms;
  terms.steps = args.steps;
  terms.rounds = static_cast<double>(ceil_div(blocks, processors));
  terms.blocks = static_cast<double>(blocks) / processors;
  terms.megabytes = operand_megabytes(spec);
  terms.again = 1e-6 * static_cast<double>(spec.inputs[0]->bytes()) * static_cast<double>(column_tiles - 1);
  terms.waits = args.overlap ? 0 : 1;
  return estimate_of(
      fmt::format("stem {} {}{}", args.shape.int8 ? "i8" : "f16", args.tile.name(), args.x_f32 ? " f32" : ""),
      terms);
}

StemArgs stem_args(const NodeSpec& spec, const ConvAttributes& attributes) {
  const ConvShape shape = shape_of(spec, attributes);
  const std::vector<Way> ways = ways_of(shape, spec.gpu);
  const Way* chosen = spec.variant.empty() ? ways.data() : nullptr;
  for (const Way& way : ways) {
    if (way.name() == spec.variant) chosen = &way;
  }
  if (chosen == nullptr) fail("there is no variant '{}'", spec.variant);
  StemArgs args = stem_args(shape, chosen->tile);
  args.overlap = chosen->overlap;
  const TensorDesc& x = *spec.inputs[0];
  const Strides strides = x.strides();
  const auto narrow = [](std::int64_t v) { return static_cast<int>(v); };
  args.x_image = narrow(strides[0]), args.x_channel = narrow(strides[1]);
  args.x_row = narrow(strides[2]), args.x_pixel = narrow(strides[3]);
  args.x_f32 = x.dtype == DType::f32;
  const int element = shape.int8 ? 1 : 2;
  args.copied_bytes = copied_bytes(args, element);
  args.parts = args.units.per_pixel * args.units.unit_bytes /
               (args.copied_bytes > 0 ? args.copied_bytes : 4 * element);
  args.parts_factor = small_factor(args.parts);
  constexpr std::size_t kPrefetchShared = std::size_t{56} << 10;  // four blocks of a multiprocessor
  const std::size_t more = args.shared_bytes + static_cast<std::size_t>(args.halo_bytes);
  args.prefetches = args.copied_bytes > 0 && more <= kPrefetchShared;
  if (args.prefetches) args.shared_bytes = more;
  return args;
}

}  // namespace pipit::cuda
