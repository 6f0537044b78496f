// The oracle of dynamic INT8: DynamicQuantize and DynamicQConv, as layers/ops/dynamic_int8.h specifies them.
#include "layers/ops/dynamic_int8.h"

#include "layers/common/image.h"
#include "layers/common/layer_kernel.h"
#include "layers/common/strided_loop.h"
#include "layers/ops/operands.h"
#include "layers/reference/reference.h"

namespace pipit::internal {

namespace {

void run_affine(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs) {
  const auto loop = broadcast_loop<2>({&outputs[0].desc, &inputs[0].desc});
  const float* x = inputs[0].as<float>();
  auto* q = outputs[0].as<std::uint8_t>();
  float low = 0, high = 0;
  bool finite = true;
  for (std::int64_t i = 0; i < inputs[0].desc.elements(); ++i) {
    low = std::min(low, x[i]);
    high = std::max(high, x[i]);
    finite = finite && std::isfinite(x[i]);
  }
  const AffineScale found = affine_scale(low, finite ? high : INFINITY);
  *outputs[1].as<float>() = found.scale;
  *outputs[2].as<std::uint8_t>() = static_cast<std::uint8_t>(found.zero_point);
  loop.for_each([&](const auto& at) {
    const StepBounds bounds = step_bounds(found.quantization(), -INFINITY, INFINITY);
    q[at[0]] = std::isnan(found.scale)
                   ? std::uint8_t{0}
                   : static_cast<std::uint8_t>(requantize(x[at[1]] / found.scale, bounds, found.zero_point));
  });
}

void run_quantize(const DynamicQuantize& layer, std::span<const ConstTensorView> inputs,
                  std::span<const TensorView> outputs, const RunContext& /*context*/) {
  if (layer.attributes().affine) return run_affine(inputs, outputs);
  const auto loop = broadcast_loop<2>({&outputs[0].desc, &inputs[0].desc});
  const float* x = inputs[0].as<float>();
  auto* q = reinterpret_cast<std::uint8_t*>(outputs[0].data);  // of i8 the bits
  float* scales = outputs[1].as<float>();
  const std::int64_t samples = outputs[1].desc.elements();
  const std::int64_t size = samples == 0 ? 0 : inputs[0].desc.elements() / samples;
  if (size == 0) std::fill_n(scales, samples, dynamic_scale(0).scale);
  // Dimension 0 is outermost in every layout: a sample is one run of elements.
  std::vector<DynamicScale> found;
  for (std::int64_t s = 0; s < samples && size > 0; ++s) {
    std::uint32_t largest = 0;
    for (std::int64_t i = 0; i < size; ++i) largest = std::max(largest, magnitude_bits(x[s * size + i]));
    found.push_back(dynamic_scale(largest));
    scales[s] = found.back().scale;
  }
  const Quantization bytes = dynamic_bytes(layer.attributes().type);
  const StepBounds bounds = step_bounds(bytes, -INFINITY, INFINITY);
  loop.for_each([&](const auto& at) {
    const float steps = x[at[1]] * found[static_cast<std::size_t>(at[1] / size)].inverse;
    q[at[0]] = static_cast<std::uint8_t>(requantize(steps, bounds, bytes.zero_point));
  });
}

// Integers less their zero point.
struct Steps {
  const std::byte* data;
  DType type;
  int zero_point;

