// Pooling on the GPU: against the CPU reference, of integers against the scalar specification, bit for bit.
#include <algorithm>
#include <cmath>

#include "engine/plan/candidate_order.h"
#include "layers/ops/pool.h"
#include "layers/ops/qelementwise.h"
#include "layers/ops/quantize.h"
#include "layers/registry.h"
#include "tests/cuda/quantized_cases.h"
#include "tests/support/run_graph.h"

namespace pipit::internal::test {
namespace {

constexpr Layout kBoth[] = {Layout::row_major, Layout::channels_last};
constexpr Precision kPrecisions[] = {Precision::fp32, Precision::fp16};

// Both precisions and all layouts of input 0 and the outputs; the rest are constants.
void check(const Layer& layer, const char* name, const std::vector<std::shared_ptr<const Tensor>>& inputs,
           double tolerance = 0) {
  for (const Precision precision : kPrecisions) {
    for (const Layout in : kBoth) {
      for (const Layout out : kBoth) {
        GpuCase test{{{inputs[0], in}}, precision, out, precision == Precision::fp32 ? tolerance : 0};
        for (std::size_t i = 1; i < inputs.size(); ++i) {
          test.inputs.push_back({inputs[i], Layout::row_major, true});
        }
        expect_gpu(layer, name, test);
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(GpuPool, WindowsOfOneToThreeDimensions) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(test::gpu_seed());
  for (const PoolKind kind : {PoolKind::max, PoolKind::average, PoolKind::lp}) {
    for (const bool include_pad : {false, true}) {
      PoolAttributes a{kind, {}, false, include_pad};
      a.window = {2, {3, 3, 1}, {2, 2, 1}, {1, 1, 1}, {1, 1, 0}, {1, 1, 0}, false};
      check(Pool(a), "windows", {shared_random({2, 16, 13, 12}, random)});
      check(Pool(a), "windows", {shared_random({2, 5, 9, 8}, random)});
      a.window = {2, {2, 3, 1}, {2, 1, 1}, {2, 1, 1}, {0, 2, 0}, {1, 0, 0}, true};
      check(Pool(a), "windows", {shared_random({1, 12, 10, 7}, random)});
      a.window = {1, {4, 1, 1}, {3, 1, 1}, {1, 1, 1}, {1, 0, 0}, {2, 0, 0}, true};
      check(Pool(a), "windows", {shared_random({2, 8, 17}, random)});
      a.window = {3, {2, 3, 2}, {1, 2, 2}, {1, 1, 1}, {1, 1, 0}, {0, 1, 1}, false};
      a.p = 3;
      check(Pool(a), "windows", {shared_random({1, 4, 5, 6, 7}, random)});
    }
  }
  for (const PoolKind kind : {PoolKind::max, PoolKind::lp}) {
    check(Pool({kind, {}, true}), "windows", {shared_random({2, 24, 7, 7}, random)});
  }
  PoolAttributes indices{PoolKind::max, {2, {2, 2, 1}}};
  indices.indices = true;
  const auto x = shared_random({1, 2, 4, 4}, random);
  EXPECT_TRUE(test::gpu_refusal(Pool(indices), "windows", {{{x}}}).has_value());
}

TEST(GpuPool, MaximaWithTheirPositions) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(test::gpu_seed());
  for (const bool column_major : {false, true}) {
    PoolAttributes a{PoolKind::max};
    a.indices = true;
    a.column_major_indices = column_major;
    a.window = {2, {3, 2, 1}, {2, 1, 1}, {1, 1, 1}, {1, 1, 0}, {0, 1, 0}, false};
    // Few values, so that several are the largest.
    Tensor few = random_tensor({2, 5, 9, 8}, random, -3, 3);
    for (float& v : few.values<float>()) v = std::round(v);
    few.values<float>()[100] = NAN;
    check(Pool(a), "positions", {std::make_shared<const Tensor>(std::move(few))});
    a.window = {3, {2, 3, 2}, {1, 2, 2}, {2, 1, 1}, {1, 1, 0}, {0, 1, 1}, true};
    check(Pool(a), "positions", {shared_random({2, 3, 5, 6, 7}, random)});
    a.window = {1, {4, 1, 1}, {3, 1, 1}, {1, 1, 1}, {1, 0, 0}, {2, 0, 0}, true};
    check(Pool(a), "positions", {shared_random({2, 8, 17}, random)});
    Numbers numbers(5);
    for (const DType type : {DType::u8, DType::i8}) {
      const double low = type == DType::u8 ? 0 : -128;
      GpuCase test = exact_case(Layout::row_major);
      test.inputs = {{numbers.tensor({2, 3, 17}, low, low + 256, type), kLast}};
      expect_gpu(Pool(a), "positions", test);
    }
  }
}

// Windows that share pixels, odd extents, padding that counts or does not.
TEST(GpuPool, UsualAveragesInHalf) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(test::gpu_seed() + 2);
  const auto pick = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  for (int i = 0; i < 40 && !HasFailure(); ++i) {
    PoolAttributes a{.kind = PoolKind::average, .count_include_pad = i % 2 == 0};
    const std::int64_t stride = pick(1, 2);
    const auto pad = [&] { return pick(0, 2); };
    a.window = {
        2, {3, 3, 1}, {stride, stride, 1}, {1, 1, 1}, {pad(), pad(), 0}, {pad(), pad(), 0}, pick(0, 1) == 0};
    GpuCase test;
    test.inputs = {{shared_random({pick(1, 3), 4 * pick(1, 12), pick(3, 17), pick(3, 17)}, random),
                    Layout::channels_last}};
    test.precision = Precision::fp16;
    test.output_layout = Layout::channels_last;
    expect_gpu(Pool(a), "small_windows", test);
  }
}

// Odd extents, padding on either side, and a NaN that must stay where it is.
TEST(GpuPool, UsualWindowsInHalf) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(test::gpu_seed() + 1);
  const auto run = [&](const Shape& shape, std::int64_t kernel, std::int64_t stride, std::int64_t begin,
                       std::int64_t end, bool ceil, bool nan) {
    PoolAttributes a{PoolKind::max, {}, false, false};
    a.window = {2,   {kernel, kernel, 1}, {stride, stride, 1}, {1, 1, 1}, {begin, begin, 0}, {end, end, 0},
                ceil};
    Tensor x = test::random_tensor(shape, random);
    if (nan) x.values<float>()[x.values<float>().size() / 2] = std::nanf("");
    GpuCase test;
    test.inputs = {{std::make_shared<const Tensor>(std::move(x)), Layout::channels_last}};
    test.precision = Precision::fp16;
    test.output_layout = Layout::channels_last;
    expect_gpu(Pool(a), "small_windows", test);
  };
  for (const std::int64_t size : {3, 8, 13, 30}) {
    for (const bool nan : {false, true}) {
      run({2, 16, size, size + 1}, 3, 2, 1, 1, false, nan);
      run({1, 24, size + 2, size}, 3, 2, 0, 1, true, nan);
      run({3, 8, size, size}, 2, 2, 0, 0, true, nan);
      run({1, 8, size + 1, size}, 2, 2, 1, 0, false, nan);
      run({1, 40, size, size}, 3, 1, 1, 1, false, nan);
      run({2, 12, size, size}, 3, 2, 1, 1, false, nan);  // 8 bytes at once
      run({1, 4, size, size}, 2, 2, 0, 0, false, nan);
    }
  }
  run({40, 64, 41, 39}, 3, 2, 1, 1, false, false);
  PoolAttributes wide{PoolKind::max, {2, {5, 5, 1}}};
  const auto x = shared_random({1, 8, 9, 9}, random);
  EXPECT_TRUE(test::gpu_refusal(Pool(wide), "small_windows",
                                {{{x, Layout::channels_last}}, Precision::fp16, Layout::channels_last})
                  .has_value());
}

TEST(GpuPool, GlobalAverage) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(test::gpu_seed());
  const Pool layer({PoolKind::average, {}, true});
  for (const Shape& shape : {Shape{3, 512, 7, 7}, Shape{1, 40, 31, 33}, Shape{2, 8, 5}}) {
    const auto x = shared_random(shape, random, 0, 1);
    for (const Precision precision : kPrecisions) {
      expect_gpu(layer, "global_average", {{{x, Layout::channels_last}}, precision, Layout::channels_last});
    }
    check(layer, "windows", {x});
  }
  const auto odd = shared_random({1, 5, 4, 4}, random);
  EXPECT_TRUE(test::gpu_refusal(layer, "global_average", {{{odd, Layout::channels_last}}}).has_value());
}

TEST(QPool, Averages) {
  PIPIT_NEEDS_GPU();
  Numbers numbers(220);
  for (int i = 0; i < 24 && !HasFailure(); ++i) {
    QAveragePoolAttributes a;
    a.x = kTypes[i % 4];
    a.y = i % 3 == 0 ? kReal : kTypes[numbers.pick(0, 3)];
    if (a.y.quantized()) a.y.scale = 0.01F;
    a.pool.kind = PoolKind::average;
    a.pool.global = i % 2 == 0;
    a.pool.count_include_pad = numbers.coin();
    set_window(a.pool.window, 3, numbers.pick(1, 2), 1, 1);
    const std::int64_t channels = i % 8 < 6 ? 4 * numbers.pick(1, 40) : numbers.pick(1, 9);
    const Shape shape{numbers.pick(1, 3), channels, numbers.pick(3, 14), numbers.pick(3, 14)};
    GpuCase test = exact_case();
    test.precision = numbers.coin() ? Precision::fp32 : Precision::fp16;
    test.inputs = {{numbers.quantized(shape, a.x), kLast}};
    expect_gpu(QAveragePool(a), "windows", test);
    if (!a.pool.global && channels % 8 == 0 && a.y.quantized()) {
      expect_gpu(QAveragePool(a), "small_windows", test);
    } else {
      EXPECT_TRUE(gpu_refusal(QAveragePool(a), "small_windows", test).has_value());
    }
    if (a.pool.global && channels % 4 == 0) expect_gpu(QAveragePool(a), "global_average", test);
    test.output_layout = test.inputs[0].layout = Layout::row_major;
    expect_gpu(QAveragePool(a), "windows", test);
  }
}

// Positions that the blocks of a cluster share, few and many channels.
TEST(QPool, GlobalAveragesOfLargeImages) {
  PIPIT_NEEDS_GPU();
  Numbers numbers(224);
  const Shape shapes[] = {
      {1, 32, 112, 112}, {2, 4, 97, 201}, {3, 96, 56, 56}, {1, 1152, 31, 33}, {1, 20, 300, 7}};
  for (const Shape& shape : shapes) {
    for (const Quantization& x : kTypes) {
      QAveragePoolAttributes a;
      a.x = x;
      a.y = numbers.coin() ? kReal : kTypes[numbers.pick(0, 3)];
      if (a.y.quantized()) a.y.scale = 0.01F;
      a.pool.kind = PoolKind::average;
      a.pool.global = true;
      GpuCase test = exact_case();
      test.inputs = {{numbers.quantized(shape, x), kLast}};
      expect_gpu(QAveragePool(a), "global_average", test);
      if (HasFailure()) return;
    }
  }
}

// Every small window, odd extents, padding that counts or does not, a last window that ceil_mode adds.
TEST(QPool, AveragesOfSmallWindows) {
  PIPIT_NEEDS_GPU();
  Numbers numbers(225);
  for (int i = 0; i < 60 && !HasFailure(); ++i) {
    QAveragePoolAttributes a;
    a.x = kTypes[i % 4];
    a.y = kTypes[numbers.pick(0, 3)];
    a.y.scale = 0.01F;
    a.pool.kind = PoolKind::average;
    a.pool.count_include_pad = numbers.coin();
    const std::int64_t kernel = i % 3 == 0 ? 2 : 3;
    set_window(a.pool.window, kernel, kernel == 2 ? 2 : numbers.pick(1, 2), 1, 0);
    for (std::size_t d = 0; d < 2; ++d) {
      a.pool.window.pad_begin[d] = numbers.pick(0, kernel - 1);
      a.pool.window.pad_end[d] = numbers.pick(0, kernel - 1);
    }
    a.pool.window.ceil_mode = numbers.coin();
    GpuCase test = exact_case();
    test.inputs = {
        {numbers.quantized(
             {numbers.pick(1, 3), 8 * numbers.pick(1, 9), numbers.pick(3, 15), numbers.pick(3, 15)}, a.x),
         kLast}};
    expect_gpu(QAveragePool(a), "small_windows", test);
  }
}

TEST(QPool, Maxima) {
  PIPIT_NEEDS_GPU();
  Numbers numbers(221);
  for (const auto& [kernel, stride] : {std::pair{3, 2}, {2, 2}, {3, 1}, {4, 3}}) {
    for (const Quantization& q : {kI8, kU8}) {
      for (const std::int64_t channels : {16, 48, 24, 12, 5}) {
        PoolAttributes a;
        set_window(a.window, kernel, stride, 1, kernel / 2);
        if (kernel == 2) a.window.pad_begin = a.window.pad_end = {0, 0, 0};
        const Shape shape{2, channels, numbers.pick(5, 19), numbers.pick(5, 19)};
        GpuCase test = exact_case();
        test.inputs = {{numbers.quantized(shape, q), kLast}};
        expect_gpu(Pool(a), "integer_windows", test);
        if (kernel != 4 && channels % 8 == 0) expect_gpu(Pool(a), "small_windows", test);
        if (HasFailure()) return;
      }
    }
  }
}

// Chosen without timing: "windows" would add up 12544 taps one after another.
TEST(Pooling, ChoosesTheKernelOfGlobalAverages) {
  PIPIT_NEEDS_GPU();
  PoolAttributes attributes;
  attributes.kind = PoolKind::average;
  attributes.global = true;
  const Pool halves(attributes);
  const QAveragePool bytes({attributes, kI8, kI8});
  for (const DType type : {DType::f16, DType::i8}) {
    const bool quantized = type == DType::i8;
    const Layer& average = quantized ? static_cast<const Layer&>(bytes) : halves;
    const TensorDesc x{Shape{1, 32, 112, 112}, type, Layout::channels_last};
    const TensorDesc y{Shape{1, 32, 1, 1}, type, Layout::channels_last};
    const TensorDesc* const inputs[] = {&x};
    const std::shared_ptr<const Tensor> constants[] = {nullptr};
    const NodeSpec spec{average, inputs, {&y, 1}, constants, quantized ? Precision::fp32 : Precision::fp16};
    const auto order = candidate_order(default_registry(), DeviceKind::cuda, spec);
    const auto first = std::ranges::find_if(
        order, [&](const OrderedCandidate& place) { return !place.candidate->refuse(spec); });
    ASSERT_NE(first, order.end());
    EXPECT_EQ(first->candidate->name, "global_average") << dtype_name(type);
  }
}

}  // namespace
}  // namespace pipit::internal::test
