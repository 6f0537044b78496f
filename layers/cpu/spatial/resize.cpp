// Nearest and bilinear resizing of NHWC images.
#include "layers/ops/resize.h"

#include <cstring>

#include "engine/platform/simd.h"
#include "layers/common/layer_kernel.h"
#include "layers/cpu/families.h"
#include "layers/ops/operands.h"

namespace pipit {

namespace {

Refusal refuse_resize(const NodeSpec& spec) {
  if (Refusal reason = refuse_unless_f32(spec)) return reason;
  const ResizeAttributes& attributes = layer_as<Resize>(spec.layer).attributes();
  const TensorDesc& x = *spec.inputs[0];
  if (x.shape.rank() != 4 || resizes_axis(attributes, 0, x.shape[0]) ||
      resizes_axis(attributes, 1, x.shape[1])) {
    return "only height and width of images are resized";
  }
  if (!is_channels_last(x) || !is_channels_last(spec.outputs[0]))
    return "input and output must be channels_last";
  return std::nullopt;
}

// Input positions along one of the two axes.
class Axis {
 public:
  Axis(const ResizeAttributes& attributes, int axis, std::int64_t input, std::int64_t output)
      : attributes_(attributes), axis_(axis), input_(input), output_(output) {}
  std::int64_t nearest(std::int64_t i) const {
    return moves() ? nearest_position(attributes_, axis_, i, input_, output_) : i;
  }
  LinearTap linear(std::int64_t i) const {
    return moves() ? linear_tap(coordinate(i), input_) : LinearTap{i, i, 0};
  }

 private:
  bool moves() const { return resizes_axis(attributes_, axis_, input_); }
  float coordinate(std::int64_t i) const { return source_coordinate(attributes_, axis_, i, input_, output_); }

  const ResizeAttributes& attributes_;
  int axis_;
  std::int64_t input_;
  std::int64_t output_;
};

// y = mix of four corners of `channels` floats each: first along the width, then along the height.
PIPIT_INLINE inline void mix(const float* top_left, const float* top_right, const float* bottom_left,
                             const float* bottom_right, float across, float down, float* y,
                             std::int64_t channels) {
  for (std::int64_t c = 0; c < channels; ++c) {
    const float top = (1 - across) * top_left[c] + across * top_right[c];
    const float bottom = (1 - across) * bottom_left[c] + across * bottom_right[c];
    y[c] = (1 - down) * top + down * bottom;
  }
}

void run_resize(const Resize& layer, std::span<const ConstTensorView> inputs,
                std::span<const TensorView> outputs, const RunContext& context) {
  const ResizeAttributes& attributes = layer.attributes();
  const Shape& x = inputs[0].desc.shape;
  const Shape& y = outputs[0].desc.shape;
  const std::int64_t channels = x[1];
  const Axis height(attributes, 2, x[2], y[2]);
  const Axis width(attributes, 3, x[3], y[3]);
  context.pool.parallel_for(y[0] * y[2], [&](std::int64_t row, int) {
    const float* image = inputs[0].as<float>() + row / y[2] * x[2] * x[3] * channels;
    float* to = outputs[0].as<float>() + row * y[3] * channels;
    if (attributes.mode == ResizeMode::nearest) {
      const float* from = image + height.nearest(row % y[2]) * x[3] * channels;
      for (std::int64_t column = 0; column < y[3]; ++column, to += channels) {
        std::memcpy(to, from + width.nearest(column) * channels,
                    static_cast<std::size_t>(channels) * sizeof(float));
      }
      return;
    }
    const LinearTap h = height.linear(row % y[2]);
    const float* top = image + h.low * x[3] * channels;
    const float* bottom = image + h.high * x[3] * channels;
    for (std::int64_t column = 0; column < y[3]; ++column, to += channels) {
      const LinearTap w = width.linear(column);
      simd<mix>(top + w.low * channels, top + w.high * channels, bottom + w.low * channels,
                bottom + w.high * channels, w.weight, h.weight, to, channels);
    }
  });
}

}  // namespace

void register_cpu_resize(Registry& registry) {
  add_layer_kernel<Resize>(registry, "nhwc", refuse_resize, run_resize);
}

}  // namespace pipit
