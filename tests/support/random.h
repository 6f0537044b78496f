// Random numbers of tests. All start from test_seed() (seed.h) or what a test derives from it, which failures print.
#pragma once

#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "engine/graph/graph.h"
#include "engine/graph/half.h"
#include "layers/ops/quantization.h"
#include "tests/support/seed.h"

namespace pipit::internal::test {

template <typename Engine>
class RandomValues {
 public:
  explicit RandomValues(unsigned seed = test_seed()) : random(seed) {}

  /// Uniform in [low, high], both included.
  std::int64_t integer(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  }
  double real(double low, double high) { return std::uniform_real_distribution<double>(low, high)(random); }
  bool coin() { return integer(0, 1) == 1; }

  /// A row-major tensor: floats uniform in [low, high), integers rounded down, bool by the sign.
  std::shared_ptr<const Tensor> tensor(const Shape& shape, double low = -1, double high = 1,
                                       DType dtype = DType::f32) {
    Tensor result(TensorDesc{shape, dtype, Layout::row_major});
    const auto fill = [&](auto convert) {
      using T = decltype(convert(0.0));
      for (T& value : result.values<T>()) value = convert(real(low, high));
    };
    switch (dtype) {
      case DType::f32:
        fill([](double v) { return static_cast<float>(v); });
        break;
      case DType::f64:
        fill([](double v) { return v; });
        break;
      case DType::i8:
        fill([](double v) { return static_cast<std::int8_t>(std::floor(v)); });
        break;
      case DType::u8:
        fill([](double v) { return static_cast<std::uint8_t>(std::floor(v)); });
        break;
      case DType::i32:
        fill([](double v) { return static_cast<std::int32_t>(std::floor(v)); });
        break;
      case DType::i64:
        fill([](double v) { return static_cast<std::int64_t>(std::floor(v)); });
        break;
      case DType::boolean:
        fill([](double v) { return v > 0; });
        break;
      case DType::f16:
        fill([](double v) { return to_half(static_cast<float>(v)); });
        break;
      case DType::bf16:
        fill([](double v) { return to_bfloat16(static_cast<float>(v)); });
        break;
    }
    return std::make_shared<const Tensor>(std::move(result));
  }
  /// Whole numbers in [low, high].
  template <typename T>
  std::shared_ptr<const Tensor> integers(const Shape& shape, std::int64_t low, std::int64_t high) {
    Tensor result(TensorDesc{shape, DTypeOf<T>::value});
    for (T& value : result.values<T>()) value = static_cast<T>(integer(low, high));
    return std::make_shared<const Tensor>(std::move(result));
  }
  /// All integers that `q` may have.
  std::shared_ptr<const Tensor> quantized(const Shape& shape, const Quantization& q) {
    const QuantizedRange range = quantized_range(q);
    return q.dtype == DType::i8 ? integers<std::int8_t>(shape, range.low, range.high)
                                : integers<std::uint8_t>(shape, range.low, range.high);
  }
  /// The lowest and the highest of them.
  std::shared_ptr<const Tensor> extreme(const Shape& shape, const Quantization& q) {
    const QuantizedRange range = quantized_range(q);
    Tensor result(TensorDesc{shape, q.dtype});
    for (std::int64_t i = 0; i < shape.elements(); ++i)
      result.view().data[i] = static_cast<std::byte>(coin() ? range.low : range.high);
    return std::make_shared<const Tensor>(std::move(result));
  }

  Engine random;
};

/// Every instance made in one process starts from test_seed().
using Random = RandomValues<std::mt19937_64>;

/// Uniform in [low, high], both included.
inline int draw(std::mt19937& random, int low, int high) {
  return std::uniform_int_distribution(low, high)(random);
}

inline Tensor random_tensor(const Shape& shape, std::mt19937& random, float low = -1, float high = 1) {
  Tensor tensor{TensorDesc{shape}};
  std::uniform_real_distribution<float> uniform(low, high);
  for (float& x : tensor.values<float>()) x = uniform(random);
  return tensor;
}

inline std::vector<Tensor> random_inputs(const Graph& graph, std::mt19937& random) {
  std::vector<Tensor> inputs;
  for (const ValueId id : graph.inputs()) inputs.push_back(random_tensor(graph.value(id).desc.shape, random));
  return inputs;
}

}  // namespace pipit::internal::test
