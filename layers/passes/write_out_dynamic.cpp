// Scales and zero points that are found at run time in floating point, for devices without kernels for them.
#include <algorithm>
#include <initializer_list>
#include <string>
#include <vector>

#include "layers/ops/binary.h"
#include "layers/ops/cast.h"
#include "layers/ops/conv.h"
#include "layers/ops/dynamic_int8.h"
#include "layers/ops/recurrent.h"
#include "layers/ops/reduce.h"
#include "layers/ops/reshaping.h"
#include "layers/ops/unary.h"
#include "layers/passes/passes.h"
#include "layers/passes/rewriter.h"

namespace pipit::internal {

namespace {

// Layers that are written for one.
class WrittenOut {
 public:
  WrittenOut(Rewriter& rewriter, const Node& node) : rewriter_(rewriter), node_(node) {}

  ValueId add(LayerPtr layer, std::vector<ValueId> inputs, const char* part) {
    const std::string name = node_.name + "/" + part;
    return rewriter_.builder().add1(name, std::move(layer), std::move(inputs), name);
  }
  ValueId binary(BinaryKind kind, ValueId a, ValueId b, const char* part) {
    return add(std::make_shared<Binary>(BinaryAttributes{kind}), {a, b}, part);
  }
  ValueId unary(const UnaryAttributes& attributes, ValueId x, const char* part) {
    return add(std::make_shared<Unary>(attributes), {x}, part);
  }
  ValueId cast(ValueId x, DType to, const char* part) {
    return add(std::make_shared<Cast>(CastAttributes{to}), {x}, part);
  }
  ValueId reshape(ValueId x, const Shape& shape, const char* part) {
    return add(std::make_shared<Reshape>(ReshapeAttributes{shape}), {x}, part);
  }
  ValueId constant(Tensor tensor, const char* part) {
    return rewriter_.constant(node_.name + "/" + part, std::move(tensor));
  }
  ValueId number(float value, const char* part) { return constant(Tensor::scalar(value), part); }

