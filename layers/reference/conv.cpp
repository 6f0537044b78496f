#include "layers/ops/conv.h"

#include "layers/common/image.h"
#include "layers/reference/float_kernel.h"

namespace pipit::internal {

namespace {

// One output element, before bias and residual.
template <typename T>
double correlate(const Window& window, const Image& x, const T* x_group, const Image& w, const T* filter,
                 std::int64_t od, std::int64_t oh, std::int64_t ow) {
  const TapRange td = taps_inside(window, 0, od, x.extent[0]);
  const TapRange th = taps_inside(window, 1, oh, x.extent[1]);
  const TapRange tw = taps_inside(window, 2, ow, x.extent[2]);
  const std::int64_t x_step = window.dilation[2] * x.stride[2];
  const std::int64_t w_step = w.stride[2];
  double sum = 0;
  for (std::int64_t c = 0; c < w.channels; ++c) {
    for (std::int64_t kd = td.begin; kd < td.end; ++kd) {
      for (std::int64_t kh = th.begin; kh < th.end; ++kh) {
        const std::int64_t row = c * x.channel_stride + x.at(td.start + kd * window.dilation[0],
                                                             th.start + kh * window.dilation[1], tw.start);
        const std::int64_t taps = c * w.channel_stride + w.at(kd, kh, 0);
        for (std::int64_t kw = tw.begin; kw < tw.end; ++kw)
          sum += static_cast<double>(x_group[row + kw * x_step]) * filter[taps + kw * w_step];
      }
    }
  }
  return sum;
}

struct ConvReference {
  template <typename T>
  static void run(const Conv& layer, std::span<const ConstTensorView> inputs,
                  std::span<const TensorView> outputs, ThreadPool& pool) {
    const ConvAttributes& attributes = layer.attributes();
    const Window window = as_3d(attributes.window);
    const Image x(inputs[0].desc);
    const Image w(inputs[1].desc);
    const Image y(outputs[0].desc);
    const T* bias = optional_data<T>(inputs, 2);
    const T* residual = optional_data<T>(inputs, 3);
    const Image r(residual != nullptr ? inputs[3].desc : outputs[0].desc);
    const T* input = inputs[0].as<T>();
    const T* weights = inputs[1].as<T>();
    T* output = outputs[0].as<T>();
    const std::int64_t outputs_per_group = y.channels / attributes.groups;

    pool.parallel_for(y.batch * y.channels, [&](std::int64_t index, int) {
      const std::int64_t n = index / y.channels;
      const std::int64_t o = index % y.channels;
      const T* x_group = input + x.plane(n, o / outputs_per_group * w.channels);
      const T* filter = weights + o * w.batch_stride;
      for_each_position(y, [&](std::int64_t d, std::int64_t h, std::int64_t v) {
        double sum = correlate(window, x, x_group, w, filter, d, h, v);
        if (bias != nullptr) sum += bias[o];
        if (residual != nullptr) sum += residual[r.plane(n, o) + r.at(d, h, v)];
        output[y.plane(n, o) + y.at(d, h, v)] = static_cast<T>(attributes.activation(sum));
      });
    });
  }
};

}  // namespace

void register_reference_conv(Registry& registry) {
  add_float_reference<Conv, ConvReference>(registry);
}

}  // namespace pipit::internal
