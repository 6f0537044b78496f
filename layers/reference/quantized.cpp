// The oracle of INT8: Quantize, Dequantize, QConv, QAdd, QMul, QUnary and QAveragePool, as layers/ops/quantization.h
// specifies them.
#include "layers/common/image.h"
#include "layers/common/layer_kernel.h"
#include "layers/common/strided_loop.h"
#include "layers/ops/operands.h"
#include "layers/ops/qconv.h"
#include "layers/ops/qelementwise.h"
#include "layers/ops/quantize.h"
#include "layers/ops/qunary.h"
#include "layers/reference/reference.h"

namespace pipit::internal {

namespace {

// An int8 tensor's elements as int, whichever type they have; f32 as Quantize makes them.
class Integers {
 public:
  Integers(const ConstTensorView& view, const Quantization& q)
      : view_(view),
        zero_point_(q.zero_point),
        scale_(q.scale),
        bounds_(step_bounds(q, -INFINITY, INFINITY)) {}
  /// Less the zero point.
  int operator[](std::int64_t at) const {
    if (view_.desc.dtype == DType::f32)
      return requantize(reinterpret_cast<const float*>(view_.data)[at] / scale_, bounds_, 0);
    const int raw = view_.desc.dtype == DType::i8
                        ? static_cast<int>(reinterpret_cast<const std::int8_t*>(view_.data)[at])
                        : static_cast<int>(reinterpret_cast<const std::uint8_t*>(view_.data)[at]);
    return raw - zero_point_;
  }

 private:
  ConstTensorView view_;
  int zero_point_;
  float scale_;
  StepBounds bounds_;
};

// All elements of an int8 tensor, in their order in memory.
std::vector<std::int32_t> all_integers(const ConstTensorView& view, const Quantization& q) {
  const Integers integers(view, q);
  std::vector<std::int32_t> all(static_cast<std::size_t>(view.desc.elements()));
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = integers[static_cast<std::int64_t>(i)];
  return all;
}

// Stores values, which are in steps of y's scale (or real, for f32).
class Store {
 public:
  Store(const TensorView& view, const Quantization& y, const Clamp& activation)
      : view_(view),
        zero_point_(y.zero_point),
        bounds_(y.quantized() ? step_bounds(y, activation.low, activation.high)
                              : StepBounds{activation.low, activation.high}) {}
  void operator()(std::int64_t at, float value) const {
    if (view_.desc.dtype == DType::f32) {
      reinterpret_cast<float*>(view_.data)[at] = std::min(std::max(value, bounds_.low), bounds_.high);
    } else {
      view_.data[at] = static_cast<std::byte>(requantize(value, bounds_, zero_point_));
    }
  }

