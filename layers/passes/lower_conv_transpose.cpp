// Transposed convolutions as ordinary ones: output positions t * stride + phase are, for each phase, a convolution of
// stride 1 with the taps that reach them (sub-pixel convolution; Shi et al., "Is the deconvolution layer the same as a
// convolutional layer?", 2016). Nothing is multiplied by the zeros between inputs, and no matrix of columns is added
// up.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <optional>

#include "layers/ops/conv.h"
#include "layers/ops/conv_transpose.h"
#include "layers/ops/reshaping.h"
#include "layers/ops/slicing.h"
#include "layers/passes/passes.h"
#include "layers/passes/rewriter.h"

namespace pipit::internal {

namespace {

// More phases would make more nodes than anybody wants to plan.
constexpr std::int64_t kMaxPhases = 1024;
constexpr std::int64_t kNoTap = -1;  // a weight of zero

// What one phase reads along one axis: taps at input positions t + first, t + first + step, ...
struct Taps {
  std::int64_t first = 0;
  std::int64_t step = 1;
  std::vector<std::int64_t> kernel;  // which position of the kernel each one is
  std::int64_t last() const { return first + step * (static_cast<std::int64_t>(kernel.size()) - 1); }
  bool same_window(const Taps& other) const {
    return first == other.first && step == other.step && kernel.size() == other.kernel.size();
  }
};

// Nothing where more zeros than taps would have to be added: where pads cut off most of the output.
std::optional<Taps> taps_of(const Window& window, std::size_t axis, std::int64_t phase, std::int64_t input,
                            std::int64_t positions) {
  const std::int64_t stride = window.stride[axis];
  const std::int64_t dilation = window.dilation[axis];
  Taps taps;
  for (std::int64_t k = window.kernel[axis]; k-- > 0;) {
    const std::int64_t distance = phase + window.pad_begin[axis] - k * dilation;
    if (distance % stride != 0) continue;
    if (taps.kernel.empty()) taps.first = distance / stride;
    taps.kernel.push_back(k);
  }
  if (taps.kernel.empty()) taps.kernel.push_back(kNoTap);
  if (taps.kernel.size() > 1) taps.step = dilation / std::gcd(dilation, stride);
  // A convolution's pads are not negative: taps of zero make up for what would be.
  const std::size_t most = 2 * taps.kernel.size() + 2;
  while (taps.first > 0 && taps.kernel.size() < most) {
    taps.kernel.insert(taps.kernel.begin(), kNoTap);
    taps.first -= taps.step;
  }
  while (positions + taps.last() < input && taps.kernel.size() < most) taps.kernel.push_back(kNoTap);
  const bool fits = taps.first <= 0 && positions + taps.last() >= input;
  return fits ? std::optional(std::move(taps)) : std::nullopt;
}

using Phase = std::array<Taps, kMaxSpatial>;

// Neighbouring phases that read the same positions: one convolution computes them all.
using Part = std::vector<Phase>;

class TransposeLowering {
 public:
  TransposeLowering(Rewriter& rewriter, const Node& node)
      : rewriter_(rewriter),
        node_(node),
        attributes_(layer_as<ConvTranspose>(*node.layer).attributes()),
        window_(attributes_.window),
        x_(desc(node.inputs[0]).shape),
        y_(desc(node.outputs[0]).shape) {
    for (int axis = 0; axis < window_.rank; ++axis) {
      const std::int64_t stride = window_.stride[index(axis)];
      positions_[index(axis)] = (y_[axis + 2] + stride - 1) / stride;
    }
  }

  // Why not, or nothing where the parts are known.
  std::optional<std::string> refusal() {
    if (constant(1) == nullptr) return "its weights are no f32 constants";
    const bool has_bias = node_.inputs.size() > 2 && node_.inputs[2] != kNoValue;
    if (has_bias && constant(2) == nullptr) return "its bias is no f32 constant";
    std::int64_t phases = 1;
    for (int axis = 0; axis < window_.rank; ++axis) {
      if (window_.stride[index(axis)] > kMaxPhases / phases)
        return fmt::format("strides of more than {} phases", kMaxPhases);
      phases *= window_.stride[index(axis)];
    }
    return find_parts(phases) ? std::nullopt : std::optional<std::string>("most of its output is cut off");
  }

  void emit() {
    std::vector<ValueId> made;
    for (std::size_t p = 0; p < parts_.size(); ++p) made.push_back(convolution(p));
    ValueId y = made.size() == 1 ? made[0] : add("/phases", Concat(ConcatAttributes{.axis = 1}), made);
    y = crop(interleave(y));
    rewriter_.builder().rename(y, rewriter_.source().value(node_.outputs[0]).name);
    rewriter_.forward(node_.outputs[0], y);
  }

