// Resize: nearest for any element, linear and cubic for f32 and f16. Where an output position reads is worked out on
// the host, once per axis, by the functions that the CPU uses.
#include "layers/common/dispatch.h"
#include "layers/cuda/device/kernel.cuh"
#include "layers/cuda/families.h"
#include "layers/ops/resize.h"

namespace pipit::internal {

namespace {

using namespace cuda;

// What an output position of one axis reads: element offsets of two input positions and the weight of the second.
struct Tap {
  int low, high;
  float weight;
};

struct ResizeAxis {
  Divisor extent;  // of the output
  int to;          // its stride
  int taps;        // where the axis starts in the table of taps
};

struct ResizeGeometry {
  int rank = 0;
  unsigned size = 0;
  unsigned mixed = 0;         // bit d: axis d reads two positions
  ResizeAxis axis[kMaxRank];  // in the memory order of the output
};

template <typename T>
__global__ void nearest_kernel(ResizeGeometry g, const Tap* taps, T* y, const T* x) {
  unsigned i = thread_index();
  if (i >= g.size) return;
  int to = 0;
  int from = 0;
  for (int d = g.rank - 1; d >= 0; --d) {
    const unsigned rest = g.axis[d].extent.divide(i);
    const int index = static_cast<int>(i - rest * g.axis[d].extent.value);
    to += index * g.axis[d].to;
    from += taps[g.axis[d].taps + index].low;
    i = rest;
  }
  y[to] = x[from];
}

__global__ void linear_kernel(ResizeGeometry g, const Tap* taps, Out y, In x) {
  unsigned i = thread_index();
  if (i >= g.size) return;
  int to = 0;
  Tap tap[kMaxRank];
  for (int d = g.rank - 1; d >= 0; --d) {
    const unsigned rest = g.axis[d].extent.divide(i);
    const int index = static_cast<int>(i - rest * g.axis[d].extent.value);
    to += index * g.axis[d].to;
    tap[d] = taps[g.axis[d].taps + index];
    i = rest;
  }
  float sum = 0;
  // The corners of the axes that are mixed: all subsets of the set bits.
  unsigned corner = 0;
  do {
    float weight = 1;
    int from = 0;
    for (int d = 0; d < g.rank; ++d) {
      const bool high = (corner >> d & 1U) != 0;
      if ((g.mixed >> d & 1U) != 0) weight *= high ? tap[d].weight : 1 - tap[d].weight;
      from += high ? tap[d].high : tap[d].low;
    }
    if (weight != 0) sum += weight * load<float>(x, from);
    corner = (corner - g.mixed) & g.mixed;
  } while (corner != 0);
  store<float>(y, to, sum);
}

// What an output position of a filtered axis mixes: neighbours from an element offset on, and where their weights are.
struct Span {
  int from, count, weights;
};

// All combinations of what the axes in `filtered` mix.
struct FilteredGeometry {
  ResizeGeometry resize;  // taps: where the axis starts in the table of spans
  int axes = 0;
  int axis[kMaxRank] = {}, stride[kMaxRank] = {};  // of those that are filtered, and the stride of the input
};

__global__ void filtered_kernel(FilteredGeometry g, const Span* spans, const float* weights, Out y, In x) {
  unsigned i = thread_index();
  if (i >= g.resize.size) return;
  int to = 0;
  int base = 0;
  Span span[kMaxRank];
  for (int d = g.resize.rank - 1; d >= 0; --d) {
    const ResizeAxis& axis = g.resize.axis[d];
    const unsigned rest = axis.extent.divide(i);
    const int index = static_cast<int>(i - rest * axis.extent.value);
    to += index * axis.to;
    span[d] = spans[axis.taps + index];
    base += span[d].from;
    i = rest;
  }
  float sum = 0;
  int at[kMaxRank] = {};
  const int inner = g.axes - 1;
  const Span row = span[g.axis[inner]];
  for (;;) {
    float outer = 1;
    int from = base;
    for (int a = 0; a < inner; ++a) {
      outer *= weights[span[g.axis[a]].weights + at[a]];
      from += at[a] * g.stride[a];
    }
    if (outer != 0) {
      float part = 0;
      for (int t = 0; t < row.count; ++t) {
        const float weight = weights[row.weights + t];
        if (weight != 0) part += weight * load<float>(x, from + t * g.stride[inner]);
      }
      sum += outer * part;
    }
    int a = inner - 1;
    while (a >= 0 && ++at[a] == span[g.axis[a]].count) at[a--] = 0;
    if (a < 0) break;
  }
  store<float>(y, to, sum);
}

// The dimensions of the output in memory order.
std::array<int, kMaxRank> in_memory_order(const TensorDesc& y) {
  const Strides to = y.strides();
  std::array<int, kMaxRank> order{};
  for (int d = 0; d < y.shape.rank(); ++d) order[static_cast<std::size_t>(d)] = d;
  std::stable_sort(order.begin(), order.begin() + y.shape.rank(), [&](int l, int r) {
    return to[static_cast<std::size_t>(l)] > to[static_cast<std::size_t>(r)];
  });
  return order;
}

// Dimension `d` of the output, whose entries in a table begin at `entry`.
ResizeAxis axis_of(const TensorDesc& y, int d, std::size_t entry) {
  return {Divisor(static_cast<unsigned>(std::max<std::int64_t>(y.shape[d], 1))),
          static_cast<int>(y.strides()[static_cast<std::size_t>(d)]), static_cast<int>(entry)};
}

class FilteredResizeKernel final : public Kernel {
 public:
  explicit FilteredResizeKernel(const NodeSpec& spec) {
    const ResizeAttributes& a = layer_as<Resize>(spec.layer).attributes();
    const TensorDesc& x = *spec.inputs[0];
    const TensorDesc& y = spec.outputs[0];
    const Strides from = x.strides();
    const std::array<int, kMaxRank> order = in_memory_order(y);
    geometry_.resize.rank = a.rank;
    geometry_.resize.size = static_cast<unsigned>(y.elements());
    std::vector<Span> spans;
    std::vector<float> weights;
    for (int i = 0; i < a.rank; ++i) {
      const int d = order[static_cast<std::size_t>(i)];
      const auto u = static_cast<std::size_t>(d);
      geometry_.resize.axis[i] = axis_of(y, d, spans.size());
      if (resizes_axis(a, d, x.shape[d])) {
        geometry_.axis[geometry_.axes] = i;
        geometry_.stride[geometry_.axes++] = static_cast<int>(from[u]);
      }
      for (std::int64_t p = 0; p < y.shape[d]; ++p) {
        const ResizeTaps taps = resize_taps(a, d, p, x.shape[d], y.shape[d]);
        spans.push_back({static_cast<int>(taps.first * from[u]), static_cast<int>(taps.weights.size()),
                         static_cast<int>(weights.size())});
        for (const double weight : taps.weights) weights.push_back(static_cast<float>(weight));
      }
    }
    // Where nothing is resized one axis "mixes" one element with weight 1.
    if (geometry_.axes == 0) geometry_.axes = 1;
    spans_ = DeviceBuffer(spans.data(), spans.size() * sizeof(Span));
    weights_ = DeviceBuffer(weights.data(), weights.size() * sizeof(float));
  }
  std::size_t packed_bytes() const override { return spans_.bytes() + weights_.bytes(); }
  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    launch("resize filtered", filtered_kernel, geometry_.resize.size, context, geometry_, spans_.as<Span>(),
           weights_.as<float>(), Out(outputs[0]), In(inputs[0]));
  }

