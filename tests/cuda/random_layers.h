// Random nodes of the layers whose positions are data or an order, of GridSample and of Recurrent: for kernels on a GPU
// and those that are emulated.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "layers/ops/grid_sample.h"
#include "layers/ops/indexing.h"
#include "layers/ops/recurrent.h"
#include "tests/support/random.h"

namespace pipit::internal::test {

struct RandomLayer {
  std::shared_ptr<const Layer> layer;
  std::vector<std::shared_ptr<const Tensor>> inputs;
};

using LayerRandom = RandomValues<std::mt19937>;

inline std::vector<std::int64_t> random_dims(LayerRandom& random, int rank, std::int64_t low,
                                             std::int64_t high) {
  std::vector<std::int64_t> dims(static_cast<std::size_t>(rank));
  for (std::int64_t& d : dims) d = random.integer(low, high);
  return dims;
}

/// Positions in [-extent, extent) that the function names for each index.
template <typename Extent>
std::shared_ptr<const Tensor> random_positions(LayerRandom& random, const Shape& shape, Extent extent_of) {
  const DType type = random.coin() ? DType::i64 : DType::i32;
  Tensor tensor(TensorDesc{shape, type});
  for (std::int64_t i = 0; i < shape.elements(); ++i) {
    const std::int64_t extent = extent_of(i);
    const std::int64_t position = random.integer(-extent, extent - 1);
    if (type == DType::i64) {
      tensor.values<std::int64_t>()[static_cast<std::size_t>(i)] = position;
    } else {
      tensor.values<std::int32_t>()[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(position);
    }
  }
  return std::make_shared<const Tensor>(std::move(tensor));
}

/// Data of rank 1 to 5 and what names elements of it; few positions, so that some are named several times.
struct RandomIndexed {
  IndexedAttributes attributes;
  std::shared_ptr<const Tensor> data, indices;

  RandomIndexed(LayerRandom& random, DType type) {
    const auto rank = static_cast<int>(random.integer(1, 5));
    const std::vector<std::int64_t> dims = random_dims(random, rank, 1, rank < 3 ? 17 : 6);
    const Shape shape(dims);
    data = random.tensor(shape, type == DType::u8 ? 0 : -100, 100, type);
    if (random.coin()) {
      const auto axis = static_cast<int>(random.integer(0, rank - 1));
      attributes.axis = random.coin() ? axis : axis - rank;
      std::vector<std::int64_t> named;
      for (int d = 0; d < rank; ++d)
        named.push_back(d == axis ? random.integer(0, 20) : random.integer(random.coin() ? 0 : 1, shape[d]));
      indices = random_positions(random, Shape(named), [&](std::int64_t) { return shape[axis]; });
      return;
    }
    attributes.form = IndexForm::tuples;
    const std::int64_t batch = random.integer(0, std::min(rank - 1, 2));
    const std::int64_t count = random.integer(1, rank - batch);
    attributes.batch_dims = batch;
    std::vector<std::int64_t> named(dims.begin(), dims.begin() + batch);
    // All that is named has at most as many dimensions as there are.
    const std::int64_t more = std::min<std::int64_t>(random.integer(0, 2), kMaxRank - 1 - rank + count);
    for (std::int64_t i = 0; i < std::max<std::int64_t>(more, 0); ++i) named.push_back(random.integer(0, 7));
    named.push_back(count);
    indices = random_positions(random, Shape(named),
                               [&](std::int64_t i) { return shape[static_cast<int>(batch + i % count)]; });
  }
};

inline DType random_type(LayerRandom& random) {
  constexpr DType kTypes[] = {DType::f32, DType::f32, DType::f64, DType::i64,
                              DType::i32, DType::u8,  DType::i8};
  return kTypes[random.integer(0, 6)];
}

inline RandomLayer random_gather_indexed(LayerRandom& random) {
  const RandomIndexed indexed(random, random_type(random));
  return {std::make_shared<GatherIndexed>(indexed.attributes), {indexed.data, indexed.indices}};
}

inline RandomLayer random_scatter_indexed(LayerRandom& random) {
  const DType type = random_type(random);
  const auto reduction = static_cast<ScatterReduction>(random.integer(0, 4));
  // Of ONNX's scatters the one without tuples of a shared dimension.
  RandomIndexed indexed(random, type);
  const Shape named =
      indexed_shape(indexed.attributes, indexed.data->desc(), indexed.indices->desc(), "test");
  const auto updates = random.tensor(named, type == DType::u8 ? 0 : -3, 3, type);
  return {std::make_shared<ScatterIndexed>(ScatterIndexedAttributes{indexed.attributes, reduction}),
          {indexed.data, indexed.indices, updates}};
}

/// Values that occur several times, of floats also NaN, infinities and zeros of both signs. extent: at most, of the
/// axis.
inline RandomLayer random_top_k(LayerRandom& random, std::int64_t extent) {
  const auto rank = static_cast<int>(random.integer(1, 4));
  const auto axis = static_cast<int>(random.integer(0, rank - 1));
  std::vector<std::int64_t> dims = random_dims(random, rank, 1, rank == 1 ? 1 : 4);
  dims[static_cast<std::size_t>(axis)] = random.integer(1, extent);
  const Shape shape(dims);
  const DType type = random_type(random);
  Tensor x = random.tensor(shape, type == DType::u8 ? 0 : -50, 50, type)->clone();
  const auto special = [&](auto values) {
    using T = typename decltype(values)::value_type;
    for (T& v : values) {
      v = std::round(v);
      if (random.integer(0, 19) == 0) v = std::numeric_limits<T>::quiet_NaN();
      if (random.integer(0, 19) == 0)
        v = random.coin() ? static_cast<T>(INFINITY) : -static_cast<T>(INFINITY);
    }
  };
  if (type == DType::f32) special(x.values<float>());
  if (type == DType::f64) special(x.values<double>());
  TopKAttributes a;
  a.axis = random.coin() ? axis : axis - rank;
  a.k = random.integer(0, shape[axis]);
  a.largest = random.coin();
  return {std::make_shared<TopK>(a), {std::make_shared<const Tensor>(std::move(x))}};
}

inline RandomLayer random_cum_sum(LayerRandom& random) {
  const auto rank = static_cast<int>(random.integer(1, 4));
  const auto axis = static_cast<int>(random.integer(0, rank - 1));
  std::vector<std::int64_t> dims = random_dims(random, rank, 0, 6);
  dims[static_cast<std::size_t>(axis)] = random.integer(0, 100);
  const DType type = random_type(random);
  const CumSumAttributes a{random.coin() ? axis : axis - rank, random.coin(), random.coin()};
  return {std::make_shared<CumSum>(a), {random.tensor(Shape(dims), type == DType::u8 ? 0 : -50, 50, type)}};
}

/// Positions inside, outside, at ties, and some that are no number. `dims`: of space.
inline RandomLayer random_grid_sample(LayerRandom& random, int dims) {
  GridSampleAttributes a;
  a.mode = static_cast<ResizeMode>(random.integer(0, 2));
  a.padding = static_cast<GridPadding>(random.integer(0, 2));
  a.align_corners = random.coin();
  const std::int64_t most = dims < 3 ? 9 : 4;
  std::vector<std::int64_t> x{random.integer(1, 3), random.integer(1, 19)};
  std::vector<std::int64_t> grid{x[0]};
  for (int d = 0; d < dims; ++d) {
    x.push_back(random.integer(1, most));
    grid.push_back(random.integer(0, 9) == 0 ? 0 : random.integer(1, most));
  }
  grid.push_back(dims);
  Tensor positions = random.tensor(Shape(grid), -1.5, 1.5)->clone();
  for (float& n : positions.values<float>()) {
    const std::int64_t kind = random.integer(0, 19);
    if (kind < 5) n = static_cast<float>(random.integer(-8, 8)) / 4;
    if (kind == 19) n = std::numeric_limits<float>::quiet_NaN();
    if (kind == 18) n = static_cast<float>(random.real(-40, 40));
  }
  return {std::make_shared<GridSample>(a),
          {random.tensor(Shape(x)), std::make_shared<const Tensor>(std::move(positions))}};
}

struct RecurrentExtents {
  std::int64_t positions = 1, samples = 1, hidden = 1;
};

/// With and without what is optional; null where an input is absent.
inline RandomLayer random_recurrent(LayerRandom& random, const RecurrentExtents& e) {
  RecurrentAttributes a;
  a.kind = static_cast<RecurrentKind>(random.integer(0, 2));
  a.direction = static_cast<RecurrentDirection>(random.integer(0, 2));
  const std::int64_t directions = a.direction == RecurrentDirection::bidirectional ? 2 : 1;
  const std::int64_t gates = recurrent_gates(a.kind);
  const bool lstm = a.kind == RecurrentKind::lstm;
  // No function that jumps: a sum that is rounded otherwise would come out elsewhere.
  const UnaryAttributes functions[] = {{UnaryKind::sigmoid},  {UnaryKind::tanh},
                                       {UnaryKind::relu},     {UnaryKind::hard_sigmoid, 0.2, 0.5},
                                       {UnaryKind::elu, 0.7}, {UnaryKind::leaky_relu, 0.1},
                                       {UnaryKind::softsign}, {UnaryKind::softplus}};
  const bool usual = random.coin();
  for (std::int64_t d = 0; d < directions; ++d) {
    for (std::size_t i = 0; i < recurrent_activations(a.kind); ++i) {
      const bool gate = i == 0 && a.kind != RecurrentKind::rnn;
      // Gates stay between 0 and 1, so that states do not grow.
      a.activations.push_back(gate ? functions[usual || random.coin() ? 0 : 3]
                                   : functions[usual ? 1 : random.integer(1, 6)]);
    }
  }
  if (random.integer(0, 2) == 0) a.clip = random.real(0.5, 3);
  a.linear_before_reset = a.kind == RecurrentKind::gru && random.coin();
  a.input_forget = lstm && random.integer(0, 3) == 0;
  const double size = 1 / std::sqrt(static_cast<double>(e.hidden));
  const auto given = [&](bool possible, const Shape& shape) {
    return possible && random.coin() ? random.tensor(shape) : nullptr;
  };
  RandomLayer result;
  const Shape state{directions, e.samples, e.hidden};
  result.inputs = {random.tensor(Shape{e.positions, e.samples, directions * gates * e.hidden}),
                   random.tensor(Shape{directions, gates * e.hidden, e.hidden}, -size, size),
                   given(a.linear_before_reset, Shape{directions, e.hidden}),
                   nullptr,
                   given(true, state),
                   given(lstm, state),
                   given(lstm, Shape{directions, 3 * e.hidden})};
  if (random.coin()) {
    Tensor lengths(TensorDesc{Shape{e.samples}, DType::i32});
    for (std::int32_t& n : lengths.values<std::int32_t>())
      n = static_cast<std::int32_t>(random.integer(0, e.positions));
    result.inputs[Recurrent::kLengths] = std::make_shared<const Tensor>(std::move(lengths));
  }
  while (!result.inputs.back()) result.inputs.pop_back();
  result.layer = std::make_shared<Recurrent>(a);
  return result;
}

/// Of the norm of the result: every step rounds sums of `hidden` products and some functions of them.
inline double recurrent_tolerance(const RecurrentExtents& e) {
  return static_cast<double>((e.positions + 1) * (e.hidden + 16)) * 0x1p-24;
}

}  // namespace pipit::internal::test
