// Gather and scatter at positions that are data, TopK, CumSum and GridSample on a CPU, against the plain kernels.
#include "tests/cuda/emulation/emulation.h"
// The emulator comes first: kernels use its declarations.
#include <bit>

#include "layers/cuda/movement/grid_sample_kernel.cuh"
#include "layers/cuda/movement/indexing_kernel.cuh"
#include "layers/cuda/reduction/order_kernel.cuh"
#include "layers/reference/reference.h"
#include "tests/cuda/emulation/layer_run.h"
#include "tests/cuda/random_layers.h"

namespace pipit::internal::test::emulation {
namespace {

using cuda::In;
using cuda::Out;

LayerRandom layer_numbers(unsigned test) {
  return LayerRandom(gpu_seed() * 1000 + test);
}

TEST(EmulatedIndexing, Gather) {
  LayerRandom random = layer_numbers(800);
  for (int round = 0; round < 60 && !::testing::Test::HasFailure(); ++round) {
    const RandomLayer node = random_gather_indexed(random);
    Operands operands(false);
    const ConstTensorView x = operands.in(*node.inputs[0]), indices = operands.in(*node.inputs[1]);
    const auto expected = referenced(register_reference_indexing, *node.layer, node.inputs);
    const TensorView y = operands.out(expected[0].desc());
    const auto& attributes = static_cast<const GatherIndexed&>(*node.layer).attributes();
    const cuda::NamedElements named(attributes, x.desc.shape, indices.desc.shape);
    ASSERT_EQ(named.points, expected[0].shape().elements());
    Fault fault;
    const auto gather = [&]<typename T>(T) {
      const cuda::MovedElements<T> elements{reinterpret_cast<T*>(y.data), reinterpret_cast<const T*>(x.data)};
      run_points(cuda::gather_indexed<cuda::MovedElements<T>>, random.random, named.points, named,
                 cuda::Indices(indices), elements, &fault);
    };
    const std::size_t bytes = dtype_bytes(x.desc.dtype);
    bytes == 1 ? gather(std::uint8_t{}) : bytes == 4 ? gather(std::uint32_t{}) : gather(std::uint64_t{});
    EXPECT_EQ(fault.found, 0);
    expect_same(y, expected[0], 0);
  }
}

TEST(EmulatedIndexing, AnIndexOutOfRangeIsReported) {
  LayerRandom random = layer_numbers(801);
  Operands operands(false);
  const Tensor indices = Tensor::from<std::int64_t>(Shape{2, 1}, std::vector<std::int64_t>{2, -4});
  const ConstTensorView x = operands.in(*random.tensor(Shape{3, 5})), at = operands.in(indices);
  const TensorView y = operands.out(TensorDesc{Shape{2, 5}});
  const cuda::NamedElements named({IndexForm::tuples}, x.desc.shape, at.desc.shape);
  Fault fault;
  const cuda::MovedElements<std::uint32_t> elements{reinterpret_cast<std::uint32_t*>(y.data),
                                                    reinterpret_cast<const std::uint32_t*>(x.data)};
  run_points(cuda::gather_indexed<cuda::MovedElements<std::uint32_t>>, random.random, named.points, named,
             cuda::Indices(at), elements, &fault);
  EXPECT_EQ(fault.found, 1);
  EXPECT_EQ(fault.value, -4);
  EXPECT_EQ(std::memcmp(y.data, x.data + 2 * 5 * 4, 5 * 4), 0);
  EXPECT_EQ(y.as<float>()[9], 0);
}

TEST(EmulatedIndexing, Scatter) {
  LayerRandom random = layer_numbers(802);
  for (int round = 0; round < 100 && !::testing::Test::HasFailure(); ++round) {
    const RandomLayer node = random_scatter_indexed(random);
    Operands operands(false);
    const ConstTensorView x = operands.in(*node.inputs[0]), indices = operands.in(*node.inputs[1]);
    const ConstTensorView updates = operands.in(*node.inputs[2]);
    const auto expected = referenced(register_reference_indexing, *node.layer, node.inputs);
    const TensorView y = operands.out(expected[0].desc());
    const auto& a = static_cast<const ScatterIndexed&>(*node.layer).attributes();
    const cuda::NamedElements named(a.indexed, x.desc.shape, indices.desc.shape);
    ASSERT_EQ(named.points, updates.desc.elements());
    const auto size = static_cast<unsigned>(x.desc.elements());
    cuda::Writers writers;
    writers.last = reinterpret_cast<int*>(operands.bytes(size * 4, 0xFF));
    if (a.reduction != ScatterReduction::none) {
      writers.first = reinterpret_cast<unsigned*>(operands.bytes(size * 4, 0xFF));
      writers.count = reinterpret_cast<int*>(operands.bytes(size * 4, 0xFF));
    }
    Fault fault;
    run_points(cuda::find_writers, random.random, named.points, named, cuda::Indices(indices), writers,
               &fault);
    const auto replace = [&]<typename T>(T) {
      using Elements = cuda::MovedElements<T>;
      auto* to = reinterpret_cast<T*>(y.data);
      run_points(cuda::scatter_last<Elements>, random.random, size, size, writers,
                 Elements{to, reinterpret_cast<const T*>(x.data)},
                 Elements{to, reinterpret_cast<const T*>(updates.data)});
    };
    const auto reduce = [&]<typename W>(W) {
      run_points(cuda::scatter_reduced<W>, random.random, size, named, cuda::Indices(indices), size, writers,
                 a.reduction, Out(y), In(x), In(updates));
    };
    const std::size_t bytes = dtype_bytes(x.desc.dtype);
    if (a.reduction == ScatterReduction::none) {
      bytes == 1 ? replace(std::uint8_t{}) : bytes == 4 ? replace(std::uint32_t{}) : replace(std::uint64_t{});
    } else if (x.desc.dtype == DType::f32) {
      reduce(float{});
    } else if (x.desc.dtype == DType::f64) {
      reduce(double{});
    } else {
      reduce(std::int64_t{});
    }
    EXPECT_EQ(fault.found, 0);
    expect_same(y, expected[0], 0);
  }
}

TEST(EmulatedOrder, TopK) {
  LayerRandom random = layer_numbers(803);
  for (int round = 0; round < 24 && !::testing::Test::HasFailure(); ++round) {
    const bool halves = random.coin();
    RandomLayer node = random_top_k(random, round % 6 == 0 ? 5000 : round % 3 == 0 ? 300 : 9);
    if (halves) node.inputs[0] = std::make_shared<const Tensor>(as_halves(*node.inputs[0]));
    const auto& a = static_cast<const TopK&>(*node.layer).attributes();
    Operands operands(halves);
    const ConstTensorView x = operands.in(*node.inputs[0]);
    const auto expected = referenced(register_reference_indexing, *node.layer, node.inputs);
    const TensorView y = operands.out(expected[0].desc()), indices = operands.out(expected[1].desc());
    if (expected[0].shape().elements() == 0) continue;
    const Shape& shape = x.desc.shape;
    const int axis = normalize_axis(a.axis, shape.rank(), "TopK");
    const auto d = static_cast<std::size_t>(axis);
    const std::array strides{y.desc.strides(), indices.desc.strides(), x.desc.strides()};
    const auto loop = loop_beside(axis, shape, strides);
    cuda::SortedGroups g(loop);
    g.groups = static_cast<unsigned>(loop.size());
    g.extent = static_cast<unsigned>(shape[axis]);
    g.padded = std::bit_ceil(g.extent);
    g.k = static_cast<unsigned>(a.k);
    g.largest = a.largest;
    g.value_stride = static_cast<int>(strides[0][d]);
    g.index_stride = static_cast<int>(strides[1][d]);
    g.x_stride = static_cast<int>(strides[2][d]);
    cuda::SortKeys keys;
    const std::size_t all = std::size_t{g.groups} * g.padded;
    if (g.padded > cuda::kSortChunk) {
      keys.value = reinterpret_cast<std::uint64_t*>(operands.bytes(all * 8, 0xFF));
      keys.index = reinterpret_cast<unsigned*>(operands.bytes(all * 4, 0xFF));
    }
    const auto bytes = static_cast<unsigned>(dtype_bytes(x.desc.dtype));
    const auto chunks = static_cast<int>((all + cuda::kSortChunk - 1) / cuda::kSortChunk);
    auto* to = indices.as<std::int64_t>();
    const auto how = [&] { return launch_of(random.random, chunks, cuda::kSortThreads, 0); };
    void* values = y.data;
    expect_no_error(run(cuda::sort_chunks, how(), g, keys, values, to, In(x), bytes));
    for (unsigned size = 2 * cuda::kSortChunk; size <= g.padded; size *= 2) {
      for (unsigned stride = size / 2; stride >= cuda::kSortChunk; stride /= 2)
        run_points(cuda::sort_step, random.random, static_cast<std::int64_t>(all / 2), g, keys, size, stride);
      expect_no_error(run(cuda::finish_chunks, how(), g, keys, size, values, to, In(x), bytes));
    }
    expect_same(y, expected[0], 0);
    expect_same(indices, expected[1], 0);
  }
}

TEST(EmulatedOrder, CumSum) {
  LayerRandom random = layer_numbers(804);
  for (int round = 0; round < 40 && !::testing::Test::HasFailure(); ++round) {
    const bool halves = random.coin();
    RandomLayer node = random_cum_sum(random);
    if (halves) node.inputs[0] = std::make_shared<const Tensor>(as_halves(*node.inputs[0]));
    const auto& a = static_cast<const CumSum&>(*node.layer).attributes();
    Operands operands(halves);
    const ConstTensorView x = operands.in(*node.inputs[0]);
    const auto expected = referenced(register_reference_indexing, *node.layer, node.inputs);
    const TensorView y = operands.out(expected[0].desc());
    if (expected[0].shape().elements() == 0) continue;
    const int axis = normalize_axis(a.axis, x.desc.shape.rank(), "CumSum");
    const auto d = static_cast<std::size_t>(axis);
    const std::array strides{y.desc.strides(), x.desc.strides()};
    const auto loop = loop_beside(axis, x.desc.shape, strides);
    cuda::RunningSums g(loop);
    g.groups = static_cast<unsigned>(loop.size());
    g.extent = static_cast<int>(x.desc.shape[axis]);
    g.y_stride = static_cast<int>(strides[0][d]);
    g.x_stride = static_cast<int>(strides[1][d]);
    g.exclusive = a.exclusive;
    g.reverse = a.reverse;
    const bool floats =
        x.desc.dtype == DType::f32 || x.desc.dtype == DType::f64 || x.desc.dtype == DType::f16;
    if (floats) {
      run_points(cuda::running_sums<double>, random.random, loop.size() * 32, g, Out(y), In(x));
    } else {
      run_points(cuda::running_sums<std::int64_t>, random.random, loop.size() * 32, g, Out(y), In(x));
    }
    if (expected[0].desc().dtype == DType::f64) {
      for (std::int64_t i = 0; i < expected[0].shape().elements(); ++i)
        EXPECT_NEAR(y.as<double>()[i], expected[0].values<double>()[static_cast<std::size_t>(i)], 1e-10);
    } else {
      expect_same(y, expected[0], halves ? 0x1p-11 : 0x1p-23);
    }
  }
}

template <int Taps>
void sample(std::mt19937& random, const cuda::GridSampling& g, int dims, const Out& y, const In& x,
            const In& grid) {
  Launch how = launch_of(random, static_cast<int>((g.size + 255) / 256), 256, 0);
  how.grid.y = static_cast<unsigned>((g.channels + cuda::kGridChannels - 1) / cuda::kGridChannels);
  const auto run_it = [&](auto kernel) { expect_no_error(run(kernel, how, g, y, x, grid)); };
  dims == 1   ? run_it(cuda::grid_sample<Taps, 1>)
  : dims == 2 ? run_it(cuda::grid_sample<Taps, 2>)
  : dims == 3 ? run_it(cuda::grid_sample<Taps, 3>)
              : run_it(cuda::grid_sample<Taps, 4>);
}

TEST(EmulatedGridSample, Random) {
  LayerRandom random = layer_numbers(805);
  for (int round = 0; round < 160 && !::testing::Test::HasFailure(); ++round) {
    const bool halves = random.coin();
    RandomLayer node = random_grid_sample(random, round % 8 == 0   ? 1
                                                  : round % 8 == 1 ? 3
                                                  : round % 8 == 2 ? 4
                                                                   : 2);
    if (halves) {
      for (auto& input : node.inputs) input = std::make_shared<const Tensor>(as_halves(*input));
    }
    const auto& a = static_cast<const GridSample&>(*node.layer).attributes();
    Operands operands(halves);
    const ConstTensorView x = operands.in(*node.inputs[0]), grid = operands.in(*node.inputs[1]);
    const auto expected = referenced(register_reference_grid_sample, *node.layer, node.inputs);
    const TensorView y = operands.out(expected[0].desc());
    if (expected[0].shape().elements() == 0) continue;
    const Shape& shape = x.desc.shape;
    const Strides strides = x.desc.strides();
    cuda::GridSampling g;
    const std::int64_t positions = y.desc.elements() / (shape[0] * shape[1]);
    g.size = static_cast<unsigned>(shape[0] * positions);
    g.positions = cuda::Divisor(positions);
    g.channels = static_cast<int>(shape[1]);
    g.x_image = static_cast<int>(strides[0]);
    g.x_channel = static_cast<int>(strides[1]);
    const int dims = shape.rank() - 2;
    for (int d = 0; d < dims; ++d) {
      g.extent[d] = static_cast<int>(shape[shape.rank() - 1 - d]);
      g.stride[d] = static_cast<int>(strides[static_cast<std::size_t>(shape.rank() - 1 - d)]);
    }
    g.padding = a.padding;
    g.align_corners = a.align_corners;
    const int taps = max_grid_taps(a.mode);
    taps == 1   ? sample<1>(random.random, g, dims, Out(y), In(x), In(grid))
    : taps == 2 ? sample<2>(random.random, g, dims, Out(y), In(x), In(grid))
                : sample<4>(random.random, g, dims, Out(y), In(x), In(grid));
    expect_same(y, expected[0], halves ? 2e-3 : 1e-5);
    if (::testing::Test::HasFailure())
      ADD_FAILURE() << node.layer->summary() << " " << shape.str() << " round " << round;
  }
}

}  // namespace
}  // namespace pipit::internal::test::emulation