 private:
  FilteredGeometry geometry_;
  DeviceBuffer spans_, weights_;
};

class ResizeKernel final : public Kernel {
 public:
  explicit ResizeKernel(const NodeSpec& spec) {
    const ResizeAttributes& a = layer_as<Resize>(spec.layer).attributes();
    const TensorDesc& x = *spec.inputs[0];
    const TensorDesc& y = spec.outputs[0];
    const Strides from = x.strides();
    const std::array<int, kMaxRank> order = in_memory_order(y);
    linear_ = a.mode == ResizeMode::linear;
    geometry_.rank = a.rank;
    geometry_.size = static_cast<unsigned>(y.elements());
    std::vector<Tap> taps;
    for (int i = 0; i < a.rank; ++i) {
      const int d = order[static_cast<std::size_t>(i)];
      const auto u = static_cast<std::size_t>(d);
      geometry_.axis[i] = axis_of(y, d, taps.size());
      const bool resized = resizes_axis(a, d, x.shape[d]);
      if (resized && linear_) geometry_.mixed |= 1U << i;
      for (std::int64_t p = 0; p < y.shape[d]; ++p) {
        LinearTap tap{p, p, 0};
        if (resized) {
          if (linear_) {
            tap = linear_tap(source_coordinate(a, d, p, x.shape[d], y.shape[d]), x.shape[d]);
          } else {
            tap.low = tap.high = nearest_position(a, d, p, x.shape[d], y.shape[d]);
          }
        }
        taps.push_back(
            {static_cast<int>(tap.low * from[u]), static_cast<int>(tap.high * from[u]), tap.weight});
      }
    }
    taps_ = DeviceBuffer(taps.data(), taps.size() * sizeof(Tap));
  }
  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const Tap* taps = taps_.as<Tap>();
    if (linear_) {
      return launch("resize linear", linear_kernel, geometry_.size, context, geometry_, taps, Out(outputs[0]),
                    In(inputs[0]));
    }
    with_element_size(inputs[0].desc.dtype, [&](auto size) {
      using T = Element<decltype(size)::value>;
      launch("resize nearest", nearest_kernel<T>, geometry_.size, context, geometry_, taps,
             reinterpret_cast<T*>(outputs[0].data), reinterpret_cast<const T*>(inputs[0].data));
    });
  }

