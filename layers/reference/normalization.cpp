#include "layers/ops/normalization.h"

#include <algorithm>
#include <cmath>

#include "layers/reference/float_kernel.h"
#include "layers/reference/group_loops.h"

namespace pipit::internal {

namespace {

// Strides of a per-channel operand [C] along the dimensions of x.
Strides channel_strides() {
  Strides strides{};
  strides[1] = 1;
  return strides;
}

struct BatchNormReference {
  template <typename T>
  static void run(const BatchNorm& layer, std::span<const ConstTensorView> inputs,
                  std::span<const TensorView> outputs, ThreadPool&) {
    const TensorDesc& desc = inputs[0].desc;
    const GroupLoops<3> loops =
        group_loops<3>(desc.shape, 1, 2, {outputs[0].desc.strides(), desc.strides(), channel_strides()});
    const T* scale = inputs[1].as<T>();
    const T* bias = inputs[2].as<T>();
    const T* mean = inputs[3].as<T>();
    const T* variance = inputs[4].as<T>();
    loops.inside.for_each([&](const auto& channel) {
      const std::int64_t c = channel[2];
      const double factor =
          scale[c] / std::sqrt(static_cast<double>(variance[c]) + layer.attributes().epsilon);
      T* y = outputs[0].as<T>() + channel[0];
      const T* x = inputs[0].as<T>() + channel[1];
      loops.groups.for_each([&](const auto& at) {
        y[at[0]] = static_cast<T>((static_cast<double>(x[at[1]]) - mean[c]) * factor + bias[c]);
      });
    });
  }
};

struct LayerNormReference {
  template <typename T>
  static void run(const LayerNorm& layer, std::span<const ConstTensorView> inputs,
                  std::span<const TensorView> outputs, ThreadPool&) {
    const TensorDesc& desc = inputs[0].desc;
    const int rank = desc.shape.rank();
    const int axis = normalize_axis(layer.attributes().axis, rank, "LayerNorm");
    const T* scale = optional_data<T>(inputs, 1);
    const T* bias = optional_data<T>(inputs, 2);
    // Both statistics have one desc.
    const Strides statistics =
        outputs.size() > 1 ? broadcast_strides(outputs[1].desc, desc.shape) : Strides{};
    const GroupLoops<5> loops = group_loops<5>(
        desc.shape, axis, rank,
        {outputs[0].desc.strides(), desc.strides(),
         scale != nullptr ? broadcast_strides(inputs[1].desc, desc.shape) : Strides{},
         bias != nullptr ? broadcast_strides(inputs[2].desc, desc.shape) : Strides{}, statistics});
    loops.groups.for_each([&](const auto& at) {
      T* y = outputs[0].as<T>() + at[0];
      const T* x = inputs[0].as<T>() + at[1];
      const Moments m = moments(loops.inside, x, layer.attributes().epsilon, layer.attributes().rms);
      if (outputs.size() > 1) outputs[1].as<T>()[at[4]] = static_cast<T>(m.mean);
      if (outputs.size() > 2) outputs[2].as<T>()[at[4]] = static_cast<T>(m.inverse_deviation);
      loops.inside.for_each([&](const auto& i) {
        double value = (x[i[1]] - m.mean) * m.inverse_deviation;
        if (scale != nullptr) value *= scale[i[2]];
        if (bias != nullptr) value += bias[i[3]];
        y[i[0]] = static_cast<T>(value);
      });
    });
  }
};

struct InstanceNormReference {
  template <typename T>
  static void run(const InstanceNorm& layer, std::span<const ConstTensorView> inputs,
                  std::span<const TensorView> outputs, ThreadPool&) {
    const TensorDesc& desc = inputs[0].desc;
    const std::int64_t of_group = channels_of_group(layer.attributes(), desc.shape);
    if (of_group == 0) return;
    const Strides to = outputs[0].desc.strides(), from = desc.strides();
    GroupLoops<3> loops;
    for (int d = 0; d < desc.shape.rank(); ++d) {
      const auto u = static_cast<std::size_t>(d);
      const StridedLoop<3>::Offsets step{to[u], from[u], d == 1 ? 1 : 0};
      if (d == 1) {
        loops.groups.add(desc.shape[1] / of_group, {step[0] * of_group, step[1] * of_group, of_group});
        loops.inside.add(of_group, step);
      } else {
        (d == 0 ? loops.groups : loops.inside).add(desc.shape[d], step);
      }
    }
    const T* scale = inputs[1].as<T>();
    const T* bias = inputs[2].as<T>();
    loops.groups.for_each([&](const auto& at) {
      T* y = outputs[0].as<T>() + at[0];
      const T* x = inputs[0].as<T>() + at[1];
      const Moments m = moments(loops.inside, x, layer.attributes().epsilon);
      loops.inside.for_each([&](const auto& i) {
        const auto c = at[2] + i[2];
        y[i[0]] = static_cast<T>((x[i[1]] - m.mean) * (m.inverse_deviation * scale[c]) + bias[c]);
      });
    });
  }
};

struct LrnReference {
  template <typename T>
  static void run(const Lrn& layer, std::span<const ConstTensorView> inputs,
                  std::span<const TensorView> outputs, ThreadPool&) {
    const LrnAttributes& a = layer.attributes();
    const TensorDesc& desc = inputs[0].desc;
    const std::int64_t channels = desc.shape[1];
    const std::int64_t y_step = outputs[0].desc.strides()[1];
    const std::int64_t x_step = desc.strides()[1];
    const GroupLoops<2> loops = group_loops<2>(desc.shape, 1, 2, {outputs[0].desc.strides(), desc.strides()});
    loops.groups.for_each([&](const auto& at) {
      T* y = outputs[0].as<T>() + at[0];
      const T* x = inputs[0].as<T>() + at[1];
      for (std::int64_t c = 0; c < channels; ++c) {
        const LrnWindow window = lrn_window(a, c, channels);
        double squares = 0;
        for (std::int64_t i = window.begin; i < window.end; ++i) {
          squares += static_cast<double>(x[i * x_step]) * x[i * x_step];
        }
        const double base = a.bias + static_cast<double>(a.alpha) / static_cast<double>(a.size) * squares;
        y[c * y_step] = static_cast<T>(x[c * x_step] / std::pow(base, static_cast<double>(a.beta)));
      }
    });
  }
};

}  // namespace

void register_reference_normalization(Registry& registry) {
  add_float_reference<BatchNorm, BatchNormReference>(registry);
  add_float_reference<LayerNorm, LayerNormReference>(registry);
  add_float_reference<InstanceNorm, InstanceNormReference>(registry);
  add_float_reference<Lrn, LrnReference>(registry);
}

}  // namespace pipit::internal
