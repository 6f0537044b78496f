#include "layers/ops/conv_transpose.h"

#include "layers/common/image.h"
#include "layers/reference/float_kernel.h"

namespace pipit::internal {

namespace {

// The input position that tap k carries to an output position along one axis; -1 where there is none.
std::int64_t source(const Window& window, std::size_t axis, std::int64_t output, std::int64_t k,
                    std::int64_t input_extent) {
  const std::int64_t distance = output + window.pad_begin[axis] - k * window.dilation[axis];
  if (distance < 0 || distance % window.stride[axis] != 0) return -1;
  const std::int64_t i = distance / window.stride[axis];
  return i < input_extent ? i : -1;
}

struct ConvTransposeReference {
  template <typename T>
  static void run(const ConvTranspose& layer, std::span<const ConstTensorView> inputs,
                  std::span<const TensorView> outputs, ThreadPool& pool) {
    const ConvTransposeAttributes& attributes = layer.attributes();
    const Window window = as_3d(attributes.window);
    const Image x(inputs[0].desc);
    const Image w(inputs[1].desc);  // "batch" is the input channel, "channels" the outputs of a group
    const Image y(outputs[0].desc);
    const T* bias = optional_data<T>(inputs, 2);
    const T* input = inputs[0].as<T>();
    const T* weights = inputs[1].as<T>();
    T* output = outputs[0].as<T>();
    const std::int64_t group_inputs = x.channels / attributes.groups;

    pool.parallel_for(y.batch * y.channels, [&](std::int64_t index, int) {
      const std::int64_t n = index / y.channels;
      const std::int64_t o = index % y.channels;
      const std::int64_t first = o / w.channels * group_inputs;
      for_each_position(y, [&](std::int64_t d, std::int64_t h, std::int64_t v) {
        double sum = 0;
        for_each_position(w, [&](std::int64_t kd, std::int64_t kh, std::int64_t kw) {
          const std::int64_t id = source(window, 0, d, kd, x.extent[0]);
          const std::int64_t ih = source(window, 1, h, kh, x.extent[1]);
          const std::int64_t iw = source(window, 2, v, kw, x.extent[2]);
          if (id < 0 || ih < 0 || iw < 0) return;
          for (std::int64_t c = first; c < first + group_inputs; ++c) {
            sum += static_cast<double>(input[x.plane(n, c) + x.at(id, ih, iw)]) *
                   weights[w.plane(c, o % w.channels) + w.at(kd, kh, kw)];
          }
        });
        if (bias != nullptr) sum += bias[o];
        output[y.plane(n, o) + y.at(d, h, v)] = static_cast<T>(attributes.activation(sum));
      });
    });
  }
};

}  // namespace

void register_reference_conv_transpose(Registry& registry) {
  add_float_reference<ConvTranspose, ConvTransposeReference>(registry);
}

}  // namespace pipit::internal