  int operator[](std::int64_t i) const { return byte_at(data, type, i) - zero_point; }
  Steps from(std::int64_t i) const { return {data + i, type, zero_point}; }
};

// Sum of the products of one output position.
std::int32_t correlate(const Window& window, const Image& x, const Steps& plane, const Image& w,
                       const Steps& filter, std::int64_t d, std::int64_t h, std::int64_t v) {
  const TapRange td = taps_inside(window, 0, d, x.extent[0]);
  const TapRange th = taps_inside(window, 1, h, x.extent[1]);
  const TapRange tw = taps_inside(window, 2, v, x.extent[2]);
  const std::int64_t channels = w.channels;
  const std::int64_t x_step = x.channel_stride;
  const std::int64_t w_step = w.channel_stride;
  std::int32_t sum = 0;
  for (std::int64_t kd = td.begin; kd < td.end; ++kd) {
    for (std::int64_t kh = th.begin; kh < th.end; ++kh) {
      for (std::int64_t kw = tw.begin; kw < tw.end; ++kw) {
        const std::int64_t at = x.at(td.start + kd * window.dilation[0], th.start + kh * window.dilation[1],
                                     tw.start + kw * window.dilation[2]);
        const std::int64_t tap = w.at(kd, kh, kw);
        for (std::int64_t c = 0; c < channels; ++c) {
          sum += plane[at + c * x_step] * filter[tap + c * w_step];
        }
      }
    }
  }
  return sum;
}

void run_conv(const DynamicQConv& layer, std::span<const ConstTensorView> inputs,
              std::span<const TensorView> outputs, const RunContext& context) {
  const ConvAttributes& attributes = layer.attributes().conv;
  const Window window = as_3d(attributes.window);
  const Image x(inputs[0].desc);
  const Image w(inputs[1].desc);
  const Image y(outputs[0].desc);
  const bool has_zero_point =
      inputs.size() > DynamicQConv::kZeroPoint && inputs[DynamicQConv::kZeroPoint].present();
  const Steps input{inputs[0].data, inputs[0].desc.dtype,
                    has_zero_point ? byte_at(inputs[DynamicQConv::kZeroPoint], 0)
                                   : dynamic_bytes(inputs[0].desc.dtype).zero_point};
  const std::vector<int> zero_points = zero_points_of_outputs(layer.attributes(), y.channels);
  const auto* sum_bias = optional_data<std::int32_t>(inputs, DynamicQConv::kSumBias);
  const float* bias = optional_data<float>(inputs, 2);
  const float* residual = optional_data<float>(inputs, DynamicQConv::kResidual);
  const Image r(residual != nullptr ? inputs[DynamicQConv::kResidual].desc : outputs[0].desc);
  const float* scales = inputs[DynamicQConv::kScales].as<float>();
  const std::int64_t share = y.batch / inputs[DynamicQConv::kScales].desc.elements();
  const std::vector<float> weight_scales = scales_of_outputs(layer.attributes(), y.channels);
  float* output = outputs[0].as<float>();
  const std::int64_t outputs_per_group = y.channels / attributes.groups;
  context.pool.parallel_for(y.batch * y.channels, [&](std::int64_t index, int) {
    const std::int64_t n = index / y.channels;
    const std::int64_t o = index % y.channels;
    const Steps plane = input.from(x.plane(n, o / outputs_per_group * w.channels));
    const Steps filter{inputs[1].data + o * w.batch_stride, inputs[1].desc.dtype,
                       zero_points[static_cast<std::size_t>(o)]};
    for_each_position(y, [&](std::int64_t d, std::int64_t h, std::int64_t v) {
      std::uint32_t sum = static_cast<std::uint32_t>(correlate(window, x, plane, w, filter, d, h, v));
      if (sum_bias != nullptr) sum += static_cast<std::uint32_t>(sum_bias[o]);
      const float weight_scale = weight_scales[static_cast<std::size_t>(o)];
      float value = static_cast<float>(static_cast<std::int32_t>(sum));
      value = has_zero_point ? value * (scales[0] * weight_scale) : value * weight_scale * scales[n / share];
      if (bias != nullptr) value += bias[o];
      if (residual != nullptr) value += residual[r.plane(n, o) + r.at(d, h, v)];
      output[y.plane(n, o) + y.at(d, h, v)] = attributes.activation(value);
    });
  });
}

}  // namespace

void register_reference_dynamic_int8(Registry& registry) {
  add_layer_kernel<DynamicQuantize>(registry, kReference, refuse_reduced_precision, run_quantize);
  add_layer_kernel<DynamicQConv>(registry, kReference, refuse_reduced_precision, run_conv);
}

}  // namespace pipit::internal
