#include "layers/ops/reshaping.h"

#include <fmt/format.h>

#include <algorithm>

#include "layers/ops/operands.h"
#include "layers/ops/samples.h"

namespace pipit::internal {

namespace {

bool is_row_major_in_memory(const TensorDesc& desc) {
  return desc.layout == Layout::row_major || desc.layouts_coincide();
}

}  // namespace

std::vector<TensorDesc> Reshape::infer(std::span<const TensorDesc* const> inputs) const {
  check_inputs(inputs, kType, 1);
  const TensorDesc& x = *inputs[0];
  if (x.elements() != attributes_.shape.elements()) {
    fail("Reshape: {} has {} elements, {} has {}", x.shape.str(), x.elements(), attributes_.shape.str(),
         attributes_.shape.elements());
  }
  return {{attributes_.shape, x.dtype}};
}

bool Reshape::is_batch_independent(const SampledInputs& inputs) const {
  const Shape& x = inputs.descs[0]->shape;
  return sampled_exactly(inputs, {0}) && attributes_.shape.rank() > 0 && attributes_.shape[0] == x[0];
}

LayerPtr Reshape::for_samples(std::int64_t samples) const {
  return std::make_shared<Reshape>(ReshapeAttributes{attributes_.shape.with(0, samples)});
}

bool Reshape::is_view(const TensorDesc& input, const TensorDesc& output) const {
  return (input.shape == output.shape && input.layout == output.layout) ||
         (is_row_major_in_memory(input) && is_row_major_in_memory(output));
}

Transpose::Transpose(TransposeAttributes attributes) : LayerOf(std::move(attributes)) {
  const auto& permutation = attributes_.permutation;
  for (std::size_t d = 0; d < permutation.size(); ++d) {
    if (std::count(permutation.begin(), permutation.end(), static_cast<std::int64_t>(d)) != 1) {
      fail("Transpose: {} is not a permutation of {} dimensions", fmt::join(permutation, ","),
           permutation.size());
    }
  }
}

std::vector<TensorDesc> Transpose::infer(std::span<const TensorDesc* const> inputs) const {
  check_inputs(inputs, kType, 1);
  const TensorDesc& x = *inputs[0];
  const auto& permutation = attributes_.permutation;
  if (permutation.size() != static_cast<std::size_t>(x.shape.rank())) {
    fail("Transpose: permutation {} does not fit {}", fmt::join(permutation, ","), x.shape.str());
  }
  std::array<std::int64_t, kMaxRank> dims{};
  for (std::size_t d = 0; d < permutation.size(); ++d) dims[d] = x.shape[static_cast<int>(permutation[d])];
  return {{Shape(std::span(dims.data(), permutation.size())), x.dtype}};
}

bool Transpose::is_batch_independent(const SampledInputs& inputs) const {
  return sampled_exactly(inputs, {0}) && attributes_.permutation[0] == 0;
}

std::string Transpose::summary() const {
  return fmt::format("{}", fmt::join(attributes_.permutation, ","));
}

bool Transpose::is_view(const TensorDesc& input, const TensorDesc& output) const {
  if (output.elements() == 0) return true;
  const Strides from = input.strides();
  const Strides to = output.strides();
  for (int d = 0; d < output.shape.rank(); ++d) {
    const auto source = static_cast<std::size_t>(attributes_.permutation[static_cast<std::size_t>(d)]);
    if (output.shape[d] > 1 && from[source] != to[static_cast<std::size_t>(d)]) return false;
  }
  return true;
}

DepthToSpace::DepthToSpace(DepthToSpaceAttributes attributes) : LayerOf(attributes) {
  if (attributes_.block < 1) fail("DepthToSpace: block {} is below 1", attributes_.block);
}

std::vector<TensorDesc> DepthToSpace::infer(std::span<const TensorDesc* const> inputs) const {
  check_inputs(inputs, kType, 1);
  const TensorDesc& x = *inputs[0];
  if (x.shape.rank() != 4) fail("DepthToSpace: x is {}, expected NxCxHxW", x.shape.str());
  const std::int64_t block = attributes_.block;
  const std::int64_t area = checked_mul(block, block, "DepthToSpace");
  const std::int64_t n = x.shape[0];
  const std::int64_t c = x.shape[1];
  const std::int64_t h = x.shape[2];
  const std::int64_t w = x.shape[3];
  if (attributes_.inverse) {
    if (h % block != 0 || w % block != 0) {
      fail("SpaceToDepth: {} is not divisible into blocks of {}x{}", x.shape.str(), block, block);
    }
    return {{Shape{n, checked_mul(c, area, "SpaceToDepth"), h / block, w / block}, x.dtype}};
  }
  if (c % area != 0) {
    fail("DepthToSpace: the channels of {} do not fill blocks of {}x{}", x.shape.str(), block, block);
  }
  return {{Shape{n, c / area, checked_mul(h, block, "DepthToSpace"), checked_mul(w, block, "DepthToSpace")},
           x.dtype}};
}

bool DepthToSpace::is_batch_independent(const SampledInputs& inputs) const {
  return sampled_exactly(inputs, {0});
}

std::string DepthToSpace::summary() const {
  return fmt::format("{0}x{0} {1}{2}", attributes_.block, attributes_.column_row_depth ? "CRD" : "DCR",
                     attributes_.inverse ? " inverse" : "");
}

std::vector<TensorDesc> Expand::infer(std::span<const TensorDesc* const> inputs) const {
  check_inputs(inputs, kType, 1);
  const TensorDesc& x = *inputs[0];
  if (!(broadcast_shapes(x.shape, attributes_.shape) == attributes_.shape)) {
    fail("Expand: {} does not broadcast to {}", x.shape.str(), attributes_.shape.str());
  }
  return {{attributes_.shape, x.dtype}};
}

bool Expand::is_batch_independent(const SampledInputs& inputs) const {
  const Shape& x = inputs.descs[0]->shape;
  return sampled_exactly(inputs, {0}) && attributes_.shape.rank() == x.rank() && attributes_.shape[0] == x[0];
}

LayerPtr Expand::for_samples(std::int64_t samples) const {
  return std::make_shared<Expand>(ExpandAttributes{attributes_.shape.with(0, samples)});
}

std::vector<TensorDesc> Tile::infer(std::span<const TensorDesc* const> inputs) const {
  check_inputs(inputs, kType, 1);
  const TensorDesc& x = *inputs[0];
  const auto& repeats = attributes_.repeats;
  if (repeats.size() != static_cast<std::size_t>(x.shape.rank())) {
    fail("Tile: {} repeats for x of {}", repeats.size(), x.shape.str());
  }
  std::array<std::int64_t, kMaxRank> dims{};
  for (std::size_t d = 0; d < repeats.size(); ++d) {
    if (repeats[d] < 0) fail("Tile: repeat {} of dimension {} is negative", repeats[d], d);
    dims[d] = checked_mul(x.shape[static_cast<int>(d)], repeats[d], "Tile");
  }
  return {{Shape(std::span(dims.data(), repeats.size())), x.dtype}};
}

bool Tile::is_batch_independent(const SampledInputs& inputs) const {
  return sampled_exactly(inputs, {0}) && attributes_.repeats[0] == 1;
}

std::vector<TensorDesc> Gather::infer(std::span<const TensorDesc* const> inputs) const {
  check_inputs(inputs, kType, 2);
  const TensorDesc& data = *inputs[0];
  const TensorDesc& indices = *inputs[1];
  if (indices.dtype != DType::i32 && indices.dtype != DType::i64) {
    fail("Gather: the indices are {}, expected i32 or i64", dtype_name(indices.dtype));
  }
  const auto axis = static_cast<std::size_t>(normalize_axis(attributes_.axis, data.shape.rank(), "Gather"));
  const auto from = data.shape.dims();
  std::vector<std::int64_t> dims(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(axis));
  dims.insert(dims.end(), indices.shape.dims().begin(), indices.shape.dims().end());
  dims.insert(dims.end(), from.begin() + static_cast<std::ptrdiff_t>(axis) + 1, from.end());
  return {{Shape(dims), data.dtype}};
}

Work Gather::work(std::span<const TensorDesc* const> /*inputs*/,
                  std::span<const TensorDesc> /*outputs*/) const {
  return {0, 0};  // that is up to the indices
}

bool Gather::is_batch_independent(const SampledInputs& inputs) const {
  if (sampled_exactly(inputs, {0}))
    return normalize_axis(attributes_.axis, inputs.descs[0]->shape.rank(), "Gather") > 0;
  return sampled_exactly(inputs, {1}) &&
         normalize_axis(attributes_.axis, inputs.descs[0]->shape.rank(), "Gather") == 0;
}

std::int64_t index_at(const ConstTensorView& indices, std::int64_t offset) {
  return indices.desc.dtype == DType::i32 ? indices.as<std::int32_t>()[offset]
                                          : indices.as<std::int64_t>()[offset];
}

std::int64_t gathered_position(const ConstTensorView& indices, std::int64_t offset, std::int64_t extent) {
  const std::int64_t index = index_at(indices, offset);
  if (index < -extent || index >= extent) {
    fail("Gather: index {} is outside [{}, {})", index, -extent, extent);
  }
  return index < 0 ? index + extent : index;
}

std::vector<TensorDesc> ToLayout::infer(std::span<const TensorDesc* const> inputs) const {
  check_inputs(inputs, kType, 1);
  return {{inputs[0]->shape, inputs[0]->dtype}};
}

bool ToLayout::is_batch_independent(const SampledInputs& inputs) const {
  return sampled_exactly(inputs, {0});
}

bool ToLayout::is_view(const TensorDesc& input, const TensorDesc& output) const {
  return input.layout == output.layout || input.layouts_coincide();
}

}  // namespace pipit::internal
