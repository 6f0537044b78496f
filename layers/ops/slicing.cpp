#include "layers/ops/slicing.h"

#include <fmt/format.h>

#include <algorithm>

#include "layers/ops/operands.h"
#include "layers/ops/samples.h"

namespace pipit::internal {

namespace {

const char* pad_mode_name(PadMode mode) {
  switch (mode) {
    case PadMode::constant:
      return "constant";
    case PadMode::reflect:
      return "reflect";
    case PadMode::edge:
      return "edge";
    case PadMode::wrap:
      return "wrap";
  }
  return "?";
}

}  // namespace

std::vector<TensorDesc> Concat::infer(std::span<const TensorDesc* const> inputs) const {
  check_inputs(inputs, kType, std::max<std::size_t>(inputs.size(), 1));
  const TensorDesc& first = *inputs[0];
  const int axis = normalize_axis(attributes_.axis, first.shape.rank(), "Concat");
  std::int64_t extent = 0;
  for (const TensorDesc* input : inputs) {
    const bool ranks_fit = input->shape.rank() == first.shape.rank();
    if (!ranks_fit || input->dtype != first.dtype ||
        !(input->shape.with(axis, first.shape[axis]) == first.shape)) {
      fail("Concat: {} and {} differ in more than dimension {}", first.str(), input->str(), axis);
    }
    extent = checked_add(extent, input->shape[axis], "Concat");
  }
  return {{first.shape.with(axis, extent), first.dtype}};
}

bool Concat::is_batch_independent(const SampledInputs& inputs) const {
  const auto& by_sample = inputs.by_sample;
  return normalize_axis(attributes_.axis, inputs.descs[0]->shape.rank(), "Concat") > 0 &&
         std::find(by_sample.begin(), by_sample.end(), false) == by_sample.end();
}

std::string Concat::summary() const {
  return fmt::format("axis {}", attributes_.axis);
}

Split::Split(SplitAttributes attributes) : LayerOf(std::move(attributes)) {
  if (attributes_.sizes.empty()) fail("Split: no output sizes given");
}

std::vector<TensorDesc> Split::infer(std::span<const TensorDesc* const> inputs) const {
  check_inputs(inputs, kType, 1);
  const TensorDesc& x = *inputs[0];
  const int axis = normalize_axis(attributes_.axis, x.shape.rank(), "Split");
  std::vector<TensorDesc> outputs;
  std::int64_t total = 0;
  for (const std::int64_t size : attributes_.sizes) {
    total = checked_add(total, size, "Split");
    outputs.push_back({x.shape.with(axis, size), x.dtype});
  }
  if (total != x.shape[axis]) {
    fail("Split: sizes {} do not sum to {}, the extent of dimension {} of {}",
         fmt::join(attributes_.sizes, ","), x.shape[axis], axis, x.shape.str());
  }
  return outputs;
}

bool Split::is_batch_independent(const SampledInputs& inputs) const {
  return sampled_exactly(inputs, {0}) &&
         normalize_axis(attributes_.axis, inputs.descs[0]->shape.rank(), "Split") > 0;
}

std::string Split::summary() const {
  return fmt::format("axis {} into {}", attributes_.axis, fmt::join(attributes_.sizes, ","));
}

Slice::Slice(SliceAttributes attributes) : LayerOf(std::move(attributes)) {
  const std::size_t n = attributes_.axes.size();
  if (attributes_.starts.size() != n || attributes_.ends.size() != n || attributes_.steps.size() != n) {
    fail("Slice: {} starts, {} ends and {} steps for {} axes", attributes_.starts.size(),
         attributes_.ends.size(), attributes_.steps.size(), n);
  }
  if (std::find(attributes_.steps.begin(), attributes_.steps.end(), 0) != attributes_.steps.end()) {
    fail("Slice: a step is 0");
  }
}

ResolvedSlice resolve_slice(const SliceAttributes& attributes, const Shape& input) {
  ResolvedSlice slice;
  slice.step.fill(1);
  std::copy(input.dims().begin(), input.dims().end(), slice.count.begin());
  std::array<bool, kMaxRank> seen{};
  for (std::size_t i = 0; i < attributes.axes.size(); ++i) {
    const int axis = normalize_axis(attributes.axes[i], input.rank(), "Slice");
    const auto d = static_cast<std::size_t>(axis);
    if (seen[d]) fail("Slice: dimension {} is given twice", axis);
    seen[d] = true;
    const std::int64_t extent = input[axis];
    // Steps beyond the extent all select one element; bounding them keeps -step and start + step in range.
    const std::int64_t bound = std::max<std::int64_t>(extent, 1);
    const std::int64_t step = std::clamp(attributes.steps[i], -bound, bound);
    const bool forward = step > 0;
    // Forward, positions run over [0, extent]; backward, over [-1, extent - 1].
    const auto position = [&](std::int64_t p) {
      if (p < 0) p += extent;
      return std::clamp(p, std::int64_t{forward ? 0 : -1}, forward ? extent : extent - 1);
    };
    const std::int64_t start = position(attributes.starts[i]);
    const std::int64_t distance = (position(attributes.ends[i]) - start) * (forward ? 1 : -1);
    slice.step[d] = step;
    slice.count[d] = start < 0 || distance <= 0 ? 0 : (distance - 1) / std::abs(step) + 1;
    slice.start[d] = slice.count[d] == 0 ? 0 : start;
  }
  return slice;
}

std::vector<TensorDesc> Slice::infer(std::span<const TensorDesc* const> inputs) const {
  check_inputs(inputs, kType, 1);
  const TensorDesc& x = *inputs[0];
  const ResolvedSlice slice = resolve_slice(attributes_, x.shape);
  const std::span counts(slice.count.data(), static_cast<std::size_t>(x.shape.rank()));
  return {{Shape(counts), x.dtype}};
}

Work Slice::work(std::span<const TensorDesc* const> inputs, std::span<const TensorDesc> outputs) const {
  const auto elements = static_cast<double>(inputs[0]->elements());
  return {0, elements > 0 ? static_cast<double>(outputs[0].elements()) / elements : 1};
}

bool Slice::is_batch_independent(const SampledInputs& inputs) const {
  const int rank = inputs.descs[0]->shape.rank();
  return sampled_exactly(inputs, {0}) &&
         std::none_of(attributes_.axes.begin(), attributes_.axes.end(),
                      [&](std::int64_t axis) { return normalize_axis(axis, rank, "Slice") == 0; });
}

std::string Slice::summary() const {
  return fmt::format("axes {}", fmt::join(attributes_.axes, ","));
}

Pad::Pad(PadAttributes attributes) : LayerOf(std::move(attributes)) {
  if (attributes_.begin.size() != attributes_.end.size()) {
    fail("Pad: {} begins for {} ends", attributes_.begin.size(), attributes_.end.size());
  }
}

std::int64_t padded_source(PadMode mode, std::int64_t position, std::int64_t extent) {
  if (position >= 0 && position < extent) return position;
  switch (mode) {
    case PadMode::constant:
      return -1;
    case PadMode::edge:
      return position < 0 ? 0 : extent - 1;
    case PadMode::wrap: {
      const std::int64_t r = position % extent;
      return r < 0 ? r + extent : r;
    }
    case PadMode::reflect: {
      if (extent == 1) return 0;
      const std::int64_t period = 2 * (extent - 1);  // forth and back, the ends once
      const std::int64_t r = std::abs(position % period);
      return std::min(r, period - r);
    }
  }
  return -1;
}

std::vector<TensorDesc> Pad::infer(std::span<const TensorDesc* const> inputs) const {
  check_inputs(inputs, kType, 1);
  const TensorDesc& x = *inputs[0];
  const auto rank = static_cast<std::size_t>(x.shape.rank());
  if (attributes_.begin.size() != rank) {
    fail("Pad: pads for {} dimensions, but x is {}", attributes_.begin.size(), x.shape.str());
  }
  std::array<std::int64_t, kMaxRank> dims{};
  for (std::size_t d = 0; d < rank; ++d) {
    const std::int64_t extent = x.shape.dims()[d];
    dims[d] = checked_add(checked_add(extent, attributes_.begin[d], "Pad"), attributes_.end[d], "Pad");
    if (dims[d] < 0) {
      fail("Pad: pads {} and {} remove more than dimension {} of {} has", attributes_.begin[d],
           attributes_.end[d], d, x.shape.str());
    }
    if (extent == 0 && dims[d] > 0 && attributes_.mode != PadMode::constant) {
      fail("Pad: mode {} has nothing to repeat in dimension {} of {}", pad_mode_name(attributes_.mode), d,
           x.shape.str());
    }
  }
  return {{Shape(std::span(dims.data(), rank)), x.dtype}};
}

bool Pad::is_batch_independent(const SampledInputs& inputs) const {
  return sampled_exactly(inputs, {0}) && attributes_.begin[0] == 0 && attributes_.end[0] == 0;
}

std::string Pad::summary() const {
  return fmt::format("{} {} / {}", pad_mode_name(attributes_.mode), fmt::join(attributes_.begin, ","),
                     fmt::join(attributes_.end, ","));
}

}  // namespace pipit::internal
