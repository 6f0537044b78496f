#include <gmock/gmock.h>

#include <cfloat>

#include "layers/cpu/tile/tile_kernel.h"
#include "layers/ops/gemm.h"
#include "layers/ops/matmul.h"
#include "tests/layers/conformance.h"

namespace pipit::internal {
namespace {

using test::Conformance;
using test::expect_conformance;
using test::Operand;
using test::Random;
using testing::ElementsAre;

std::vector<Operand> magnitudes(const std::vector<Operand>& inputs) {
  std::vector<Operand> result = inputs;
  for (Operand& operand : result) {
    if (operand.tensor) operand.tensor = test::absolute_values(*operand.tensor);
  }
  return result;
}

// K products and a bias in any order; scaling by alpha and beta rounds twice more.
void check(const Gemm& layer, const std::vector<Operand>& inputs, std::int64_t k,
           std::vector<std::string> expected = {"gemm", "reference"}, bool few_rows = false) {
  GemmAttributes positive = layer.attributes();
  positive.alpha = std::abs(positive.alpha);
  positive.beta = std::abs(positive.beta);
  positive.activation = Clamp{};
  Conformance conformance{inputs, std::move(expected)};
  conformance.magnitude = test::doubles(test::run_reference(Gemm(positive), magnitudes(inputs))[0]);
  conformance.scale = static_cast<double>(k + 4) * FLT_EPSILON;
  if (few_rows) conformance.expected_fp16 = {"gemv"};
  if (few_rows && bf16_tiles() == nullptr) conformance.expected_bf16 = {"gemv"};
  expect_conformance(layer, conformance);
}

void check(const MatMul& layer, const std::vector<Operand>& inputs, std::int64_t k,
           std::vector<std::string> expected = {"gemm", "reference"}) {
  Conformance conformance{inputs, std::move(expected)};
  conformance.magnitude = test::doubles(test::run_reference(layer, magnitudes(inputs))[0]);
  conformance.scale = static_cast<double>(k + 2) * FLT_EPSILON;
  expect_conformance(layer, conformance);
}

TEST(Gemm, ReferenceOfAHandWorkedExample) {
  const float a[] = {1, 2, 3, 4, 5, 6};
  const float b[] = {1, 0, 2, 1, 0, 3};
  const float c[] = {10, 20};
  const auto tensor = [](const Shape& shape, std::span<const float> v) {
    return Operand{std::make_shared<const Tensor>(Tensor::from<float>(shape, v))};
  };
  GemmAttributes plain;
  auto y = test::run_reference(Gemm(plain), {tensor(Shape{2, 3}, a), tensor(Shape{3, 2}, b)});
  EXPECT_THAT(y[0].values<float>(), ElementsAre(5, 11, 14, 23));
  GemmAttributes scaled{2, 0.5F, true, true, Clamp{30, 45}};
  // A' = [1 3 5; 2 4 6], B' = [1 1; 0 0; 2 3], A' B' = [11 16; 14 20].
  y = test::run_reference(Gemm(scaled),
                          {tensor(Shape{3, 2}, a), tensor(Shape{2, 3}, b), tensor(Shape{2}, c)});
  EXPECT_THAT(y[0].values<float>(), ElementsAre(30, 2 * 16 + 10, 2 * 14 + 5, 45));
  y = test::run_reference(Gemm(scaled),
                          {tensor(Shape{3, 2}, a), tensor(Shape{2, 3}, b), tensor(Shape{2, 1}, c)});
  EXPECT_THAT(y[0].values<float>(), ElementsAre(30, 2 * 16 + 5, 2 * 14 + 10, 45));
}

TEST(Gemm, RandomCasesMatchTheReference) {
  Random random;
  for (int i = 0; i < 60 && !HasFailure(); ++i) {
    const std::int64_t m = random.integer(1, i % 3 == 0 ? 250 : 9);
    const std::int64_t n = random.integer(1, i % 3 == 1 ? 700 : 60);
    const std::int64_t k = random.integer(1, i % 3 == 2 ? 900 : 70);
    GemmAttributes a{
        random.coin() ? 1.0F : -0.7F, random.coin() ? 1.0F : 0.3F, random.coin(), random.coin(), {}};
    if (random.coin()) a.activation = Clamp::relu();
    std::vector<Operand> inputs{{random.tensor(a.transpose_a ? Shape{k, m} : Shape{m, k})},
                                {random.tensor(a.transpose_b ? Shape{n, k} : Shape{k, n}), random.coin()},
                                {}};
    const Shape biases[] = {Shape{n}, Shape{m, n}, Shape{m, 1}, Shape{1, n}, Shape{1}, Shape{}};
    if (random.coin()) inputs[2] = {random.tensor(biases[random.integer(0, 5)]), random.coin()};
    check(Gemm(a), inputs, k);
  }
}

// One row and many, rows 4096 bytes apart, more weights than the cache holds, and the tails of panels.
TEST(Gemm, TilesOfAllShapes) {
  Random random;
  for (const auto& [m, k, n] : {std::array<std::int64_t, 3>{1, 1024, 1000},
                                {1, 3, 1},
                                {33, 1024, 35},
                                {200, 40, 33},
                                {16, 700, 900},
                                {8, 65, 31}}) {
    GemmAttributes a;
    a.transpose_b = random.coin();
    if (random.coin()) a.activation = Clamp::relu();
    check(Gemm(a),
          {{random.tensor(Shape{m, k})},
           {random.tensor(a.transpose_b ? Shape{n, k} : Shape{k, n}), true},
           {random.tensor(random.coin() ? Shape{n} : Shape{1, n}), true}},
          k, {"tile", "gemm"});
    check(MatMul(), {{random.tensor(Shape{2, m, k})}, {random.tensor(Shape{k, n}), true}}, k,
          {"tile", "gemm"});
  }
}

// Blocks of K and panels that are not full, and more rows than a call of the kernel takes.
TEST(Gemm, FewRowsIn16Bits) {
  Random random;
  for (int i = 0; i < 30 && !HasFailure(); ++i) {
    const std::int64_t m = random.integer(1, i % 2 == 0 ? 3 : 16);
    const std::int64_t n = random.integer(1, 100);
    const std::int64_t k = random.integer(1, i % 3 == 0 ? 2000 : 70);
    GemmAttributes a;
    a.transpose_b = random.coin();
    if (random.coin()) a.activation = Clamp{-0.5F, 0.75F};
    std::vector<Operand> inputs{
        {random.tensor(Shape{m, k})}, {random.tensor(a.transpose_b ? Shape{n, k} : Shape{k, n}), true}, {}};
    if (random.coin()) inputs[2] = {random.tensor(Shape{n}), true};
    check(Gemm(a), inputs, k, {"tile", "gemm"}, true);
  }
}

TEST(Gemm, EmptyExtents) {
  Random random;
  for (const auto& [m, k, n] : {std::array<std::int64_t, 3>{0, 3, 4}, {3, 0, 4}, {3, 4, 0}}) {
    check(Gemm(GemmAttributes{}),
          {{random.tensor(Shape{m, k})}, {random.tensor(Shape{k, n}), true}, {random.tensor(Shape{n})}}, k);
  }
}

TEST(Gemm, StaysWithinTheNormOfTheReference) {
  Random random;
  Conformance conformance{{{random.tensor(Shape{3, 2048})}, {random.tensor(Shape{1000, 2048}), true}},
                          {"tile", "gemm"}};
  conformance.expected_fp16 = {"gemv"};
  if (bf16_tiles() == nullptr) conformance.expected_bf16 = {"gemv"};
  conformance.absolute = 1;  // the norm decides
  conformance.norm_relative = 1e-5;
  GemmAttributes a;
  a.transpose_b = true;
  expect_conformance(Gemm(a), conformance);
}

TEST(Gemm, RefusesOperandsThatDoNotFit) {
  const auto infer = [](const GemmAttributes& a, const std::vector<TensorDesc>& descs) {
    std::vector<const TensorDesc*> inputs;
    for (const TensorDesc& d : descs) inputs.push_back(&d);
    return Gemm(a).infer(inputs);
  };
  EXPECT_NO_THROW(infer({}, {{Shape{2, 3}}, {Shape{3, 4}}, {Shape{4}}}));
  EXPECT_THROW(infer({}, {{Shape{2, 3}}}), Error);
  EXPECT_THROW(infer({}, {{Shape{2, 3}}, {Shape{4, 3}}}), Error);
  EXPECT_THROW(infer({}, {{Shape{2, 3, 1}}, {Shape{3, 4}}}), Error);
  EXPECT_THROW(infer({}, {{Shape{2, 3}}, {Shape{3, 4}}, {Shape{3}}}), Error);
  EXPECT_THROW(infer({}, {{Shape{2, 3}}, {Shape{3, 4}}, {Shape{5, 2, 4}}}), Error);
  EXPECT_THROW(infer({}, {{Shape{2, 3}}, {Shape{3, 4}, DType::f64}}), Error);
  EXPECT_THROW(infer({}, {{Shape{2, 3}, DType::i32}, {Shape{3, 4}, DType::i32}}), Error);
  EXPECT_THROW(Gemm(GemmAttributes{INFINITY, 1, false, false, {}}), Error);
}

TEST(MatMul, RandomBatchesMatchTheReference) {
  Random random;
  for (int i = 0; i < 60 && !HasFailure(); ++i) {
    const std::int64_t m = random.integer(1, 30);
    const std::int64_t n = random.integer(1, 130);
    const std::int64_t k = random.integer(1, 250);
    // Batch dimensions that broadcast against each other; some are missing on one side.
    std::vector<std::int64_t> a;
    std::vector<std::int64_t> b;
    for (std::int64_t d = random.integer(0, 3); d > 0; --d) {
      const std::int64_t extent = random.integer(1, 3);
      if (!a.empty() || random.coin()) a.push_back(random.coin() ? extent : 1);
      if (!b.empty() || random.coin()) b.push_back(random.coin() ? extent : 1);
    }
    a.insert(a.end(), {m, k});
    b.insert(b.end(), {k, n});
    check(MatMul(), {{random.tensor(Shape(a))}, {random.tensor(Shape(b)), random.coin()}}, k);
  }
}

TEST(MatMul, VectorsAreRowsAndColumns) {
  Random random;
  const auto vector = random.tensor(Shape{40});
  check(MatMul(), {{vector}, {vector, true}}, 40);
  check(MatMul(), {{vector}, {random.tensor(Shape{2, 40, 3})}}, 40);
  check(MatMul(), {{random.tensor(Shape{2, 5, 40})}, {vector}}, 40);
  const TensorDesc x{Shape{40}};
  const TensorDesc b{Shape{2, 40, 3}};
  const TensorDesc* inputs[] = {&x, &b};
  EXPECT_EQ(MatMul().infer(inputs)[0].shape, (Shape{2, 3}));
  const TensorDesc* dot[] = {&x, &x};
  EXPECT_EQ(MatMul().infer(dot)[0].shape, Shape{});
}

TEST(MatMul, EmptyExtents) {
  Random random;
  for (const auto& [batch, m, k, n] :
       {std::array<std::int64_t, 4>{0, 2, 3, 4}, {2, 0, 3, 4}, {2, 3, 0, 4}, {2, 3, 4, 0}}) {
    check(MatMul(), {{random.tensor(Shape{batch, m, k})}, {random.tensor(Shape{batch, k, n})}}, k);
  }
}

TEST(MatMul, RefusesOperandsThatDoNotFit) {
  const auto infer = [](const TensorDesc& a, const TensorDesc& b) {
    const TensorDesc* inputs[] = {&a, &b};
    return MatMul().infer(inputs);
  };
  EXPECT_THROW(infer({Shape{}}, {Shape{3}}), Error);
  EXPECT_THROW(infer({Shape{2, 3}}, {Shape{2, 3}}), Error);
  EXPECT_THROW(infer({Shape{2, 2, 3}}, {Shape{3, 3, 2}}), Error);
  EXPECT_THROW(infer({Shape{2, 3}}, {Shape{3, 2}, DType::f64}), Error);
  const std::int64_t big = std::int64_t{1} << 40;
  EXPECT_THROW(infer({Shape{big, 1}}, {Shape{1, big}}), Error);
}

}  // namespace
}  // namespace pipit::internal