 private:
  Rewriter& rewriter_;
  const Node& node_;
};

// As AffineScale has it: the scale of zeros is 1 / 255.
void write_out_quantize(Rewriter& rewriter, const Node& node) {
  WrittenOut out(rewriter, node);
  const ValueId x = rewriter.map(node.inputs[0]);
  const auto extreme = [&](ReduceKind reduce, BinaryKind widen, ValueId zero, const char* what) {
    const std::string of_x = std::string(what) + "_of_x";
    const ValueId found =
        out.add(std::make_shared<Reduce>(ReduceAttributes{reduce, {}, false}), {x}, of_x.c_str());
    return out.binary(widen, found, zero, what);
  };
  constexpr UnaryAttributes kSaturate{UnaryKind::clip, 0, 255};
  const ValueId zero = out.number(0, "zero");
  const ValueId high = extreme(ReduceKind::max, BinaryKind::max, zero, "max");
  const ValueId low = extreme(ReduceKind::min, BinaryKind::min, zero, "min");
  const ValueId range = out.binary(BinaryKind::sub, high, low, "range");
  const ValueId none =
      out.cast(out.binary(BinaryKind::equal, range, zero, "is_none"), DType::f32, "one_of_none");
  const ValueId width = out.binary(BinaryKind::add, range, none, "width");
  const ValueId scale = out.binary(BinaryKind::div, width, out.number(255, "steps"), "scale");
  const ValueId low_steps = out.binary(BinaryKind::div, low, scale, "low_steps");
  const ValueId shift = out.binary(BinaryKind::sub, zero, low_steps, "shift");
  const ValueId zero_point =
      out.unary({UnaryKind::round}, out.unary(kSaturate, shift, "saturated_shift"), "real_zero_point");
  const ValueId x_steps = out.binary(BinaryKind::div, x, scale, "x_steps");
  const ValueId rounded = out.unary({UnaryKind::round}, x_steps, "rounded");
  const ValueId shifted = out.binary(BinaryKind::add, rounded, zero_point, "shifted");
  const ValueId saturated = out.unary(kSaturate, shifted, "saturated");
  rewriter.forward(node.outputs[0], out.cast(saturated, DType::u8, "integers"));
  rewriter.forward(node.outputs[1], scale);
  rewriter.forward(node.outputs[2], out.cast(zero_point, DType::u8, "zero_point"));
}

// Less their zero points.
Tensor real_integers(const ConstTensorView& weights, const DynamicQConvAttributes& attributes) {
  const Shape& shape = weights.desc.shape;
  const std::vector<int> zero_points = zero_points_of_outputs(attributes, shape[0]);
  Tensor real(TensorDesc{shape});
  const std::int64_t depth = shape.elements() / shape[0];
  float* to = real.values<float>().data();
  for (std::int64_t i = 0; i < shape.elements(); ++i) {
    to[i] = static_cast<float>(byte_at(weights, i) - zero_points[static_cast<std::size_t>(i / depth)]);
  }
  return real;
}

void write_out_conv(Rewriter& rewriter, const Node& node, const DynamicQConvAttributes& attributes) {
  WrittenOut out(rewriter, node);
  const Graph& graph = rewriter.source();
  const Shape& y = graph.value(node.outputs[0]).desc.shape;
  const auto input = [&](std::size_t i) {
    return i < node.inputs.size() ? rewriter.map(node.inputs[i]) : kNoValue;
  };
  std::vector<std::int64_t> dims(static_cast<std::size_t>(y.rank()), 1);
  dims[1] = y[1];
  const Shape per_output(dims);
  const ValueId zero_point = out.cast(input(DynamicQConv::kZeroPoint), DType::f32, "x_zero_point");
  const ValueId x = out.binary(BinaryKind::sub, out.cast(input(0), DType::f32, "x_real"), zero_point, "x");
  const ValueId weights =
      out.constant(real_integers(graph.value(node.inputs[1]).constant->view(), attributes), "w");
  ConvAttributes conv = attributes.conv;
  conv.activation = {};
  // Winograd's sums are not whole numbers.
  ValueId value =
      out.unary({UnaryKind::round}, out.add(std::make_shared<Conv>(conv), {x, weights}, "sums"), "whole");
  if (const ValueId bias = input(DynamicQConv::kSumBias); bias != kNoValue)
    value = out.binary(BinaryKind::add, value,
                       out.reshape(out.cast(bias, DType::f32, "sum_bias"), per_output, "sum_biases"),
                       "sums_biased");
  const std::vector<float> scales = scales_of_outputs(attributes, y[1]);
  value = out.binary(
      BinaryKind::mul, value,
      out.constant(Tensor::from<float>(per_output, std::span<const float>(scales)), "w_scales"), "w_scaled");
  const ValueId scale = out.reshape(input(DynamicQConv::kScales), Shape{1}, "scale");
  value = out.binary(BinaryKind::mul, value, scale, "scaled");
  if (const ValueId bias = input(2); bias != kNoValue)
    value = out.binary(BinaryKind::add, value, out.reshape(bias, per_output, "bias"), "biased");
  if (const ValueId residual = input(DynamicQConv::kResidual); residual != kNoValue)
    value = out.binary(BinaryKind::add, value, residual, "added");
  const Clamp& activation = attributes.conv.activation;
  if (!activation.is_identity())
    value = out.unary({UnaryKind::clip, activation.low, activation.high}, value, "clamped");
  rewriter.forward(node.outputs[0], value);
}

// With weights of the recurrent product in f32.
void write_out_recurrent(Rewriter& rewriter, const Node& node, const Recurrent& layer) {
  const Graph& graph = rewriter.source();
  const Tensor& weights = *graph.value(node.inputs[Recurrent::kWeights]).constant;
  const ConstTensorView zeros = graph.value(node.inputs[Recurrent::kZeroPoints]).constant->view();
  const auto scales = graph.value(node.inputs[Recurrent::kScales]).constant->values<float>();
  Tensor real(TensorDesc{weights.shape()});
  for (std::int64_t i = 0; i < weights.shape().elements(); ++i) {
    const std::int64_t row = i / weights.shape()[2];
    real.values<float>()[static_cast<std::size_t>(i)] =
        static_cast<float>(byte_at(weights.view(), i) - byte_at(zeros, row)) *
        scales[static_cast<std::size_t>(row)];
  }
  std::vector<ValueId> inputs;
  for (std::size_t i = 0; i < Recurrent::kScales; ++i) inputs.push_back(rewriter.map(node.inputs[i]));
  inputs[Recurrent::kWeights] = rewriter.constant(node.name + "/r", std::move(real));
  rewriter.emit(node.name, std::make_shared<Recurrent>(layer.attributes()), std::move(inputs), node.outputs);
}

bool all_constant(const Graph& graph, const Node& node, std::initializer_list<std::size_t> inputs) {
  return std::all_of(inputs.begin(), inputs.end(), [&](std::size_t i) {
    return i < node.inputs.size() && node.inputs[i] != kNoValue &&
           graph.value(node.inputs[i]).constant != nullptr;
  });
}

}  // namespace

Rewritten write_out_dynamic(const Graph& graph) {
  Rewriter rewriter(graph);
  int changes = 0;
  for (const Node& node : graph.nodes()) {
    const auto* conv = layer_if<DynamicQConv>(node);
    const auto* quantize = layer_if<DynamicQuantize>(node);
    const auto* recurrent = layer_if<Recurrent>(node);
    if (recurrent != nullptr &&
        all_constant(graph, node, {Recurrent::kWeights, Recurrent::kScales, Recurrent::kZeroPoints})) {
      write_out_recurrent(rewriter, node, *recurrent);
    } else if (quantize != nullptr && quantize->attributes().affine) {
      write_out_quantize(rewriter, node);
    } else if (conv != nullptr && node.inputs.size() > DynamicQConv::kZeroPoint &&
               all_constant(graph, node, {1}) &&
               graph.value(node.inputs[DynamicQConv::kScales]).desc.elements() == 1) {
      write_out_conv(rewriter, node, conv->attributes());
    } else {
      rewriter.copy(node);
      continue;
    }
    ++changes;
  }
  return {rewriter.finish(), changes};
}

}  // namespace pipit::internal