 private:
  static std::size_t index(int axis) { return static_cast<std::size_t>(axis); }
  const TensorDesc& desc(ValueId id) const { return rewriter_.source().value(id).desc; }
  const Tensor* constant(std::size_t input) const {
    if (input >= node_.inputs.size() || node_.inputs[input] == kNoValue) return nullptr;
    const Tensor* tensor = rewriter_.source().value(node_.inputs[input]).constant.get();
    return tensor != nullptr && tensor->desc().dtype == DType::f32 ? tensor : nullptr;
  }

  bool find_parts(std::int64_t phases) {
    for (std::int64_t p = 0; p < phases; ++p) {
      Phase phase;
      std::int64_t rest = p;
      for (int axis = window_.rank; axis-- > 0;) {
        const std::int64_t stride = window_.stride[index(axis)];
        const auto taps = taps_of(window_, index(axis), rest % stride, x_[axis + 2], positions_[index(axis)]);
        if (!taps) return false;
        phase[index(axis)] = *taps;
        rest /= stride;
      }
      // With groups the channels of one phase are no neighbours in what several phases would give.
      const bool joins = attributes_.groups == 1 && !parts_.empty() && same_window(parts_.back()[0], phase);
      if (!joins) parts_.emplace_back();
      parts_.back().push_back(std::move(phase));
    }
    return true;
  }

  bool same_window(const Phase& a, const Phase& b) const {
    return std::equal(a.begin(), a.begin() + window_.rank, b.begin(),
                      [](const Taps& s, const Taps& t) { return s.same_window(t); });
  }

  template <typename L>
  ValueId add(const std::string& suffix, L layer, const std::vector<ValueId>& inputs) {
    const std::string& value = rewriter_.source().value(node_.outputs[0]).name;
    return rewriter_.builder().add1(node_.name + suffix, std::make_shared<L>(std::move(layer)), inputs,
                                    value + (suffix.empty() ? "/convolution" : suffix));
  }

  ValueId convolution(std::size_t number) {
    const Part& part = parts_[number];
    ConvAttributes attributes;
    attributes.groups = attributes_.groups;
    attributes.activation = attributes_.activation;
    attributes.window.rank = window_.rank;
    for (int axis = 0; axis < window_.rank; ++axis) {
      const Taps& taps = part[0][index(axis)];
      attributes.window.kernel[index(axis)] = static_cast<std::int64_t>(taps.kernel.size());
      attributes.window.dilation[index(axis)] = taps.step;
      attributes.window.pad_begin[index(axis)] = -taps.first;
      attributes.window.pad_end[index(axis)] = positions_[index(axis)] + taps.last() - x_[axis + 2];
    }
    const std::string suffix = parts_.size() == 1 ? "" : fmt::format("/part{}", number);
    std::vector<ValueId> inputs = {rewriter_.map(node_.inputs[0]),
                                   rewriter_.constant(node_.name + suffix + ".weights", weights(part))};
    if (constant(2) != nullptr)
      inputs.push_back(rewriter_.constant(node_.name + suffix + ".bias", bias(part.size())));
    return add(suffix, Conv(attributes), inputs);
  }

  // [phases * O, C / groups, taps...] of [C, O / groups, kernel...].
  Tensor weights(const Part& part) const {
    const Tensor& from = *constant(1);
    const Strides strides = from.desc().strides();
    const std::int64_t group_outputs = from.shape()[1];
    const std::int64_t group_inputs = x_[1] / attributes_.groups;
    std::array<std::int64_t, kMaxSpatial + 2> dims{static_cast<std::int64_t>(part.size()) * y_[1],
                                                   group_inputs, 1, 1, 1};
    for (int axis = 0; axis < window_.rank; ++axis)
      dims[index(axis) + 2] = static_cast<std::int64_t>(part[0][index(axis)].kernel.size());
    Tensor to(TensorDesc{Shape(std::span<const std::int64_t>(dims.data(), index(window_.rank + 2)))});
    const float* source = from.values<float>().data();
    float* target = to.values<float>().data();
    for (const Phase& phase : part) {
      for (std::int64_t o = 0; o < y_[1]; ++o) {
        for (std::int64_t c = 0; c < group_inputs; ++c) {
          const std::int64_t channel = o / group_outputs * group_inputs + c;
          const float* filter = source + channel * strides[0] + o % group_outputs * strides[1];
          for (std::int64_t t = 0; t < dims[2] * dims[3] * dims[4]; ++t) {
            const std::array<std::int64_t, kMaxSpatial> at{t / dims[4] / dims[3], t / dims[4] % dims[3],
                                                           t % dims[4]};
            *target++ = tap(phase, at, filter, strides);
          }
        }
      }
    }
    return to;
  }

