#include "layers/ops/pool.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "layers/common/image.h"
#include "layers/common/layer_kernel.h"
#include "layers/ops/operands.h"
#include "layers/reference/reference.h"

namespace pipit::internal {

namespace {

// The taps of one output position that lie inside the input.
struct Taps {
  std::array<TapRange, 3> axis;
  const Window& window;

  template <typename Body>
  void for_each(Body&& body) const {
    for (std::int64_t d = axis[0].begin; d < axis[0].end; ++d) {
      for (std::int64_t h = axis[1].begin; h < axis[1].end; ++h) {
        for (std::int64_t w = axis[2].begin; w < axis[2].end; ++w) {
          body(position(0, d), position(1, h), position(2, w));
        }
      }
    }
  }
  std::int64_t position(std::size_t a, std::int64_t tap) const {
    return axis[a].start + tap * window.dilation[a];
  }
};

template <typename T>
struct Maximum {
  T value;
  std::array<std::int64_t, 3> position;
  bool found;
};

template <typename T>
Maximum<T> maximum(const Taps& taps, const Image& x, const T* plane) {
  constexpr T kLowest = std::numeric_limits<T>::has_infinity ? -std::numeric_limits<T>::infinity()
                                                             : std::numeric_limits<T>::lowest();
  Maximum<T> best{kLowest, {}, false};
  taps.for_each([&](std::int64_t d, std::int64_t h, std::int64_t w) {
    const T value = plane[x.at(d, h, w)];
    // The first NaN wins, as in NumPy.
    const bool is_nan = value != value;
    const bool best_is_nan = best.value != best.value;
    if (!best.found || (!best_is_nan && (is_nan || value > best.value))) best = {value, {d, h, w}, true};
  });
  return best;
}

template <typename T>
double average(const Taps& taps, const Image& x, const T* plane, std::int64_t divisor) {
  double sum = 0;
  taps.for_each([&](std::int64_t d, std::int64_t h, std::int64_t w) { sum += plane[x.at(d, h, w)]; });
  return divisor == 0 ? 0 : sum / static_cast<double>(divisor);
}

template <typename T>
double lp_norm(const Taps& taps, const Image& x, const T* plane, std::int64_t p) {
  double sum = 0;
  const auto order = static_cast<double>(p);
  taps.for_each([&](std::int64_t d, std::int64_t h, std::int64_t w) {
    const double size = std::abs(static_cast<double>(plane[x.at(d, h, w)]));
    sum += p == 1 ? size : p == 2 ? size * size : std::pow(size, order);
  });
  return std::pow(sum, 1 / order);
}

// Flat position in the whole row-major [N, C, D, H, W] tensor; column-major swaps the order of the spatial
// dimensions (ONNX storage_order).
std::int64_t flat_index(const Image& x, std::int64_t plane, const std::array<std::int64_t, 3>& at,
                        bool column_major) {
  const std::int64_t inside = column_major ? (at[2] * x.extent[1] + at[1]) * x.extent[0] + at[0]
                                           : (at[0] * x.extent[1] + at[1]) * x.extent[2] + at[2];
  return plane * x.positions() + inside;
}

template <typename T>
void run(const PoolAttributes& attributes, std::span<const ConstTensorView> inputs,
         std::span<const TensorView> outputs, ThreadPool& pool) {
  const Window window = as_3d(pool_window(attributes, inputs[0].desc.shape));
  const Image x(inputs[0].desc);
  const Image y(outputs[0].desc);
  const T* input = inputs[0].as<T>();
  T* output = outputs[0].as<T>();
  std::int64_t* indices = attributes.indices ? outputs[1].as<std::int64_t>() : nullptr;
  const Image i(outputs.back().desc);

  pool.parallel_for(y.batch * y.channels, [&](std::int64_t index, int) {
    const std::int64_t n = index / y.channels;
    const std::int64_t c = index % y.channels;
    const T* plane = input + x.plane(n, c);
    for_each_position(y, [&](std::int64_t d, std::int64_t h, std::int64_t w) {
      const Taps taps{{taps_inside(window, 0, d, x.extent[0]), taps_inside(window, 1, h, x.extent[1]),
                       taps_inside(window, 2, w, x.extent[2])},
                      window};
      T& result = output[y.plane(n, c) + y.at(d, h, w)];
      switch (attributes.kind) {
        case PoolKind::max: {
          const Maximum<T> best = maximum(taps, x, plane);
          result = best.value;
          if (indices != nullptr) {
            indices[i.plane(n, c) + i.at(d, h, w)] =
                best.found ? flat_index(x, index, best.position, attributes.column_major_indices) : -1;
          }
          break;
        }
        case PoolKind::average:
          result = static_cast<T>(average(
              taps, x, plane, average_divisor(window, attributes.count_include_pad, {d, h, w}, x.extent)));
          break;
        case PoolKind::lp:
          result = static_cast<T>(lp_norm(taps, x, plane, attributes.p));
          break;
      }
    });
  });
}

void run_pool(const Pool& layer, std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
              const RunContext& context) {
  const auto call = [&]<typename T>(T) { run<T>(layer.attributes(), inputs, outputs, context.pool); };
  switch (inputs[0].desc.dtype) {
    case DType::f64:
      return call(double{});
    case DType::i8:
      return call(std::int8_t{});
    case DType::u8:
      return call(std::uint8_t{});
    default:
      return call(float{});
  }
}

}  // namespace

void register_reference_pool(Registry& registry) {
  add_layer_kernel<Pool>(registry, kReference, refuse_reduced_precision, run_pool);
}

}  // namespace pipit::internal
