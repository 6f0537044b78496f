#include "layers/cpu/tile/tile_convolution.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "engine/base/ceil_div.h"
#include "engine/platform/cache_size.h"
#include "layers/common/layer_kernel.h"
#include "layers/cpu/tile/picked_steps.h"
#include "layers/ops/reshaping.h"

namespace pipit::internal {

namespace {

constexpr std::int64_t kFloat = sizeof(float);

// Half of a core's second-level cache.
std::int64_t cache_budget() {
  return second_level_cache() / 2;
}

// Tiles of 16 bits read pairs of channels: see ConvInput.
bool multiplies_as_stored(const TileConvolution::Geometry& geometry) {
  return stored_tiles(geometry.input.dtype) != nullptr &&
         (geometry.groups == 1 || geometry.input.shape[1] / geometry.groups % 2 == 0);
}

// Weights are widened for a run.
bool widens(const TileConvolution::Geometry& geometry) {
  return geometry.stored || (is_stored_float(geometry.input.dtype) && !multiplies_as_stored(geometry));
}

// The DepthToSpace whose result is computed, or null.
const DepthToSpace* depth_to_space(const TileConvolution::Geometry& geometry) {
  const auto followers = geometry.fusion.followers;
  return followers.empty() ? nullptr : dynamic_cast<const DepthToSpace*>(&followers[0]->layer);
}

Epilogue epilogue_of(const TileConvolution::Geometry& geometry) {
  if (depth_to_space(geometry) != nullptr) return {};
  return {geometry.channel_dim, geometry.fusion.followers};
}

ConvInput input_for(const TileKernels& kernels, const TileConvolution::Geometry& geometry) {
  return ConvInput(geometry.input, geometry.output, geometry.window, geometry.groups, 2 * kernels.strip,
                   kernels.element(), geometry.zero_point);
}

const TileKernels& kernels_of(const TileConvolution::Geometry& geometry) {
  const bool bytes = dtype_bytes(geometry.input.dtype) == 1;
  if (!bytes && !multiplies_as_stored(geometry)) return f32_tiles();
  const TileKernels& kernels = bytes ? u8s8_tiles() : *stored_tiles(geometry.input.dtype);
  if (kernels.isa != Isa::amx) return kernels;
  const ConvInput input = input_for(kernels, geometry);
  const auto segments = static_cast<std::int64_t>(input.segments().size());
  return bytes ? u8s8_tiles_for(segments, input.run()) : bf16_tiles_for(segments, input.run());
}

// In floating point on these tiles.
TileArithmetic arithmetic_of(const TileConvolution::Geometry& geometry, const TileKernels& kernels) {
  if (!multiplies_as_stored(geometry))
    return float_arithmetic(geometry.input.dtype, geometry.activation, geometry.residual);
  const bool more = depth_to_space(geometry) == nullptr && !geometry.fusion.followers.empty();
  return stored_arithmetic(geometry.input.dtype, kernels, geometry.activation, geometry.output[1], more);
}

TilePanels panels_of(const TileConvolution::Geometry& geometry, const ConvInput& input,
                     const TileKernels& kernels) {
  const std::int64_t steps = std::ssize(input.segments()) * input.run();
  return {kernels, geometry.parts * steps, geometry.output[1] / geometry.groups};
}

// Weights [O, C / groups, kernel...].
WeightView view_of(const TileConvolution::Geometry& geometry, const ConvInput& input, const float* weights) {
  const std::int64_t taps = geometry.window.taps();
  const std::int64_t channels = geometry.input.shape[1] / geometry.groups;
  if (input.channels_last()) return {weights, channels * taps, taps, 1, channels, taps};
  return {weights, channels * taps, 1, 0, channels * taps, 1};
}

// How weights [O][parts][kernel..., C / groups] lie.
WeightsOf<std::int8_t> byte_view(const TileConvolution::Geometry& geometry, const ConvInput& input) {
  const std::int64_t run = input.run_elements();
  const std::int64_t segments = std::ssize(input.segments()) * geometry.parts;
  return {nullptr, segments * run, segments, run, run, 1};
}

// Of one output.
std::int64_t depth_of(const TileConvolution::Geometry& geometry) {
  return geometry.input.shape[1] / geometry.groups * geometry.window.taps() * geometry.parts;
}

struct KeptPanels {
  TilePanels panels;
  KeptSteps steps;
  const TileKernels& kernels;
};

// The steps that panels of `cut` pick, where they pay.
std::optional<KeptSteps> picked_of(const TileConvolution::Geometry& geometry, const ConvInput& input,
                                   const TilePanels& cut, const WeightView& weights) {
  const std::vector<std::int32_t> blocks = pick_blocks(input.segments(), input.run(), cut.lanes);
  if (blocks.empty()) return std::nullopt;
  std::vector<std::vector<std::int32_t>> panels;
  WeightView of_group = weights;
  for (std::int64_t g = 0; g < geometry.groups; ++g, of_group.data += cut.outputs * weights.output_stride) {
    for (std::int64_t p = 0; p < cut.count(); ++p) {
      std::optional<std::vector<std::int32_t>> steps = picked_steps(cut, p, of_group, blocks);
      if (!steps) return std::nullopt;
      panels.push_back(std::move(*steps));
    }
  }
  return KeptSteps(cut, panels);
}

// Weights that stay in another form are not looked into. Where 16 outputs keep fewer rows than 32 do together, panels
// are of one vector. Where outputs keep different rows of few neighbours each, steps are picked.
KeptPanels kept_of(const TileConvolution::Geometry& geometry, const ConvInput& input,
                   const TileKernels& kernels, const WeightView* weights) {
  constexpr int kMinOutputs = 16;      // pruning removes no fewer of them together
  constexpr double kOneVector = 1.12;  // it reads the input once more for as many outputs (Zen 5)
  const TilePanels panels = panels_of(geometry, input, kernels);
  if (weights == nullptr) return {panels, {panels, geometry.groups, input.run()}, kernels};
  if (kernels.isa == Isa::amx) {
    KeptForTiles of = kept_for_tiles(kernels, *bf16_tiles(Isa::avx512vnni), panels, geometry.groups,
                                     input.run(), steps_with_weights(panels, geometry.groups, *weights));
    return {panels, std::move(of.steps), of.kernels};
  }
  const auto kept = [&](const TilePanels& cut) {
    return kept_steps(cut, geometry.groups, input.run(), steps_with_weights(cut, geometry.groups, *weights));
  };
  KeptPanels best{panels, kept(panels), kernels};
  if (panels.lanes < kMinOutputs || panels.step != 1) return best;
  double least = best.steps.share();
  const auto consider = [&](const TilePanels& cut, std::optional<KeptSteps> steps, double cost) {
    if (!steps || cost * steps->macs_cost() * steps->share() >= least) return;
    least = cost * steps->macs_cost() * steps->share();
    best.panels = cut;
    best.steps = std::move(*steps);
  };
  const bool picks = kernels.picks && !widens(geometry) && many_zeros(panels, geometry.groups, *weights);
  if (panels.outputs > panels.lanes) {
    const TilePanels narrow = panels.of_one_vector();
    consider(narrow, kept(narrow), kOneVector);
    if (picks) consider(narrow, picked_of(geometry, input, narrow, *weights), 1);
  }
  if (picks) consider(panels, picked_of(geometry, input, panels, *weights), 1);
  return best;
}

KeptForTiles kept_of(const TileConvolution::Geometry& geometry, const ConvInput& input,
                     const ByteWeights& weights) {
  const TileKernels& kernels = kernels_of(geometry);
  const TilePanels panels = panels_of(geometry, input, kernels);
  const std::int64_t count = geometry.groups * panels.count();
  std::vector<std::uint8_t> marks(static_cast<std::size_t>(count * panels.steps), 0);
  WeightsOf<std::int8_t> view = byte_view(geometry, input);
  std::vector<std::int8_t> room;
  for (std::int64_t panel = 0; panel < count; ++panel) {
    const std::int64_t group = panel / panels.count(), p = panel % panels.count();
    view.data = weights.outputs(group * panels.outputs + p * panels.panel, panels.columns(p), room);
    mark_steps(panels, p, view, marks.data() + panel * panels.steps);
  }
  return kept_for_tiles(kernels, u8s8_tiles(Isa::avx512vnni), panels, geometry.groups, input.run(), marks);
}

}  // namespace

TileConvolution::Geometry TileConvolution::turned(Geometry geometry) {
  Window& window = geometry.window;
  const bool one_column = geometry.output.rank() == 4 && geometry.input.shape[3] == 1 &&
                          geometry.output[3] == 1 && window.kernel[1] == 1 && window.pad_begin[1] == 0 &&
                          window.pad_end[1] == 0;
  if (!one_column || depth_to_space(geometry) != nullptr) return geometry;
  for (Shape* shape : {&geometry.input.shape, &geometry.output})
    *shape = shape->with(3, (*shape)[2]).with(2, 1);
  for (auto* extents : {&window.kernel, &window.stride, &window.dilation, &window.pad_begin, &window.pad_end})
    std::swap((*extents)[0], (*extents)[1]);
  geometry.turned = true;
  return geometry;
}

TileConvolution::Geometry TileConvolution::framed(Geometry geometry) {
  geometry = turned(geometry);
  Window& window = geometry.window;
  const auto axes = static_cast<std::size_t>(window.rank);
  const Window plain;
  const bool pads = window.pad_begin != plain.pad_begin || window.pad_end != plain.pad_end;
  if (!pads || window.taps() != 1 || window.stride != plain.stride || geometry.residual ||
      geometry.input.elements() == 0 || !is_channels_last(geometry.input) || widens(geometry) ||
      depth_to_space(geometry) != nullptr || axes > 2) {
    return geometry;
  }
  const Shape output = geometry.output;
  const int rank = output.rank();
  geometry.frame = {rank == 4 ? output[2] : 1, output[rank - 1], rank == 4 ? window.pad_begin[0] : 0,
                    window.pad_begin[axes - 1]};
  for (int axis = 2; axis < rank; ++axis)
    geometry.output = geometry.output.with(axis, geometry.input.shape[axis]);
  window.pad_begin = plain.pad_begin;
  window.pad_end = plain.pad_end;
  return geometry;
}

ConvInput TileConvolution::input_of(const Geometry& geometry) {
  return input_for(kernels_of(geometry), geometry);
}

bool TileConvolution::copies_long_rows(const Geometry& geometry) {
  constexpr double kMaxRowBytes = 1 << 26;
  const int axis = geometry.window.rank - 1;
  const double columns = static_cast<double>(geometry.output[geometry.output.rank() - 1]) *
                             static_cast<double>(geometry.window.stride[static_cast<std::size_t>(axis)]) +
                         static_cast<double>(geometry.window.span(axis));
  const std::int64_t slices = geometry.window.rank == kMaxSpatial ? geometry.window.kernel[0] : 1;
  const auto pixel = static_cast<double>(slices) *
                     static_cast<double>(geometry.input.shape[1] * kernels_of(geometry).element());
  return columns * pixel > kMaxRowBytes;
}

TileConvolution::Parts TileConvolution::float_parts(const Geometry& geometry, const WeightView* weights) {
  ConvInput input = input_of(geometry);
  KeptPanels kept = kept_of(geometry, input, kernels_of(geometry), weights);
  TileArithmetic arithmetic = arithmetic_of(geometry, kept.kernels);
  return {std::move(input), std::move(arithmetic), kept.panels, std::move(kept.steps)};
}

TileConvolution::Parts TileConvolution::byte_parts(const Geometry& geometry, ByteArithmetic bytes,
                                                   const ByteWeights& weights) {
  ConvInput input = input_of(geometry);
  KeptForTiles kept = kept_of(geometry, input, weights);
  TileArithmetic arithmetic = byte_arithmetic(kept.kernels, std::move(bytes), geometry.activation, weights,
                                              geometry.output[1], depth_of(geometry));
  const TilePanels panels = panels_of(geometry, input, kept.kernels);
  return {std::move(input), std::move(arithmetic), panels, std::move(kept.steps)};
}

TileConvolution::TileConvolution(const Geometry& geometry, Parts parts, int threads)
    : channels_(geometry.output[1]),
      width_(geometry.output[geometry.output.rank() - 1]),
      images_(parts.input.images()),
      height_(geometry.output.rank() >= 4 ? geometry.output[geometry.output.rank() - 2] : 1),
      frame_(geometry.frame.height != 0 ? geometry.frame : Geometry::Frame{height_, width_}),
      y_pixel_(geometry.fusion.row_stride != 0 ? static_cast<std::int64_t>(geometry.fusion.row_stride)
                                               : channels_ * parts.arithmetic.stored_bytes),
      y_row_(frame_.width * y_pixel_),
      y_image_(frame_.height * y_row_),
      adds_(geometry.residual),
      once_(geometry.fusion.overwritten.has_value()),
      input_(std::move(parts.input)),
      padding_(geometry.frame.height != 0 ? input_.padding_pixel() : std::vector<std::byte>{}),
      arithmetic_(std::move(parts.arithmetic)),
      epilogue_(epilogue_of(geometry)),
      panels_(parts.panels),
      kept_(std::move(parts.kept)),
      offsets_(offsets()),
      loop_(loop_of(geometry)),
      schedule_(work_of(geometry, threads), input_),
      scratch_(book_scratch(widens(geometry), threads)) {
  if (const DepthToSpace* layer = depth_to_space(geometry)) block_ = layer->attributes().block;
}

std::vector<std::int32_t> TileConvolution::offsets() const {
  constexpr std::int32_t kStep = 4;
  const auto run = static_cast<std::int32_t>(input_.run());
  const std::size_t segments = input_.segments().size();  // every part of the weights meets each of them
  std::vector<std::int32_t> offsets;
  offsets.reserve(kept_.all_starts().size());
  for (const std::int32_t start : kept_.all_starts())
    offsets.push_back(input_.segments()[static_cast<std::size_t>(start / run) % segments] +
                      start % run * kStep);
  return offsets;
}

// Where a DepthToSpace follows, a row of the output is, pixel after pixel, the outputs for one row of the block: a
// group of outputs that reads the same input as the others. Packed they lie as without it.
TileLoop TileConvolution::loop_of(const Geometry& geometry) const {
  const DepthToSpace* layer = depth_to_space(geometry);
  const std::int64_t groups = layer != nullptr ? layer->attributes().block : geometry.groups;
  TilePanels of_group = panels_;
  of_group.outputs = channels_ / groups;
  const std::int64_t result_bytes = arithmetic_.result_bytes;
  TileLoop loop{arithmetic_.kernels, {}, arithmetic_.shared, arithmetic_.residual_bytes};
  loop.shared.picks = kept_.picked();
  for (std::int64_t g = 0; g < groups; ++g) {
    for (std::int64_t p = 0; p < of_group.count(); ++p) {
      const std::int64_t in_group = p * of_group.panel;
      TilePanel& panel = loop.panels.emplace_back();
      panel.output = g * of_group.outputs + in_group;
      panel.columns = of_group.columns(p);
      const std::int64_t index = g * of_group.count() + p;
      panel.segments = offsets_.data() + kept_.first_start(index);
      panel.segment_count = static_cast<std::int32_t>(kept_.steps(index).starts.size());
      panel.run = kept_.run();
      panel.input = layer != nullptr ? 0 : g * input_.group_step();
      panel.result = layer != nullptr ? (g * width_ * of_group.outputs + in_group) * result_bytes
                                      : panel.output * result_bytes;
      panel.weights = kept_.offset(index);
      panel.weight_bytes = kept_.panel_bytes(index);
    }
  }
  return loop;
}

TileWork TileConvolution::work_of(const Geometry& geometry, int threads) const {
  TileWork work;
  work.images = images_;
  work.height = height_;
  work.width = width_;
  work.channels = channels_;
  work.input_bytes = static_cast<std::int64_t>(geometry.input.bytes()) / images_;
  work.element_bytes = static_cast<std::int64_t>(dtype_bytes(geometry.input.dtype));
  work.weight_bytes = kept_.bytes();
  work.panels = loop_.panel_count();
  work.cache_bytes = cache_budget();
  work.threads = threads;
  return work;
}

TileScratch TileConvolution::book_scratch(bool widens_weights, int threads) const {
  TileScratch scratch;
  scratch.bands = schedule_.bands_at_work();
  scratch.copy = schedule_.copy_bytes();
  const std::int64_t floats = ceil_div(schedule_.most_pixels() * channels_ * kFloat, 64) * 64;
  if (arithmetic_.rounds_results) scratch.results = floats;
  if (arithmetic_.widens_residual) scratch.residual = floats;
  if (!padding_.empty()) scratch.frame = ceil_div(channels_ * kFloat, 64) * 64;
  if (!widens_weights) return scratch;
  for (const TilePanel& panel : loop_.panels) {
    scratch.weights = schedule_.shares_bands() ? scratch.weights + panel.weight_bytes
                                               : std::max(scratch.weights, panel.weight_bytes);
  }
  scratch.panels = schedule_.shares_bands() ? 1 : threads;
  return scratch;
}

TileConvolution::TileConvolution(const Geometry& geometry, const float* weights, int threads)
    : TileConvolution(geometry, view_of(geometry, input_of(geometry), weights), threads) {}

TileConvolution::TileConvolution(const Geometry& geometry, const WeightView& weights, int threads)
    : TileConvolution(geometry, float_parts(geometry, &weights), threads) {
  if (multiplies_as_stored(geometry)) {
    weights_ =
        geometry.input.dtype == DType::bf16
            ? pack_bf16(panels_, kept_, weights)
            : pack_f16(panels_, kept_, weights, arithmetic_.kernels->stretch, arithmetic_.multipliers.data());
    return;
  }
  weights_ = pack_f32(panels_, kept_, weights);
  if (widens(geometry))
    weights_ = std::make_unique<const NarrowPanels>(kept_, geometry.input.dtype, weights_->as_read());
}

TileConvolution::TileConvolution(const Geometry& geometry, std::unique_ptr<const StoredPanels> weights,
                                 int threads)
    : TileConvolution(geometry, float_parts(geometry, nullptr), threads) {
  weights_ = std::move(weights);
}

TileConvolution::TileConvolution(const Geometry& geometry, ByteArithmetic arithmetic,
                                 const std::int8_t* weights, int threads)
    : TileConvolution(geometry, std::move(arithmetic), WholeByteWeights(weights, depth_of(geometry)),
                      threads) {}

TileConvolution::TileConvolution(const Geometry& geometry, ByteArithmetic arithmetic,
                                 const ByteWeights& weights, int threads)
    : TileConvolution(geometry, byte_parts(geometry, std::move(arithmetic), weights), threads) {
  weights_ = pack_s8(panels_, kept_, weights, byte_view(geometry, input_));
}

double TileConvolution::kept_share(const Geometry& geometry, const float* weights) {
  return kept_share(geometry, view_of(geometry, input_of(geometry), weights));
}

double TileConvolution::kept_share(const Geometry& geometry, const WeightView& weights) {
  return kept_steps(geometry, weights).share();
}

KeptSteps TileConvolution::kept_steps(const Geometry& geometry, const float* weights) {
  return kept_steps(geometry, view_of(geometry, input_of(geometry), weights));
}

KeptSteps TileConvolution::kept_steps(const Geometry& geometry, const WeightView& weights) {
  return kept_of(geometry, input_of(geometry), kernels_of(geometry), &weights).steps;
}

KeptForTiles TileConvolution::kept_steps(const Geometry& geometry, const std::int8_t* weights) {
  return kept_of(geometry, input_of(geometry), WholeByteWeights(weights, depth_of(geometry)));
}

bool TileConvolution::fuses_epilogue(const Geometry& geometry, const NodeSpec& next) {
  if (fuses_depth_to_space(geometry, next)) return true;
  return depth_to_space(geometry) == nullptr && Epilogue::fuses(geometry.channel_dim, next);
}

bool TileConvolution::fuses_depth_to_space(const Geometry& geometry, const NodeSpec& next) {
  const auto* layer = dynamic_cast<const DepthToSpace*>(&next.layer);
  if (layer == nullptr) return false;
  const DepthToSpaceAttributes& a = layer->attributes();
  const bool plain = geometry.groups == 1 && geometry.frame.height == 0 && !geometry.turned &&
                     geometry.fusion.followers.empty() && !geometry.residual && !widens(geometry);
  return plain && !a.inverse && !a.column_row_depth &&
         geometry.output[1] / a.block % kernels_of(geometry).panel() == 0 &&
         is_channels_last(next.outputs[0]);
}

bool TileConvolution::computes_pieces(const Geometry& geometry) {
  return geometry.groups == 1 && geometry.frame.height == 0 && !geometry.turned &&
         depth_to_space(geometry) == nullptr && !geometry.residual && !widens(geometry) &&
         dtype_bytes(geometry.input.dtype) > 1 && !input_of(geometry).copied();
}

bool TileConvolution::writes_strided_rows(const Geometry& geometry) {
  return depth_to_space(geometry) == nullptr;
}

bool TileConvolution::overwrites_residual(const Geometry& geometry) {
  const bool as_stored = !is_stored_float(geometry.input.dtype) ||
                         (multiplies_as_stored(geometry) && geometry.fusion.followers.empty());
  if (!geometry.residual || !as_stored || geometry.fusion.row_stride != 0) return false;
  // Rows that no whole number of strips covers would end in a small tile each.
  const std::int64_t width = geometry.output[geometry.output.rank() - 1];
  const TileStrips strips(kernels_of(geometry), width);
  return strips.count * strips.size == width || input_of(geometry).evenly_spaced();
}

}  // namespace pipit::internal