 private:
  TensorView view_;
  int zero_point_;
  StepBounds bounds_;
};

void run_quantize(const Quantize& layer, std::span<const ConstTensorView> inputs,
                  std::span<const TensorView> outputs, const RunContext& /*context*/) {
  const auto loop = broadcast_loop<2>({&outputs[0].desc, &inputs[0].desc});
  const float* x = inputs[0].as<float>();
  const Store store(outputs[0], layer.y(), Clamp{});
  loop.for_each([&](const auto& at) { store(at[0], x[at[1]] / layer.y().scale); });
}

void run_dequantize(const Dequantize& layer, std::span<const ConstTensorView> inputs,
                    std::span<const TensorView> outputs, const RunContext& /*context*/) {
  const auto loop = broadcast_loop<2>({&outputs[0].desc, &inputs[0].desc});
  const Integers x(inputs[0], layer.x());
  float* y = outputs[0].as<float>();
  loop.for_each([&](const auto& at) { y[at[0]] = static_cast<float>(x[at[1]]) * layer.x().scale; });
}

void run_qadd(const QAdd& layer, std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
              const RunContext& /*context*/) {
  const QAddAttributes& attributes = layer.attributes();
  const auto loop = broadcast_loop<3>({&outputs[0].desc, &inputs[0].desc, &inputs[1].desc});
  const Integers a(inputs[0], attributes.a);
  const Integers b(inputs[1], attributes.b);
  const float a_scale = attributes.a.scale / attributes.y.scale;
  const float b_scale = attributes.b.scale / attributes.y.scale;
  const Store store(outputs[0], attributes.y, attributes.activation);
  loop.for_each([&](const auto& at) {
    store(at[0], static_cast<float>(a[at[1]]) * a_scale + static_cast<float>(b[at[2]]) * b_scale);
  });
}

void run_qmul(const QMul& layer, std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
              const RunContext& /*context*/) {
  const QMulAttributes& attributes = layer.attributes();
  const auto loop = broadcast_loop<3>({&outputs[0].desc, &inputs[0].desc, &inputs[1].desc});
  const Integers a(inputs[0], attributes.a);
  const Integers b(inputs[1], attributes.b);
  const float multiplier = qmul_multiplier(attributes);
  const Store store(outputs[0], attributes.y, attributes.activation);
  loop.for_each([&](const auto& at) { store(at[0], static_cast<float>(a[at[1]] * b[at[2]]) * multiplier); });
}

void run_qunary(const QUnary& layer, std::span<const ConstTensorView> inputs,
                std::span<const TensorView> outputs, const RunContext& /*context*/) {
  const QUnaryAttributes& attributes = layer.attributes();
  const auto loop = broadcast_loop<2>({&outputs[0].desc, &inputs[0].desc});
  const Integers x(inputs[0], attributes.x);
  loop.for_each([&](const auto& at) {
    const int integer = x[at[1]] + attributes.x.zero_point;
    outputs[0].data[at[0]] = static_cast<std::byte>(quantized_unary(attributes, integer));
  });
}

// Calls body(offset in x, kernel position d, h, w) for the taps of one output position that lie inside x.
template <typename Body>
void for_each_tap(const Window& window, const Image& x, std::int64_t d, std::int64_t h, std::int64_t w,
                  Body&& body) {
  const TapRange td = taps_inside(window, 0, d, x.extent[0]);
  const TapRange th = taps_inside(window, 1, h, x.extent[1]);
  const TapRange tw = taps_inside(window, 2, w, x.extent[2]);
  for (std::int64_t kd = td.begin; kd < td.end; ++kd) {
    for (std::int64_t kh = th.begin; kh < th.end; ++kh) {
      for (std::int64_t kw = tw.begin; kw < tw.end; ++kw) {
        body(x.at(td.start + kd * window.dilation[0], th.start + kh * window.dilation[1],
                  tw.start + kw * window.dilation[2]),
             kd, kh, kw);
      }
    }
  }
}

// One tap in all channels; the strides are distances between channels.
std::int32_t correlate_channels(const std::int32_t* pixel, std::int64_t x_stride, const std::int8_t* filter,
                                std::int64_t w_stride, std::int64_t channels) {
  std::int32_t sum = 0;
  for (std::int64_t c = 0; c < channels; ++c) sum += pixel[c * x_stride] * filter[c * w_stride];
  return sum;
}

void run_qconv(const QConv& layer, std::span<const ConstTensorView> inputs,
               std::span<const TensorView> outputs, const RunContext& context) {
  const QConvAttributes& attributes = layer.attributes();
  const Window window = as_3d(attributes.conv.window);
  const Image x(inputs[0].desc);
  const Image w(inputs[1].desc);
  const Image y(outputs[0].desc);
  const std::vector<std::int32_t> integers = all_integers(inputs[0], attributes.x);
  const auto* weights = inputs[1].as<std::int8_t>();
  const auto* bias = optional_data<std::int32_t>(inputs, 2);
  const bool has_residual = inputs.size() > 3 && inputs[3].present();
  const ConstTensorView& residual_view = inputs[has_residual ? 3 : 0];
  const Integers residual(residual_view, attributes.residual);
  const Image r(has_residual ? residual_view.desc : outputs[0].desc);
  const float residual_scale =
      attributes.residual.scale / (attributes.y.quantized() ? attributes.y.scale : 1.0F);
  const std::vector<float> multipliers = requantization_multipliers(attributes, y.channels);
  const Store store(outputs[0], attributes.y, attributes.conv.activation);
  const std::int64_t outputs_per_group = y.channels / attributes.conv.groups;

  context.pool.parallel_for(y.batch * y.channels, [&](std::int64_t index, int) {
    const std::int64_t n = index / y.channels;
    const std::int64_t o = index % y.channels;
    const std::int32_t* input = integers.data() + x.plane(n, o / outputs_per_group * w.channels);
    for_each_position(y, [&](std::int64_t d, std::int64_t h, std::int64_t v) {
      std::int32_t sum = bias != nullptr ? bias[o] : 0;
      for_each_tap(window, x, d, h, v,
                   [&](std::int64_t at, std::int64_t kd, std::int64_t kh, std::int64_t kw) {
                     const std::int32_t* pixel = input + at;
                     const std::int8_t* filter = weights + o * w.batch_stride + w.at(kd, kh, kw);
                     sum += correlate_channels(pixel, x.channel_stride, filter, w.channel_stride, w.channels);
                   });
      float value = static_cast<float>(sum) * multipliers[static_cast<std::size_t>(o)];
      if (has_residual) value += static_cast<float>(residual[r.plane(n, o) + r.at(d, h, v)]) * residual_scale;
      store(y.plane(n, o) + y.at(d, h, v), value);
    });
  });
}

void run_qaverage_pool(const QAveragePool& layer, std::span<const ConstTensorView> inputs,
                       std::span<const TensorView> outputs, const RunContext& context) {
  const QAveragePoolAttributes& attributes = layer.attributes();
  const Window window = as_3d(pool_window(attributes.pool, inputs[0].desc.shape));
  const Image x(inputs[0].desc);
  const Image y(outputs[0].desc);
  const Integers input(inputs[0], attributes.x);
  const Store store(outputs[0], attributes.y, Clamp{});
  const float y_scale = attributes.y.quantized() ? attributes.y.scale : 1.0F;
  context.pool.parallel_for(y.batch * y.channels, [&](std::int64_t index, int) {
    const std::int64_t n = index / y.channels;
    const std::int64_t c = index % y.channels;
    for_each_position(y, [&](std::int64_t d, std::int64_t h, std::int64_t w) {
      std::int32_t sum = 0;
      for_each_tap(window, x, d, h, w, [&](std::int64_t at, std::int64_t, std::int64_t, std::int64_t) {
        sum += input[x.plane(n, c) + at];
      });
      const std::int64_t divisor = std::max<std::int64_t>(
          1, average_divisor(window, attributes.pool.count_include_pad, {d, h, w}, x.extent));
      store(y.plane(n, c) + y.at(d, h, w),
            static_cast<float>(sum) * (attributes.x.scale / (y_scale * static_cast<float>(divisor))));
    });
  });
}

}  // namespace

void register_reference_quantized(Registry& registry) {
  add_layer_kernel<Quantize>(registry, kReference, refuse_reduced_precision, run_quantize);
  add_layer_kernel<Dequantize>(registry, kReference, refuse_reduced_precision, run_dequantize);
  add_layer_kernel<QConv>(registry, kReference, refuse_reduced_precision, run_qconv);
  add_layer_kernel<QAdd>(registry, kReference, refuse_reduced_precision, run_qadd);
  add_layer_kernel<QMul>(registry, kReference, refuse_reduced_precision, run_qmul);
  add_layer_kernel<QUnary>(registry, kReference, refuse_reduced_precision, run_qunary);
  add_layer_kernel<QAveragePool>(registry, kReference, refuse_reduced_precision, run_qaverage_pool);
}

}  // namespace pipit::internal
