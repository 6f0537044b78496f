// Operators that become several layers, or layers with positions: what they compute, that constants of them are folded,
// and what is refused.
#include <gmock/gmock.h>

#include <map>

#include "tests/models/onnx/onnx_run.h"

namespace pipit::internal {
namespace {

using test::Attribute;
using test::Dims;
using test::iota;
using test::kOne;
using test::one_node;
using test::OnnxWriter;
using test::run;
using test::tensor;
using testing::DoubleNear;
using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;

// An einsum of constants and of inputs must give the same; the constants leave no node.
std::vector<double> einsum(const std::string& equation, const std::vector<Dims>& shapes) {
  OnnxWriter inputs(13);
  OnnxWriter constants(13);
  test::Names names;
  std::vector<test::TensorPtr> values;
  for (const Dims& dims : shapes) {
    const std::string name(1, static_cast<char>('p' + names.size()));
    std::vector<float> numbers;
    for (std::int64_t i = 0; i < Shape(dims).elements(); ++i)
      numbers.push_back(static_cast<float>(i % 7 - 2));
    inputs.input(name, dims);
    constants.constant<float>(name, dims, numbers);
    values.push_back(tensor(Shape(dims), numbers));
    names.push_back(name);
  }
  inputs.node("Einsum", names, {"y"}, {{"equation", equation}}).output("y");
  constants.node("Einsum", names, {"y"}, {{"equation", equation}}).output("y");
  const test::Result result = run(inputs, values);
  EXPECT_EQ(constants.read().graph.nodes().size(), 0U);
  EXPECT_EQ(run(constants, {}).values, result.values);
  return result.values;
}

// Sums by index over labels a to e, of extents 2 to 6.
std::vector<double> summed(const std::vector<std::string>& operands, const std::string& output) {
  std::map<char, std::int64_t> index;
  for (const std::string& labels : operands) {
    for (const char label : labels) index[label] = 0;
  }
  const auto extent = [](char label) { return static_cast<std::int64_t>(label - 'a') + 2; };
  const auto place = [&](const std::string& labels) {
    std::int64_t at = 0;
    for (const char label : labels) at = at * extent(label) + index[label];
    return at;
  };
  std::int64_t count = 1;
  for (const char label : output) count *= extent(label);
  std::vector<double> sums(static_cast<std::size_t>(count));
  for (bool more = true; more;) {
    double product = 1;
    for (const std::string& labels : operands) product *= static_cast<double>(place(labels) % 7 - 2);
    sums[static_cast<std::size_t>(place(output))] += product;
    more = false;
    for (auto& [label, i] : index) {
      if (++i < extent(label)) {
        more = true;
        break;
      }
      i = 0;
    }
  }
  return sums;
}

TEST(OnnxEinsum, SumsOfProducts) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {{{"ab", "bc"}, "ac"},
                                                                               {{"ab", "bc"}, "ca"},
                                                                               {{"abc", "abd"}, "acd"},
                                                                               {{"abcd", "ec"}, "abed"},
                                                                               {{"ab", "ab"}, "ab"},
                                                                               {{"ab", "ab"}, ""},
                                                                               {{"a", "b"}, "ab"},
                                                                               {{"ab"}, "ba"},
                                                                               {{"abc"}, "b"},
                                                                               {{"aab"}, "ab"},
                                                                               {{"aa"}, ""},
                                                                               {{"aa"}, "a"},
                                                                               {{"abab"}, "ba"},
                                                                               {{"abcd", "abed"}, "abce"},
                                                                               {{"ab", "cb", "db"}, "acd"},
                                                                               {{"ab", "bc", "cd"}, "da"},
                                                                               {{"abc", "d", "ae"}, "e"},
                                                                               {{"aab", "bcc"}, "ca"}};
  for (const auto& [operands, output] : cases) {
    std::string equation;
    std::vector<Dims> shapes;
    for (const std::string& labels : operands) {
      equation += (equation.empty() ? "" : ",") + labels;
      Dims dims;
      for (const char label : labels) dims.push_back(label - 'a' + 2);
      shapes.push_back(dims);
    }
    equation += " -> " + output;
    EXPECT_THAT(einsum(equation, shapes), ElementsAreArray(summed(operands, output))) << equation;
  }
}

TEST(OnnxEinsum, ImpliedOutputsAndEllipses) {
  EXPECT_EQ(einsum("ba", {{3, 2}}), summed({"ba"}, "ab"));
  EXPECT_EQ(einsum("ab,bc", {{2, 3}, {3, 4}}), summed({"ab", "bc"}, "ac"));
  EXPECT_EQ(einsum("...ab,...bc->...ac", {{5, 2, 3}, {5, 3, 4}}), summed({"dab", "dbc"}, "dac"));
  EXPECT_EQ(einsum("...a->a...", {{3, 2}}), summed({"ba"}, "ab"));
  // The ellipsis of one operand is shorter, that of another has an extent of 1.
  EXPECT_EQ(einsum("...ab,bc->...ac", {{5, 2, 3}, {3, 4}}), summed({"dab", "bc"}, "dac"));
  EXPECT_EQ(einsum("...ab,...bc->...ac", {{1, 2, 3}, {5, 3, 4}}), summed({"ab", "dbc"}, "dac"));
  EXPECT_EQ(einsum("...,...->...", {{3, 1}, {1, 4}}).size(), 12U);
}

TEST(OnnxEinsum, WhatIsRefused) {
  const auto failure = [](const std::string& equation) {
    OnnxWriter model = one_node(13, "Einsum", {"x", "w"}, {{"equation", equation}});
    return model.input("x", {2, 3}).input("w", {3, 4}).failure<Error>();
  };
  EXPECT_THAT(failure("ab,bc->ad"), HasSubstr("no operand has 'd'"));
  EXPECT_THAT(failure("ab,bc->aa"), HasSubstr("the output has 'a' twice"));
  EXPECT_THAT(failure("ab,ac"), HasSubstr("'a' is 3 and 2"));
  EXPECT_THAT(failure("ab"), HasSubstr("1 operands, the node 2 inputs"));
  EXPECT_THAT(failure("abc,bc"), HasSubstr("operand 0 is 2x3"));
  EXPECT_THAT(failure("a1,bc"), HasSubstr("unexpected '1'"));
  EXPECT_THAT(failure("ab,bc->a->c"), HasSubstr("unexpected"));
  EXPECT_THAT(failure("...a...,bc"), HasSubstr("unexpected '.'"));
}

TEST(OnnxIndexing, OneHotAndTrilu) {
  OnnxWriter hot = one_node(13, "OneHot", {"x", "depth", "values"}, {{"axis", std::int64_t{0}}});
  hot.input("x", {4}, 7).constant<std::int64_t>("depth", {}, {3}).constant<float>("values", {2}, {-1, 5});
  const auto indices = tensor<std::int64_t>({4}, {0, -1, 3, 1});
  EXPECT_EQ(run(hot, {indices}).shape, (Shape{3, 4}));
  EXPECT_THAT(run(hot, {indices}).values, ElementsAre(5, -1, -1, -1, -1, -1, -1, 5, -1, 5, -1, -1));
  const auto triangle = [](bool upper, std::int64_t k) {
    OnnxWriter model = one_node(14, "Trilu", {"x", "k"}, {{"upper", std::int64_t{upper}}});
    model.input("x", {2, 3}).constant<std::int64_t>("k", {}, {k});
    return run(model, {iota({2, 3})}).values;
  };
  EXPECT_THAT(triangle(true, 0), ElementsAre(0, 1, 2, 0, 4, 5));
  EXPECT_THAT(triangle(false, -1), ElementsAre(0, 0, 0, 3, 0, 0));
  EXPECT_THAT(triangle(true, INT64_MAX), ElementsAre(0, 0, 0, 0, 0, 0));
}

TEST(OnnxIndexing, HardmaxAndReverseSequence) {
  const auto x = tensor<float>({2, 3}, {1, 3, 3, 9, 2, 1});
  OnnxWriter hard = one_node(13, "Hardmax", {"x"}).input("x", {2, 3});
  EXPECT_THAT(run(hard, {x}).values, ElementsAre(0, 1, 0, 1, 0, 0));
  OnnxWriter flat = one_node(11, "Hardmax", {"x"}, {{"axis", std::int64_t{0}}}).input("x", {2, 3});
  EXPECT_THAT(run(flat, {x}).values, ElementsAre(0, 0, 0, 1, 0, 0));
  OnnxWriter reverse =
      one_node(10, "ReverseSequence", {"x", "n"}, {{"batch_axis", std::int64_t{0}}, {"time_axis", kOne}});
  reverse.input("x", {2, 3}).input("n", {2}, 7);
  EXPECT_THAT(run(reverse, {iota({2, 3}), tensor<std::int64_t>({2}, {2, 3})}).values,
              ElementsAre(1, 0, 2, 5, 4, 3));
  EXPECT_THROW(run(reverse, {iota({2, 3}), tensor<std::int64_t>({2}, {2, 4})}), Error);
}

TEST(OnnxIndexing, Col2ImAndMaxUnpool) {
  OnnxWriter image = one_node(18, "Col2Im", {"x", "image", "block"}, {{"pads", Dims{0, 1, 0, 0}}});
  image.input("x", {1, 2, 4}).integers("image", {2, 2}).integers("block", {1, 2});
  // Rows of 2 after a padding of 1: blocks at columns -1 and 0.
  EXPECT_THAT(run(image, {iota({1, 2, 4})}).values, ElementsAre(4 + 1, 5, 6 + 3, 7));
  OnnxWriter pool = one_node(11, "MaxUnpool", {"x", "i"}, {{"kernel_shape", Dims{2}}, {"strides", Dims{2}}});
  pool.input("x", {1, 1, 2}).input("i", {1, 1, 2}, 7);
  EXPECT_THAT(run(pool, {tensor<float>({1, 1, 2}, {5, 6}), tensor<std::int64_t>({1, 1, 2}, {1, 2})}).values,
              ElementsAre(0, 5, 6, 0));
  EXPECT_THROW(run(pool, {tensor<float>({1, 1, 2}, {5, 6}), tensor<std::int64_t>({1, 1, 2}, {1, 4})}), Error);
}

// Known at load: no node is left.
TEST(OnnxIndexing, ConstantsAreFolded) {
  const auto left = [](OnnxWriter model) { return model.read().graph.nodes().size(); };
  const auto list = [](const std::string& op, const test::Names& more,
                       const std::vector<Attribute>& attributes = {}) {
    test::Names inputs{"x"};
    inputs.insert(inputs.end(), more.begin(), more.end());
    OnnxWriter model = one_node(18, op, inputs, attributes);
    model.constant<float>("x", {4}, {1, 0, 3, 2}).integers("zero", {0}).integers("two", {2});
    return model.constant<std::int64_t>("at", {1, 1}, {2}).constant<float>("up", {1}, {7});
  };
  EXPECT_EQ(left(list("CumSum", {"zero"})), 0U);
  EXPECT_EQ(left(list("TopK", {"two"})), 0U);
  EXPECT_EQ(left(list("GatherElements", {"two"})), 0U);
  EXPECT_EQ(left(list("GatherND", {"at"})), 0U);
  EXPECT_EQ(left(list("ScatterND", {"at", "up"})), 0U);
  EXPECT_EQ(left(list("ScatterElements", {"two", "up"})), 0U);
  EXPECT_EQ(left(list("Hardmax", {})), 0U);
  EXPECT_EQ(left(list("Atan", {})), 0U);
  EXPECT_EQ(left(list("IsNaN", {})), 0U);
  EXPECT_EQ(left(list("LpNormalization", {})), 0U);
  EXPECT_THAT(run(list("CumSum", {"zero"})).values, ElementsAre(1, 1, 4, 6));
  EXPECT_THAT(run(list("NonZero", {})).values, ElementsAre(0, 2, 3));
}

TEST(OnnxIndexing, WhatIsRefused) {
  OnnxWriter open = one_node(13, "NonZero", {"x"}).input("x", {4});
  EXPECT_THAT(open.failure<UnsupportedError>(),
              HasSubstr("depends on the values of 'x', which are computed at run time"));
  const auto top = [](std::int64_t k, std::int64_t axis) {
    OnnxWriter model =
        one_node(13, "TopK", {"x", "k"}, {{"axis", axis}}).input("x", {2, 3}).integers("k", {k});
    return model.failure<Error>();
  };
  EXPECT_THAT(top(4, 1), HasSubstr("k is 4 for dimension 1 of 2x3"));
  EXPECT_THAT(top(-1, 1), HasSubstr("k is -1"));
  EXPECT_NE(top(1, 2), "");
  OnnxWriter sum = one_node(13, "CumSum", {"x", "a"}).input("x", {2}).integers("a", {1});
  EXPECT_NE(sum.failure<Error>(), "");
  OnnxWriter late = one_node(13, "CumSum", {"x", "a"}).input("x", {2}).input("a", {}, 7);
  EXPECT_THAT(late.failure<UnsupportedError>(), HasSubstr("computed at run time"));
  OnnxWriter gather =
      one_node(13, "GatherElements", {"x", "i"}).constant<float>("x", {2}, {1, 2}).integers("i", {2});
  EXPECT_THAT(gather.failure<Error>(), HasSubstr("index 2 is outside [-2, 2)"));
  OnnxWriter large = one_node(13, "OneHot", {"x", "depth", "values"}).input("x", {4}, 7);
  large.constant<float>("depth", {}, {1e30F}).constant<float>("values", {2}, {0, 1});
  EXPECT_THAT(large.failure<Error>(), HasSubstr("depth is 1.0000000150474662e+30"));
}

test::TensorPtr mask_of(const Shape& shape, std::initializer_list<bool> values) {
  Tensor mask(TensorDesc{shape, DType::boolean});
  std::copy(values.begin(), values.end(), mask.values<bool>().begin());
  return std::make_shared<const Tensor>(std::move(mask));
}

// Two keys that are equally like the query, and one that a mask hides.
TEST(OnnxAttention, MasksAndHeads) {
  OnnxWriter model = one_node(23, "Attention", {"q", "k", "v", "m"});
  model.input("q", {1, 2, 1, 2}).input("k", {1, 1, 3, 2}).input("v", {1, 1, 3, 1}).input("m", {1, 3}, 9);
  const auto query = tensor<float>({1, 2, 1, 2}, {1, 0, 0, 1});
  const auto key = tensor<float>({1, 1, 3, 2}, {1, 1, 1, 1, 9, 9});
  const auto value = tensor<float>({1, 1, 3, 1}, {2, 4, 100});
  const auto masked = run(model, {query, key, value, mask_of({1, 3}, {true, true, false})});
  EXPECT_EQ(masked.shape, (Shape{1, 2, 1, 1}));
  EXPECT_THAT(masked.values, ElementsAre(DoubleNear(3, 1e-6), DoubleNear(3, 1e-6)));
  const auto hidden = run(model, {query, key, value, mask_of({1, 3}, {false, false, false})});
  EXPECT_THAT(hidden.values, ElementsAre(0, 0));
  OnnxWriter causal = one_node(23, "Attention", {"q", "k", "v"},
                               {{"is_causal", kOne}, {"q_num_heads", kOne}, {"kv_num_heads", kOne}});
  causal.input("q", {1, 2, 1}).input("k", {1, 2, 1}).input("v", {1, 2, 1});
  const auto ones = tensor<float>({1, 2, 1}, {0, 0});
  EXPECT_THAT(run(causal, {ones, ones, tensor<float>({1, 2, 1}, {2, 4})}).values,
              ElementsAre(DoubleNear(2, 1e-6), DoubleNear(3, 1e-6)));
  OnnxWriter odd = one_node(23, "Attention", {"q", "k", "v"},
                            {{"q_num_heads", std::int64_t{2}}, {"kv_num_heads", std::int64_t{2}}});
  odd.input("q", {1, 2, 3}).input("k", {1, 2, 3}).input("v", {1, 2, 3});
  EXPECT_THAT(odd.failure<Error>(), HasSubstr("2 heads of 1x2x3"));
}

}  // namespace
}  // namespace pipit::internal
