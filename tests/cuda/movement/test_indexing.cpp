// GatherIndexed, ScatterIndexed, TopK, CumSum and GridSample on the GPU, against the CPU reference.
#include <iostream>

#include "layers/ops/reshaping.h"
#include "layers/ops/resize.h"
#include "tests/cuda/conformance.h"
#include "tests/cuda/random_layers.h"

namespace pipit::internal::test {
namespace {

constexpr Precision kPrecisions[] = {Precision::fp32, Precision::fp16};

GpuCase case_of(const RandomLayer& random, Precision precision, bool exact, bool constant = false) {
  GpuCase test;
  test.precision = precision;
  test.exact = exact;
  for (const auto& input : random.inputs)
    test.inputs.push_back({input, Layout::row_major, constant && !test.inputs.empty()});
  return test;
}

TEST(GpuIndexing, Gather) {
  PIPIT_NEEDS_GPU();
  LayerRandom random(gpu_seed());
  for (int round = 0; round < 60 && !HasFailure(); ++round) {
    const RandomLayer layer = random_gather_indexed(random);
    for (const Precision precision : kPrecisions)
      expect_gpu(*layer.layer, "indexed", case_of(layer, precision, true, random.coin()));
  }
}

// What counts is the order of the updates, whatever that of the threads.
TEST(GpuIndexing, Scatter) {
  PIPIT_NEEDS_GPU();
  LayerRandom random(gpu_seed() + 1);
  for (int round = 0; round < 100 && !HasFailure(); ++round) {
    const RandomLayer layer = random_scatter_indexed(random);
    for (const Precision precision : kPrecisions)
      expect_gpu(*layer.layer, "indexed", case_of(layer, precision, true));
  }
}

// Many updates of few elements.
TEST(GpuIndexing, ScatterSumsAreInOrder) {
  PIPIT_NEEDS_GPU();
  LayerRandom random(gpu_seed() + 2);
  const auto data = random.tensor(Shape{7, 3});
  const auto updates = random.tensor(Shape{5000, 3});
  const auto indices = random_positions(random, Shape{5000, 1}, [](std::int64_t) { return 7; });
  for (const ScatterReduction reduction :
       {ScatterReduction::none, ScatterReduction::add, ScatterReduction::max}) {
    const ScatterIndexed layer({{IndexForm::tuples}, reduction});
    for (const Precision precision : kPrecisions)
      expect_gpu(layer, "indexed", case_of({nullptr, {data, indices, updates}}, precision, true));
  }
}

TEST(GpuIndexing, GatherWithIndicesOfTheRun) {
  PIPIT_NEEDS_GPU();
  LayerRandom random(gpu_seed() + 3);
  const auto x = random.tensor(Shape{5, 4, 7});
  for (const int axis : {0, 1, -1}) {
    const std::int64_t extent = x->shape()[axis < 0 ? axis + 3 : axis];
    const auto indices = random_positions(random, Shape{2, 3}, [&](std::int64_t) { return extent; });
    for (const Precision precision : kPrecisions)
      expect_gpu(Gather({axis}), "gather", case_of({nullptr, {x, indices}}, precision, true));
  }
}

TEST(GpuOrder, TopK) {
  PIPIT_NEEDS_GPU();
  LayerRandom random(gpu_seed() + 4);
  for (int round = 0; round < 60 && !HasFailure(); ++round) {
    const RandomLayer layer = random_top_k(random, round % 3 == 0 ? 9000 : round % 3 == 1 ? 300 : 9);
    for (const Precision precision : kPrecisions)
      expect_gpu(*layer.layer, "bitonic", case_of(layer, precision, true));
  }
}

// Along the channels of what lies in another order than its dimensions, and where a chunk is exactly full.
TEST(GpuOrder, TopKOfOtherLayoutsAndSizes) {
  PIPIT_NEEDS_GPU();
  LayerRandom random(gpu_seed() + 5);
  for (const std::int64_t channels : {1, 21, 2048, 2049, 4096}) {
    GpuCase test;
    test.inputs = {{random.tensor(Shape{2, channels, 3, 2}), Layout::channels_last}};
    test.exact = true;
    test.output_layout = Layout::channels_last;
    expect_gpu(TopK({1, std::min<std::int64_t>(channels, 33), true}), "bitonic", test);
    test.output_layout = Layout::row_major;
    expect_gpu(TopK({1, channels, false}), "bitonic", test);
  }
}

// Sums are double: what is off is the rounding of the result, in another order of additions.
TEST(GpuOrder, CumSum) {
  PIPIT_NEEDS_GPU();
  LayerRandom random(gpu_seed() + 6);
  for (int round = 0; round < 60 && !HasFailure(); ++round) {
    const RandomLayer layer = random_cum_sum(random);
    for (const Precision precision : kPrecisions) {
      GpuCase test = case_of(layer, precision, false);
      test.tolerance = precision == Precision::fp16 ? 0x1p-11 : 0x1p-23;
      expect_gpu(*layer.layer, "warps", test);
    }
  }
}

// The elements are those of the reference; weights are off by a few roundings, sums by one for each product.
TEST(GpuGridSample, Random) {
  PIPIT_NEEDS_GPU();
  LayerRandom random(gpu_seed() + 7);
  for (int round = 0; round < 120 && !HasFailure(); ++round) {
    const RandomLayer layer = random_grid_sample(random, round % 8 == 0   ? 1
                                                         : round % 8 == 1 ? 3
                                                         : round % 8 == 2 ? 4
                                                                          : 2);
    for (const Precision precision : kPrecisions)
      expect_gpu(*layer.layer, "positions", case_of(layer, precision, false));
  }
}

TEST(GpuResize, CubicAndAntialiased) {
  PIPIT_NEEDS_GPU();
  LayerRandom random(gpu_seed() + 8);
  for (int round = 0; round < 40 && !HasFailure(); ++round) {
    ResizeAttributes a;
    a.filter.antialias = random.coin();
    a.filter.exclude_outside = random.coin();
    a.mode = random.coin() || !(a.filter.antialias || a.filter.exclude_outside) ? ResizeMode::cubic
                                                                                : ResizeMode::linear;
    if (random.coin()) a.filter.cubic_a = -0.5F;
    a.coordinates = static_cast<ResizeCoordinates>(random.integer(0, 4));
    const Shape shape{random.integer(1, 2), random.integer(1, 9), random.integer(1, 12),
                      random.integer(1, 12)};
    for (int d = random.integer(0, 5) == 0 ? 1 : 2; d < 4; ++d) {
      const auto u = static_cast<std::size_t>(d);
      a.sizes[u] = random.integer(1, 25);
      a.scales[u] = static_cast<float>(a.sizes[u]) / static_cast<float>(shape[d]);
    }
    for (const Precision precision : kPrecisions) {
      GpuCase test;
      test.precision = precision;
      test.inputs = {{random.tensor(shape), random.coin() ? Layout::row_major : Layout::channels_last}};
      test.output_layout = random.coin() ? Layout::row_major : Layout::channels_last;
      expect_gpu(Resize(a), "filters", test);
    }
  }
}

// test_cuda --gtest_also_run_disabled_tests --gtest_filter='*IndexingBench*': microseconds.
TEST(DISABLED_IndexingBench, UsualSizes) {
  PIPIT_NEEDS_GPU();
  LayerRandom random(gpu_seed() + 9);
  const auto time = [&](const Layer& layer, const char* candidate,
                        const std::vector<std::shared_ptr<const Tensor>>& inputs) {
    for (const Precision precision : kPrecisions) {
      std::cout << precision_name(precision) << " " << layer.type() << " " << layer.summary() << " of "
                << inputs[0]->shape().str() << ": "
                << gpu_microseconds(layer, candidate, case_of({nullptr, inputs}, precision, false)) << " us"
                << std::endl;
    }
  };
  for (const std::int64_t extent : {1000, 8400, 100000})
    time(TopK({1, 300, true}), "bitonic", {random.tensor(Shape{1, extent})});
  time(TopK({1, 5, true}), "bitonic", {random.tensor(Shape{32, 1000})});
  time(CumSum({1}), "warps", {random.tensor(Shape{32, 10000})});
  for (const ResizeMode mode : {ResizeMode::linear, ResizeMode::cubic}) {
    GridSampleAttributes a;
    a.mode = mode;
    time(GridSample(a), "positions",
         {random.tensor(Shape{1, 256, 64, 64}), random.tensor(Shape{1, 128, 128, 2})});
  }
  const auto data = random.tensor(Shape{1, 8400, 84});
  const auto indices = random_positions(random, Shape{1, 300, 84}, [](std::int64_t) { return 8400; });
  time(GatherIndexed({IndexForm::elements, 1}), "indexed", {data, indices});
  const auto updates = random.tensor(Shape{1, 300, 84});
  for (const ScatterReduction reduction : {ScatterReduction::none, ScatterReduction::add})
    time(ScatterIndexed({{IndexForm::elements, 1}, reduction}), "indexed", {data, indices, updates});
  ResizeAttributes cubic{ResizeMode::cubic, ResizeCoordinates::half_pixel};
  cubic.scales = {1, 1, 2, 2, 1, 1};
  time(Resize(cubic), "filters", {random.tensor(Shape{1, 64, 128, 128})});
}

}  // namespace
}  // namespace pipit::internal::test
