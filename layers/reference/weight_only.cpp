// WLinear and WConv: the products with the weights as they are stored, summed up in double; and the weights themselves.
#include "layers/ops/weight_only.h"

#include "layers/common/image.h"
#include "layers/ops/dequantize_blocks.h"
#include "layers/reference/float_kernel.h"

namespace pipit::internal {

namespace {

// One row of weights, as real values.
class Row {
 public:
  Row(const WeightFormat& format, std::int64_t depth, std::int64_t output, const std::byte* weights,
      const float* scales)
      : format_(format),
        group_(format.group(depth)),
        integers_(weights + output * format.row_bytes(depth)),
        scales_(scales + output * format.groups(depth)) {}
  double operator[](std::int64_t k) const {
    return static_cast<double>(format_.at(integers_, k)) * scales_[k / group_];
  }

 private:
  WeightFormat format_;
  std::int64_t group_;
  const std::byte* integers_;
  const float* scales_;
};

void run_linear(const WLinear& layer, std::span<const ConstTensorView> inputs,
                std::span<const TensorView> outputs, const RunContext& context) {
  const std::int64_t depth = inputs[0].desc.shape[inputs[0].desc.shape.rank() - 1];
  const std::int64_t columns = inputs[1].desc.shape[0];
  const float* x = inputs[0].as<float>();
  const float* bias = optional_data<float>(inputs, 3);
  float* y = outputs[0].as<float>();
  context.pool.parallel_for(outputs[0].desc.elements(), [&](std::int64_t index, int) {
    const std::int64_t o = index % columns;
    const float* row = x + index / columns * depth;
    const Row w(layer.attributes().format, depth, o, inputs[1].data, inputs[2].as<float>());
    double sum = 0;
    for (std::int64_t k = 0; k < depth; ++k) sum += row[k] * w[k];
    if (bias != nullptr) sum += bias[o];
    y[index] = static_cast<float>(layer.attributes().activation(sum));
  });
}

void run_conv(const WConv& layer, std::span<const ConstTensorView> inputs,
              std::span<const TensorView> outputs, const RunContext& context) {
  const ConvAttributes& attributes = layer.attributes().conv;
  const Window window = as_3d(attributes.window);
  const Image x(inputs[0].desc);
  const Image y(outputs[0].desc);
  const float* input = inputs[0].as<float>();
  const float* bias = optional_data<float>(inputs, 3);
  const float* residual = optional_data<float>(inputs, 4);
  const Image r(residual != nullptr ? inputs[4].desc : outputs[0].desc);
  float* output = outputs[0].as<float>();
  context.pool.parallel_for(y.batch * y.channels, [&](std::int64_t index, int) {
    const std::int64_t n = index / y.channels;
    const std::int64_t o = index % y.channels;
    const Row w(layer.attributes().format, x.channels, o, inputs[1].data, inputs[2].as<float>());
    for_each_position(y, [&](std::int64_t d, std::int64_t h, std::int64_t v) {
      const TapRange td = taps_inside(window, 0, d, x.extent[0]);
      const TapRange th = taps_inside(window, 1, h, x.extent[1]);
      const TapRange tw = taps_inside(window, 2, v, x.extent[2]);
      double sum = 0;
      if (td.count() * th.count() * tw.count() > 0) {
        const float* pixel = input + x.plane(n, 0) + x.at(td.start, th.start, tw.start);
        for (std::int64_t k = 0; k < x.channels; ++k) sum += pixel[k * x.channel_stride] * w[k];
      }
      if (bias != nullptr) sum += bias[o];
      if (residual != nullptr) sum += residual[r.plane(n, o) + r.at(d, h, v)];
      output[y.plane(n, o) + y.at(d, h, v)] = static_cast<float>(attributes.activation(sum));
    });
  });
}

void run_blocks(const DequantizeBlocks& layer, std::span<const ConstTensorView> inputs,
                std::span<const TensorView> outputs, const RunContext& /*context*/) {
  const BlockQuantization& q = layer.x();
  const Shape& shape = inputs[0].desc.shape;
  const auto axis = static_cast<int>(q.axis);
  std::int64_t inner = 1;
  for (int d = axis + 1; d < shape.rank(); ++d) inner *= shape[d];
  const std::int64_t blocks = shape[axis] / q.block + (shape[axis] % q.block != 0 ? 1 : 0);
  const auto* x = inputs[0].as<std::int8_t>();
  auto* y = outputs[0].as<float>();
  for (std::int64_t i = 0; i < shape.elements(); ++i) {
    const std::int64_t outer = i / inner / shape[axis], along = i / inner % shape[axis];
    const std::int64_t scale = (outer * blocks + along / q.block) * inner + i % inner;
    y[i] = static_cast<float>(x[i]) * q.scales[static_cast<std::size_t>(scale)];
  }
}

Refusal refuse_linear(const NodeSpec& spec) {
  if (Refusal reason = refuse_reduced_precision(spec)) return reason;
  return refuse_unless_row_major(spec);
}

}  // namespace

void register_reference_weight_only(Registry& registry) {
  add_layer_kernel<WLinear>(registry, kReference, refuse_linear, run_linear);
  add_layer_kernel<WConv>(registry, kReference, refuse_reduced_precision, run_conv);
  add_layer_kernel<DequantizeBlocks>(registry, kReference, refuse_linear, run_blocks);
}

}  // namespace pipit::internal
