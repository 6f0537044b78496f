// What follows the integer sums of models with scales of run time, and the same in floating point.
#include <gtest/gtest.h>

#include "layers/ops/cast.h"
#include "layers/ops/dynamic_int8.h"
#include "layers/ops/reshaping.h"
#include "layers/passes/passes.h"
#include "tests/support/test_graph.h"

namespace pipit::internal {
namespace {

using test::count_type;
using test::expect_same_outputs;
using test::TestGraph;

struct SumsGraph : TestGraph {
  std::vector<ValueId> quantized;

  explicit SumsGraph(const Shape& x) {
    DynamicQuantizeAttributes affine;
    affine.affine = true;
    quantized = graph.add("quantize", std::make_shared<DynamicQuantize>(affine), {input(x)});
  }
  Tensor integers(const Shape& shape, DType type) {
    Tensor tensor(TensorDesc{shape, type});
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(tensor.desc().bytes()); ++i)
      tensor.view().data[i] = static_cast<std::byte>(random());
    return tensor;
  }
  // Sums of `outputs` outputs, in i32.
  ValueId sums(ValueId x, const Shape& weights, DType type, std::vector<int> zero_points) {
    DynamicQConvAttributes attributes{{}, {1.0F}, std::move(zero_points)};
    for (std::size_t d = 0; d < 2; ++d) {
      attributes.conv.window.kernel[d] = weights[static_cast<int>(d) + 2];
      attributes.conv.window.pad_begin[d] = weights[static_cast<int>(d) + 2] / 2;
    }
    const ValueId conv = add("conv", DynamicQConv(attributes),
                             {x, graph.add_constant("w", integers(weights, type)), kNoValue, kNoValue,
                              graph.add_constant("one", Tensor::scalar(1.0F)), quantized[2]});
    return add("sums", Cast({DType::i32}), {conv});
  }
  ValueId real(ValueId x) { return add("real", Cast({DType::f32}), {x}); }
};

// As ONNX Runtime's older quantization writes a convolution: the bias in integers.
TEST(FuseDynamicScales, OfAConvolution) {
  SumsGraph b(Shape{2, 5, 7, 6});
  const ValueId sums = b.sums(b.quantized[0], Shape{9, 5, 3, 3}, DType::u8, {117});
  std::vector<std::int32_t> bias(9, 500);
  bias[3] = -900;
  const ValueId biased = b.binary(
      "biased", BinaryKind::add, sums,
      b.graph.add_constant(
          "bias", Tensor::from<std::int32_t>(Shape{1, 9, 1, 1}, std::span<const std::int32_t>(bias))));
  const ValueId scale = b.binary("scale", BinaryKind::mul, b.quantized[1], b.constant(Shape{}, 0.01F, 0.02F));
  const Graph before = b.build({b.binary("y", BinaryKind::mul, b.real(biased), scale)});
  const Rewritten after = fuse_dynamic_scales(before);
  EXPECT_EQ(after.changes, 1);
  EXPECT_EQ(after.graph.nodes().size(), 3U) << "DynamicQuantize, Reshape of the bias, DynamicQConv";
  expect_same_outputs(before, after.graph);
  const Rewritten written = write_out_dynamic(after.graph);
  EXPECT_EQ(written.changes, 2);
  EXPECT_EQ(count_type(written.graph, "DynamicQConv") + count_type(written.graph, "DynamicQuantize"), 0);
  expect_same_outputs(before, written.graph);
}

// As it writes a matrix product: a scale for each output, and the bias in f32.
TEST(FuseDynamicScales, OfAMatrixProduct) {
  SumsGraph b(Shape{2, 3, 20});
  const ValueId rows = b.add("rows", Reshape({Shape{6, 20, 1, 1}}), {b.quantized[0]});
  const ValueId sums = b.add("shaped", Reshape({Shape{2, 3, 8}}),
                             {b.sums(rows, Shape{8, 20, 1, 1}, DType::i8, {0, 1, 2, 3, -4, -50, 60, -128})});
  const ValueId scale =
      b.binary("scale", BinaryKind::mul, b.quantized[1], b.constant(Shape{8}, 0.01F, 0.02F));
  const ValueId scaled = b.binary("scaled", BinaryKind::mul, b.real(sums), scale);
  const Graph before = b.build({b.binary("y", BinaryKind::add, scaled, b.constant(Shape{8}))});
  const Rewritten after = fuse_dynamic_scales(before);
  EXPECT_EQ(after.changes, 1);
  EXPECT_EQ(after.graph.nodes().size(), 4U) << "and two Reshapes";
  expect_same_outputs(before, after.graph);
  expect_same_outputs(before, write_out_dynamic(after.graph).graph);
}

// Sums that something else reads stay, and factors that are several numbers at run time.
TEST(FuseDynamicScales, LeavesOthers) {
  SumsGraph read(Shape{1, 5, 7, 6});
  const ValueId sums = read.sums(read.quantized[0], Shape{4, 5, 1, 1}, DType::i8, {});
  const ValueId real = read.real(sums);
  EXPECT_EQ(
      fuse_dynamic_scales(read.build({real, read.binary("y", BinaryKind::mul, real, read.quantized[1])}))
          .changes,
      0);
  SumsGraph varying(Shape{1, 4, 7, 6});
  const ValueId image = varying.real(varying.sums(varying.quantized[0], Shape{4, 4, 1, 1}, DType::i8, {}));
  const ValueId factors = varying.add("f", Cast({DType::f32}), {varying.quantized[0]});
  EXPECT_EQ(
      fuse_dynamic_scales(varying.build({varying.binary("y", BinaryKind::mul, image, factors)})).changes, 0);
}

}  // namespace
}  // namespace pipit::internal
