#include "layers/evaluate.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <thread>

#include "layers/ops/binary.h"
#include "layers/ops/reduce.h"
#include "layers/ops/reshaping.h"
#include "layers/ops/unary.h"
#include "layers/reference/reference.h"
#include "layers/registry.h"
#include "tests/layers/values.h"

namespace pipit::internal {
namespace {

using test::make;
using test::results;
using ::testing::ElementsAre;

TEST(Evaluate, ReadsAnyLayoutAndReturnsRowMajor) {
  const auto x = test::iota(Shape{1, 2, 2, 2});
  const auto last = std::make_shared<const Tensor>(to_layout(x->view(), Layout::channels_last));
  const std::vector<Tensor> y = evaluate(Unary({UnaryKind::neg}), std::vector<test::TensorPtr>{last});
  EXPECT_EQ(y.at(0).desc().layout, Layout::row_major);
  EXPECT_THAT(y.at(0).values<float>(), ElementsAre(0, -1, -2, -3, -4, -5, -6, -7));
}

// The shape arithmetic of an exported flatten: shape[0], -1.
TEST(Evaluate, FoldsShapeArithmetic) {
  const auto shape = make<std::int64_t>({8, 512, 7, 7});
  const auto first = make<std::int64_t>(results<std::int64_t>(Gather({0}), {shape, make<std::int64_t>({0})}));
  const auto all = make<std::int64_t>(results<std::int64_t>(Reduce({ReduceKind::prod, {}, true}), {shape}));
  EXPECT_THAT(results<std::int64_t>(Binary({BinaryKind::div, {}}), {all, first}), ElementsAre(25088));
}

TEST(Evaluate, RefusesWhatInferenceRefuses) {
  EXPECT_THROW(evaluate(Unary({}), std::vector<test::TensorPtr>{nullptr}), Error);
  EXPECT_THROW(evaluate(Unary({}), std::vector<test::TensorPtr>{}), Error);
}

TEST(Evaluate, RefusesHugeResults) {
  const Expand expand({Shape{std::int64_t{1} << 40}});
  try {
    evaluate(expand, std::vector<test::TensorPtr>{make<float>({1})});
    FAIL() << "evaluated";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), ::testing::HasSubstr("at most 2147483648"));
  }
}

TEST(Evaluate, IsSafeInSeveralThreads) {
  const auto x = test::iota(Shape{64, 64});
  const std::vector<float> expected = results<float>(Transpose({{1, 0}}), {x});
  std::vector<std::vector<float>> got(4);
  std::vector<std::thread> threads;
  for (auto& slot : got) threads.emplace_back([&] { slot = results<float>(Transpose({{1, 0}}), {x}); });
  for (std::thread& t : threads) t.join();
  for (const auto& slot : got) EXPECT_EQ(slot, expected);
}

TEST(DefaultRegistry, EndsEveryListWithTheReference) {
  for (const char* type :
       {"Conv",         "Pool",    "Gemm",   "MatMul", "BatchNorm", "LayerNorm", "InstanceNorm",
        "LRN",          "Softmax", "Resize", "Unary",  "Binary",    "Where",     "Reduce",
        "ArgMax",       "Concat",  "Split",  "Slice",  "Pad",       "Reshape",   "Transpose",
        "DepthToSpace", "Expand",  "Tile",   "Gather", "ToLayout",  "Cast",      "ChannelShuffle"}) {
    const auto& candidates = default_registry().candidates(type, DeviceKind::cpu);
    ASSERT_FALSE(candidates.empty()) << type;
    // After the reference only the adapters to 16-bit storage, which refuse every other precision.
    const auto last = std::find_if(candidates.rbegin(), candidates.rend(),
                                   [](const Candidate& c) { return !c.name.ends_with(", 16-bit storage"); });
    ASSERT_NE(last, candidates.rend()) << type;
    EXPECT_EQ(last->name, kReference) << type;
  }
}

TEST(DefaultRegistry, RefusesReducedPrecisionWithAReason) {
  const Unary layer({UnaryKind::relu});
  const TensorDesc desc{Shape{4}};
  const TensorDesc* inputs[] = {&desc};
  for (const Precision precision : {Precision::fp16, Precision::bf16, Precision::int8}) {
    const NodeSpec spec{layer, inputs, {&desc, 1}, {}, precision};
    for (const Candidate& c : default_registry().candidates("Unary", DeviceKind::cpu)) {
      Refusal expected = "does not run in " + std::string(precision_name(precision));
      if (c.name.ends_with(", 16-bit storage")) {
        expected = stores_16_bits(precision) ? Refusal() : Refusal("for fp16 and bf16 only");
        if (!expected && c.name.starts_with("typed"))
          expected = "floating point";  // that one takes the other types
      }
      EXPECT_EQ(c.refuse(spec), expected) << c.name;
    }
  }
}

}  // namespace
}  // namespace pipit::internal