 private:
  bool linear_ = false;
  ResizeGeometry geometry_;
  DeviceBuffer taps_;
};

Refusal refuse_resize(const NodeSpec& spec) {
  if (Refusal reason = refuse_unless_indexable(spec)) return reason;
  if (is_filtered(layer_as<Resize>(spec.layer).attributes())) return "it mixes more than two positions";
  if (layer_as<Resize>(spec.layer).attributes().mode == ResizeMode::linear) {
    return refuse_unless_float_or_half(spec);
  }
  if (spec.inputs[0]->dtype != spec.outputs[0].dtype) return "nearest does not convert element types";
  return std::nullopt;
}

Refusal refuse_filtered(const NodeSpec& spec) {
  if (Refusal reason = refuse_unless_float_or_half(spec)) return reason;
  const ResizeAttributes& a = layer_as<Resize>(spec.layer).attributes();
  if (!is_filtered(a)) return "only cubic and antialiased resizing";
  constexpr std::int64_t kMaxExtent = std::int64_t{1} << 20;  // of what there is a table for each position
  for (int d = 0; d < a.rank; ++d) {
    const std::int64_t in = spec.inputs[0]->shape[d], out = spec.outputs[0].shape[d];
    if (out > kMaxExtent || (resizes_axis(a, d, in) && in > kMaxExtent))
      return "dimension " + std::to_string(d) + " has more than 2^20 positions";
  }
  return std::nullopt;
}

}  // namespace

void register_cuda_resize(Registry& registry) {
  registry.add(Resize::kType, DeviceKind::cuda,
               {"filters", refuse_filtered, [](const NodeSpec& spec) {
                  return std::unique_ptr<Kernel>(std::make_unique<FilteredResizeKernel>(spec));
                }});
  registry.add(Resize::kType, DeviceKind::cuda,
               {"taps", refuse_resize, [](const NodeSpec& spec) {
                  return std::unique_ptr<Kernel>(std::make_unique<ResizeKernel>(spec));
                }});
}

}  // namespace pipit::internal
