// Normalization, softmax and reductions on the GPU against the CPU reference.
#include <cmath>

#include "layers/ops/normalization.h"
#include "layers/ops/reduce.h"
#include "layers/ops/softmax.h"
#include "tests/cuda/conformance.h"
#include "tests/support/run_graph.h"

namespace pipit::internal {
namespace {

using test::expect_gpu;
using test::GpuOperand;
using test::shared_random;

constexpr Layout kBoth[] = {Layout::row_major, Layout::channels_last};
constexpr Precision kPrecisions[] = {Precision::fp32, Precision::fp16};

// Both precisions and all layouts of input 0 and the outputs; the rest are constants.
void check(const Layer& layer, const char* name, const std::vector<std::shared_ptr<const Tensor>>& inputs,
           double tolerance = 0) {
  for (const Precision precision : kPrecisions) {
    for (const Layout in : kBoth) {
      for (const Layout out : kBoth) {
        test::GpuCase test{{{inputs[0], in}}, precision, out, precision == Precision::fp32 ? tolerance : 0};
        for (std::size_t i = 1; i < inputs.size(); ++i) {
          test.inputs.push_back({inputs[i], Layout::row_major, true});
        }
        expect_gpu(layer, name, test);
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(GpuNormalization, BatchNorm) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(test::gpu_seed());
  const auto vector = [&](float low, float high) { return shared_random({24}, random, low, high); };
  for (const Shape& shape : {Shape{2, 24, 5, 7}, Shape{3, 24}, Shape{1, 24, 9}}) {
    check(BatchNorm({1e-3F}), "elementwise",
          {shared_random(shape, random), vector(0.5F, 2), vector(-1, 1), vector(-1, 1), vector(0.1F, 2)});
    for (const Precision precision : kPrecisions) {
      test::GpuCase computed;
      computed.precision = precision;
      for (const auto& operand :
           {shared_random(shape, random), vector(0.5F, 2), vector(-1, 1), vector(-1, 1), vector(0.1F, 2)})
        computed.inputs.push_back({operand});
      expect_gpu(BatchNorm({1e-3F}), "elementwise", computed);
    }
  }
}

TEST(GpuNormalization, LayerNormAndInstanceNorm) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(test::gpu_seed());
  for (const Shape& shape : {Shape{2, 5, 3, 96}, Shape{3, 40, 1000}, Shape{7, 33}}) {
    const std::int64_t last = shape[shape.rank() - 1];
    const auto x = shared_random(shape, random, -2, 3);
    const auto scale = shared_random({last}, random, 0.5F, 2);
    const auto bias = shared_random({last}, random);
    check(LayerNorm({-1, 1e-5F, 3}), "teams", {x, scale, bias}, 2e-5);
    check(LayerNorm({1, 1e-5F, 1}), "teams", {x, scale}, 2e-5);
    check(LayerNorm({-1, 1e-5F, 1, true}), "teams", {x, scale}, 2e-5);
    check(LayerNorm({1, 1e-5F, 1, true}), "teams", {x, scale, bias}, 2e-5);
  }
  for (const Shape& shape : {Shape{2, 40, 23, 29}, Shape{1, 3, 5}}) {
    const auto x = shared_random(shape, random, -1, 4);
    const auto scale = shared_random({shape[1]}, random, 0.5F, 2), bias = shared_random({shape[1]}, random);
    check(InstanceNorm({1e-5F}), "teams", {x, scale, bias});
    for (const std::int64_t groups : {std::int64_t{1}, shape[1] % 8 == 0 ? 8 : shape[1]})
      check(InstanceNorm({1e-5F, groups}), "teams", {x, scale, bias});
  }
}

TEST(GpuNormalization, Lrn) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(test::gpu_seed());
  for (const std::int64_t size : {1, 4, 5, 50}) {
    check(Lrn({0.01F, 0.75F, 1.5F, size}), "elementwise", {shared_random({2, 11, 5, 3}, random, -3, 3)});
  }
}

TEST(GpuSoftmax, AllAxesAndFlattened) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(test::gpu_seed());
  for (const Shape& shape : {Shape{3, 1000}, Shape{2, 21, 9, 11}, Shape{2, 3, 5}, Shape{1, 4096}}) {
    const auto x = shared_random(shape, random, -8, 8);
    for (const bool log : {false, true}) {
      for (int axis = 0; axis < shape.rank(); ++axis) {
        check(Softmax({axis, log}), "teams", {x});
        check(Softmax({axis, log, true}), "teams", {x});
      }
    }
  }
}

TEST(GpuReduce, KindsAxesAndLayouts) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(test::gpu_seed());
  for (int k = 0; k <= static_cast<int>(ReduceKind::log_sum_exp); ++k) {
    const auto kind = static_cast<ReduceKind>(k);
    for (const bool keep : {true, false}) {
      const auto x = shared_random({2, 40, 6, 9}, random, 0.9F, 1.1F);
      for (const std::vector<std::int64_t>& axes : {std::vector<std::int64_t>{2, 3}, {1}, {-1}, {0, 2}, {}}) {
        // Half overflows on the product and the squares of everything.
        check(Reduce({kind, axes, keep}), "teams", {x});
        if (HasFailure()) return;
      }
    }
    check(Reduce({kind, {1, 2}, false}), "teams", {shared_random({3, 17, 41}, random, 0.99F, 1.01F)});
  }
}

TEST(GpuReduce, IntegersAndNothing) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(test::gpu_seed());
  Tensor numbers(TensorDesc{Shape{3, 50, 4}, DType::i32, Layout::row_major});
  for (auto& x : numbers.values<std::int32_t>()) x = static_cast<std::int32_t>(random() % 2000) - 1000;
  const auto x = std::make_shared<const Tensor>(std::move(numbers));
  for (const ReduceKind kind : {ReduceKind::sum, ReduceKind::mean, ReduceKind::max, ReduceKind::min,
                                ReduceKind::prod, ReduceKind::l1, ReduceKind::sum_square}) {
    expect_gpu(Reduce({kind, {1}, true}), "teams", {{{x}}});
  }
  const auto empty = std::make_shared<const Tensor>(TensorDesc{Shape{3, 0, 2}});
  for (const ReduceKind kind : {ReduceKind::sum, ReduceKind::max, ReduceKind::min, ReduceKind::prod}) {
    expect_gpu(Reduce({kind, {1}, true}), "teams", {{{empty}}});
  }
}

TEST(GpuReduce, ArgMax) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(test::gpu_seed());
  Tensor values(TensorDesc{Shape{2, 60, 7, 5}});
  for (float& x : values.values<float>()) x = static_cast<float>(random() % 8);  // many ties
  values.values<float>()[17] = NAN;
  values.values<float>()[400] = NAN;
  const auto x = std::make_shared<const Tensor>(std::move(values));
  for (int axis = 0; axis < 4; ++axis) {
    for (const bool last : {false, true}) {
      for (const bool minimum : {false, true}) check(ArgMax({axis, true, last, minimum}), "teams", {x});
    }
  }
  check(ArgMax({-1, false}), "teams", {shared_random({3, 1000}, random)});
}

}  // namespace
}  // namespace pipit::internal