  // `at`: positions among the taps; axes beyond the rank have one.
  float tap(const Phase& phase, const std::array<std::int64_t, kMaxSpatial>& at, const float* filter,
            const Strides& strides) const {
    std::int64_t offset = 0;
    for (int axis = 0; axis < window_.rank; ++axis) {
      const std::int64_t k = phase[index(axis)].kernel[static_cast<std::size_t>(at[index(axis)])];
      if (k == kNoTap) return 0;
      offset += k * strides[index(axis) + 2];
    }
    return filter[offset];
  }

  Tensor bias(std::size_t phases) const {
    const std::span<const float> from = constant(2)->values<float>();
    std::vector<float> all;
    for (std::size_t p = 0; p < phases; ++p) all.insert(all.end(), from.begin(), from.end());
    return Tensor::from<float>(Shape{static_cast<std::int64_t>(all.size())}, std::span<const float>(all));
  }

  // From [N, phases * O, t...] to [N, O, t * stride + phase...].
  ValueId interleave(ValueId y) {
    const auto& stride = window_.stride;
    if (window_.rank == 2 && stride[0] == stride[1]) {
      return stride[0] == 1
                 ? y
                 : add("/interleave", DepthToSpace(DepthToSpaceAttributes{.block = stride[0]}), {y});
    }
    if (window_.stride == Window{}.stride) return y;
    // In the order of memory, [N, t..., phases, O], what lies between the positions of two axes moves at once: rows of
    // the last axis' phases, all outputs each. The Transposes before and after it move nothing.
    const Shape shape = rewriter_.builder().value(y).desc.shape;
    const int rank = window_.rank;
    std::vector<std::int64_t> last{0};
    for (int d = 2; d < shape.rank(); ++d) last.push_back(d);
    last.push_back(1);
    y = add("/interleave.last", Transpose(TransposeAttributes{last}), {y});
    if (rank > 1) {
      // [N t, t..., phase..., phase O] to [N t, phase, t, phase, ..., phase O].
      std::vector<std::int64_t> apart{shape[0] * shape[2]};
      std::vector<std::int64_t> order{0};
      for (int axis = 1; axis < rank; ++axis) apart.push_back(shape[axis + 2]);
      for (int axis = 0; axis + 1 < rank; ++axis) {
        apart.push_back(stride[index(axis)]);
        order.push_back(rank + axis);
        order.push_back(axis + 1);
      }
      apart.push_back(stride[index(rank - 1)] * y_[1]);
      order.push_back(2 * rank - 1);
      y = add("/interleave.split", Reshape(ReshapeAttributes{Shape(apart)}), {y});
      y = add("/interleave", Transpose(TransposeAttributes{order}), {y});
    }
    std::vector<std::int64_t> joined{shape[0]};
    std::vector<std::int64_t> first{0, rank + 1};
    for (int axis = 0; axis < rank; ++axis) {
      joined.push_back(shape[axis + 2] * stride[index(axis)]);
      first.push_back(axis + 1);
    }
    joined.push_back(y_[1]);
    y = add("/interleave.join", Reshape(ReshapeAttributes{Shape(joined)}), {y});
    return add("/interleave.first", Transpose(TransposeAttributes{first}), {y});
  }

  // The last positions of an extent that is no multiple of the stride.
  ValueId crop(ValueId y) {
    SliceAttributes slice;
    const Shape shape = rewriter_.builder().value(y).desc.shape;
    for (int d = 2; d < shape.rank(); ++d) {
      if (shape[d] == y_[d]) continue;
      slice.starts.push_back(0);
      slice.ends.push_back(y_[d]);
      slice.axes.push_back(d);
      slice.steps.push_back(1);
    }
    return slice.axes.empty() ? y : add("/crop", Slice(slice), {y});
  }

  Rewriter& rewriter_;
  const Node& node_;
  const ConvTransposeAttributes& attributes_;
  const Window& window_;
  const Shape& x_;
  const Shape& y_;
  std::array<std::int64_t, kMaxSpatial> positions_{1, 1, 1};  // of a phase, along every axis
  std::vector<Part> parts_;
};

}  // namespace

Rewritten lower_conv_transpose(const Graph& graph) {
  Rewriter rewriter(graph);
  int changes = 0;
  std::vector<std::string> notes;
  for (const Node& node : graph.nodes()) {
    if (layer_if<ConvTranspose>(node) == nullptr) {
      rewriter.copy(node);
      continue;
    }
    TransposeLowering lowering(rewriter, node);
    if (const auto reason = lowering.refusal()) {
      notes.push_back(
          fmt::format("{}: the transposed convolution runs on the plain kernel: {}", node.name, *reason));
      rewriter.copy(node);
      continue;
    }
    lowering.emit();
    ++changes;
  }
  return {rewriter.finish(), changes, std::move(notes)};
}

}  // namespace pipit::internal
