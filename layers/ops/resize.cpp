#include "layers/ops/resize.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "layers/ops/inference_checks.h"
#include "layers/ops/samples.h"

namespace pipit::internal {

namespace {

// Above this float coordinates no longer resolve neighbouring positions.
constexpr std::int64_t kMaxResized = std::int64_t{1} << 24;

}  // namespace

Resize::Resize(ResizeAttributes attributes) : LayerOf(attributes) {
  if (attributes_.rank < 1 || attributes_.rank > kMaxRank) {
    fail("Resize: rank {}; 1 to {} are supported", attributes_.rank, kMaxRank);
  }
  for (int axis = 0; axis < attributes_.rank; ++axis) {
    const float scale = attributes_.scales[at(axis)];
    if (!(scale > 0) || !std::isfinite(scale)) {
      fail("Resize: scale {} of dimension {}; expected a positive number", scale, axis);
    }
    if (attributes_.sizes[at(axis)] < 0) {
      fail("Resize: size {} of dimension {}; expected at least 1, or 0 to follow the scale",
           attributes_.sizes[at(axis)], axis);
    }
  }
}

std::vector<TensorDesc> Resize::infer(std::span<const TensorDesc* const> inputs) const {
  check_inputs(inputs, kType, 1);
  const TensorDesc& x = *inputs[0];
  if (attributes_.mode != ResizeMode::nearest) check_float(x, kType, "x");
  if (x.shape.rank() != attributes_.rank) {
    fail("Resize: x is {}; expected {} dimensions", x.shape.str(), attributes_.rank);
  }
  std::array<std::int64_t, kMaxRank> dims{};
  for (int axis = 0; axis < attributes_.rank; ++axis) {
    const std::int64_t in = x.shape[axis];
    const float scaled = std::floor(static_cast<float>(in) * attributes_.scales[at(axis)]);
    const bool identity = !resizes_axis(attributes_, axis, in);
    if (!identity && (in < 1 || in > kMaxResized)) {
      fail("Resize: dimension {} of {} cannot be resized; extents of 1 to {} can", axis, x.shape.str(),
           kMaxResized);
    }
    if (identity) {
      dims[at(axis)] = in;
    } else if (attributes_.sizes[at(axis)] > 0) {
      dims[at(axis)] = attributes_.sizes[at(axis)];
    } else {
      dims[at(axis)] =
          scaled > static_cast<float>(kMaxResized) ? kMaxResized + 1 : static_cast<std::int64_t>(scaled);
    }
    if (!identity && (dims[at(axis)] < 1 || dims[at(axis)] > kMaxResized)) {
      const std::int64_t size = attributes_.sizes[at(axis)];
      fail("Resize: dimension {} of {} would get extent {}; 1 to {} are supported", axis, x.shape.str(),
           size > 0 ? fmt::format("{}", size) : fmt::format("{:.0f}", scaled), kMaxResized);
    }
  }
  return {
      {Shape(std::span<const std::int64_t>(dims.data(), at(attributes_.rank))), x.dtype, Layout::row_major}};
}

Work Resize::work(std::span<const TensorDesc* const> inputs, std::span<const TensorDesc> outputs) const {
  const Shape& x = inputs[0]->shape;
  double share = 1;
  for (int d = 0; d < x.rank(); ++d) {
    if (outputs[0].shape[d] < x[d])
      share *= static_cast<double>(outputs[0].shape[d]) / static_cast<double>(x[d]);
  }
  return {0, share};
}

bool Resize::is_batch_independent(const SampledInputs& inputs) const {
  return sampled_exactly(inputs, {0}) && !resizes_axis(attributes_, 0, inputs.descs[0]->shape[0]);
}

LayerPtr Resize::for_samples(std::int64_t samples) const {
  if (attributes_.sizes[0] == 0) return nullptr;
  ResizeAttributes attributes = attributes_;
  attributes.sizes[0] = samples;
  return std::make_shared<Resize>(attributes);
}

std::string Resize::summary() const {
  static constexpr const char* kCoordinates[] = {"half pixel", "half pixel symmetric", "pytorch half pixel",
                                                 "align corners", "asymmetric"};
  static constexpr const char* kModes[] = {"nearest", "linear", "cubic"};
  return fmt::format("{} {}{}", kModes[static_cast<std::size_t>(attributes_.mode)],
                     kCoordinates[static_cast<std::size_t>(attributes_.coordinates)],
                     is_filtered(attributes_) && attributes_.filter.antialias ? " antialias" : "");
}

bool resizes_axis(const ResizeAttributes& attributes, int axis, std::int64_t input_extent) {
  const std::int64_t size = attributes.sizes[at(axis)];
  return attributes.scales[at(axis)] != 1.0F || (size != 0 && size != input_extent);
}

float source_coordinate(const ResizeAttributes& attributes, int axis, std::int64_t output,
                        std::int64_t input_extent, std::int64_t output_extent) {
  const float scale = attributes.scales[at(axis)];
  const auto x = static_cast<float>(output);
  const auto in = static_cast<float>(input_extent);
  const auto out = static_cast<float>(output_extent);
  switch (attributes.coordinates) {
    case ResizeCoordinates::half_pixel:
      return (x + 0.5F) / scale - 0.5F;
    case ResizeCoordinates::half_pixel_symmetric: {
      // The output is as wide as scale * in rounded down; keep it centred over the input.
      const float adjustment = out / (scale * in);
      return in / 2 * (1 - adjustment) + (x + 0.5F) / scale - 0.5F;
    }
    case ResizeCoordinates::pytorch_half_pixel:
      return output_extent > 1 ? (x + 0.5F) / scale - 0.5F : 0.0F;
    case ResizeCoordinates::align_corners:
      return output_extent > 1 ? x * (in - 1) / (out - 1) : 0.0F;
    case ResizeCoordinates::asymmetric:
      return x / scale;
  }
  return 0;
}

namespace {

struct Fraction {
  std::int64_t over;
  std::int64_t under;  // above 0
};

// source_coordinate() without rounding, where the scale is no other number than the quotient of the extents. These are
// at most kMaxResized.
std::optional<Fraction> exact_coordinate(const ResizeAttributes& attributes, int axis, std::int64_t output,
                                         std::int64_t in, std::int64_t out) {
  if (attributes.coordinates == ResizeCoordinates::align_corners)
    return out > 1 ? Fraction{output * (in - 1), out - 1} : Fraction{0, 1};
  if (attributes.scales[at(axis)] != static_cast<float>(out) / static_cast<float>(in)) return std::nullopt;
  if (attributes.coordinates == ResizeCoordinates::asymmetric) return Fraction{output * in, out};
  if (attributes.coordinates == ResizeCoordinates::pytorch_half_pixel && out == 1) return Fraction{0, 1};
  return Fraction{(2 * output + 1) * in - out, 2 * out};
}

std::int64_t floor_of(const Fraction& f) {
  return f.over / f.under - (f.over % f.under < 0 ? 1 : 0);
}

std::int64_t nearest_to(ResizeNearest mode, const Fraction& at) {
  switch (mode) {
    case ResizeNearest::round_prefer_floor:
      return -floor_of({at.under - 2 * at.over, 2 * at.under});
    case ResizeNearest::round_prefer_ceil:
      return floor_of({2 * at.over + at.under, 2 * at.under});
    case ResizeNearest::floor:
      return floor_of(at);
    case ResizeNearest::ceil:
      return -floor_of({-at.over, at.under});
  }
  return 0;
}

float nearest_to(ResizeNearest mode, float at) {
  switch (mode) {
    case ResizeNearest::round_prefer_floor:
      return std::ceil(at - 0.5F);
    case ResizeNearest::round_prefer_ceil:
      return std::floor(at + 0.5F);
    case ResizeNearest::floor:
      return std::floor(at);
    case ResizeNearest::ceil:
      return std::ceil(at);
  }
  return 0;
}

}  // namespace

std::int64_t nearest_position(const ResizeAttributes& attributes, int axis, std::int64_t output,
                              std::int64_t input_extent, std::int64_t output_extent) {
  const std::int64_t last = input_extent - 1;
  if (const auto exact = exact_coordinate(attributes, axis, output, input_extent, output_extent))
    return std::clamp<std::int64_t>(nearest_to(attributes.nearest, *exact), 0, last);
  const float at = source_coordinate(attributes, axis, output, input_extent, output_extent);
  return static_cast<std::int64_t>(
      std::clamp(nearest_to(attributes.nearest, at), 0.0F, static_cast<float>(last)));
}

bool is_filtered(const ResizeAttributes& attributes) {
  const ResizeFilter& filter = attributes.filter;
  return attributes.mode == ResizeMode::cubic ||
         (attributes.mode == ResizeMode::linear && (filter.antialias || filter.exclude_outside));
}

namespace {

double filter_weight(const ResizeAttributes& attributes, double distance) {
  const double d = std::abs(distance);
  if (attributes.mode == ResizeMode::linear) return std::max(1 - d, 0.0);
  const double a = attributes.filter.cubic_a;
  if (d <= 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
  return d < 2 ? ((a * d - 5 * a) * d + 8 * a) * d - 4 * a : 0;
}

}  // namespace

ResizeTaps resize_taps(const ResizeAttributes& attributes, int axis, std::int64_t output,
                       std::int64_t input_extent, std::int64_t output_extent) {
  const std::int64_t last = input_extent - 1;
  if (!resizes_axis(attributes, axis, input_extent)) return {output, {1}};
  const ResizeFilter& filter = attributes.filter;
  const double center = source_coordinate(attributes, axis, output, input_extent, output_extent);
  const double narrowing =
      filter.antialias ? std::min(static_cast<double>(attributes.scales[at(axis)]), 1.0) : 1;
  const double reach = (attributes.mode == ResizeMode::cubic ? 2 : 1) / narrowing;
  // Beyond the input there is only its edge, so that a kernel that is wider need not be walked through.
  const double far = 2 * static_cast<double>(input_extent) + 4;
  const auto begin = static_cast<std::int64_t>(std::floor(std::max(center - reach, center - far)) + 1);
  const auto end = static_cast<std::int64_t>(std::ceil(std::min(center + reach, center + far)));
  ResizeTaps taps{std::clamp<std::int64_t>(begin, 0, last), {}};
  taps.weights.resize(static_cast<std::size_t>(std::clamp<std::int64_t>(end - 1, 0, last) - taps.first + 1));
  double sum = 0;
  for (std::int64_t p = begin; p < end; ++p) {
    if (filter.exclude_outside && (p < 0 || p > last)) continue;
    const double weight = filter_weight(attributes, narrowing * (static_cast<double>(p) - center));
    taps.weights[static_cast<std::size_t>(std::clamp<std::int64_t>(p, 0, last) - taps.first)] += weight;
    sum += weight;
  }
  if (sum != 0) {
    for (double& weight : taps.weights) weight /= sum;
  }
  return taps;
}

LinearTap linear_tap(float coordinate, std::int64_t input_extent) {
  const float inside = std::clamp(coordinate, 0.0F, static_cast<float>(input_extent - 1));
  const auto low = static_cast<std::int64_t>(inside);
  return {low, std::min(low + 1, input_extent - 1), inside - static_cast<float>(low)};
}

}  // namespace pipit::internal
