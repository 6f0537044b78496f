// compile(): every precision from one loaded graph, and what it refuses.
#include "compile/compile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "engine/platform/device.h"
#include "layers/ops/qconv.h"
#include "tests/quant/small_resnet.h"
#include "tests/support/run_graph.h"

namespace pipit::internal {
namespace {

using test::calibrated;
using test::small_resnet;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

CompileOptions in(Precision precision) {
  CompileOptions options;
  options.planning.precision = precision;
  options.planning.threads = 1;
  return options;
}

std::vector<float> scores(const std::shared_ptr<const ExecutionPlan>& plan, const Tensor& image) {
  Session session(plan);
  const ConstTensorView view = image.view();
  const Tensor y = to_layout(session.run({&view, 1})[0], Layout::row_major);
  return {y.values<float>().begin(), y.values<float>().end()};
}

class Compile : public ::testing::Test {
 protected:
  unsigned seed = test::test_seed();
  ::testing::ScopedTrace trace{__FILE__, __LINE__, "PIPIT_TEST_SEED=" + std::to_string(seed)};
  std::mt19937 random{seed};
  Graph graph = small_resnet(random);
  Tensor image = test::random_tensor(Shape{1, 3, 12, 12}, random);
};

TEST_F(Compile, EveryPrecisionAnswersLikeFp32AndIsWhatItSays) {
  const std::vector<float> real = scores(compile(graph, in(Precision::fp32)).plans[0], image);
  const struct {
    Precision precision;
    DType stored;
    double most;
  } cases[] = {{Precision::fp16, DType::f16, 0.01},
               {Precision::bf16, DType::bf16, 0.05},
               {Precision::int8, DType::u8, 0.08},
               {Precision::int8_dynamic, DType::u8, 0.08},
               {Precision::w8, DType::i8, 0.02}};
  for (const auto& c : cases) {
    SCOPED_TRACE(precision_name(c.precision));
    CompileOptions options = in(c.precision);
    if (c.precision == Precision::int8) options.scales = calibrated(graph, random, 8);
    const Compiled compiled = compile(graph, options);
    ASSERT_EQ(compiled.plans.size(), 1U);
    EXPECT_EQ(compiled.plans[0]->options().precision, c.precision);
    std::set<DType> types;
    for (const Value& value : compiled.plans[0]->graph().values()) types.insert(value.desc.dtype);
    EXPECT_THAT(types, Contains(c.stored));
    const std::vector<float> got = scores(compiled.plans[0], image);
    EXPECT_LT(test::relative_error(got, real), c.most);
    EXPECT_NE(got, real);
  }
}

TEST_F(Compile, AFusedGraphGivesTheSameBits) {
  CompileOptions options = in(Precision::int8);
  options.scales = calibrated(graph, random, 8);
  EXPECT_THAT(scores(compile(fuse(graph), options).plans[0], image),
              ElementsAreArray(scores(compile(graph, options).plans[0], image)));
}

TEST_F(Compile, KeepsLayersAndSaysSo) {
  CompileOptions options = in(Precision::int8);
  options.scales = calibrated(graph, random, 8);
  EXPECT_THAT(compile(graph, options).notes, IsEmpty());
  options.keep = {{"first", "fp32"}, {"block2", "fp16"}};
  const Compiled compiled = compile(graph, options);
  std::vector<std::string> integers;
  for (const Node& node : compiled.plans[0]->graph().nodes()) {
    if (node.layer->type() == QConv::kType) integers.push_back(node.name);
  }
  EXPECT_THAT(integers, testing::ElementsAre("block1", "fc"));
  EXPECT_THAT(compiled.notes,
              testing::ElementsAre(HasSubstr("2 convolutions or fully connected layers are not in INT8")));
  options.keep = {{"nowhere", "fp32"}};
  EXPECT_THAT([&] { compile(graph, options); }, ThrowsMessage<Error>(HasSubstr("nowhere")));
}

TEST_F(Compile, RefusesAPrecisionThatNothingWouldComputeIn) {
  EXPECT_THAT([&] { compile(graph, in(Precision::int8)); },
              ThrowsMessage<UnsupportedError>(HasSubstr("needs a quantization plan")));
  CompileOptions options = in(Precision::int8);
  options.scales = calibrated(graph, random, 2);
  for (const char* node : {"stem", "block1", "block2", "fc"}) options.keep.push_back({node, "fp32"});
  const Compiled kept = compile(graph, options);  // what the user asked for, and it says what it is
  EXPECT_EQ(kept.plans[0]->options().precision, Precision::fp32);
  EXPECT_THAT(kept.notes,
              testing::ElementsAre(HasSubstr("4 convolutions or fully connected layers are not in INT8")));
  EXPECT_EQ(scores(kept.plans[0], image), scores(compile(graph, in(Precision::fp32)).plans[0], image));

  GraphBuilder builder;
  const ValueId x = builder.add_input("x", TensorDesc{Shape{1, 4, 5, 5}});
  PoolAttributes pool;
  pool.window.kernel = {2, 2, 1};
  builder.mark_output(builder.add1("pool", std::make_shared<Pool>(pool), {x}, "y"));
  const Graph pools = builder.build();
  for (const Precision precision : {Precision::int8_dynamic, Precision::w8, Precision::w4}) {
    EXPECT_THAT(
        [&] { compile(pools, in(precision)); },
        ThrowsMessage<UnsupportedError>(AllOf(HasSubstr("nothing would compute in"), HasSubstr("use fp32"))));
  }
}

TEST_F(Compile, KeepsLayersInBf16NextToIntegers) {
  const std::vector<float> real = scores(compile(graph, in(Precision::fp32)).plans[0], image);
  CompileOptions options = in(Precision::int8);
  options.scales = calibrated(graph, random, 8);
  options.scales->keep = {{"block1", "bf16"}};
  const auto types_of = [&](const ExecutionPlan& plan) {
    std::map<std::string, DType> types;
    for (const Node& node : plan.graph().nodes())
      types[node.name] = plan.graph().value(node.outputs[0]).desc.dtype;
    return types;
  };
  const auto plan = compile(graph, options).plans[0];
  EXPECT_EQ(types_of(*plan).at("block1"), DType::bf16);
  EXPECT_EQ(types_of(*plan).at("stem"), DType::u8);
  EXPECT_LT(test::relative_error(scores(plan, image), real), 0.08);
  // fp32 beside it has the region that both are in.
  options.keep = {{"block2", "fp32"}, {"block1", "bf16"}};
  EXPECT_EQ(types_of(*compile(graph, options).plans[0]).at("block1"), DType::f32);
  // With nothing in INT8 it is the model in bf16.
  options.keep.clear();
  for (const char* node : {"stem", "block1", "block2", "fc"}) options.keep.push_back({node, "bf16"});
  EXPECT_EQ(scores(compile(graph, options).plans[0], image),
            scores(compile(graph, in(Precision::bf16)).plans[0], image));
}

TEST_F(Compile, RefusesToQuantizeTwice) {
  const Graph quantized = quantize_graph(graph, calibrated(graph, random, 4)).graph;
  EXPECT_EQ(scores(compile(quantized, in(Precision::fp32)).plans[0], image).size(), 10U);
  CompileOptions options = in(Precision::int8);
  options.scales = calibrated(graph, random, 2);
  EXPECT_THAT([&] { compile(quantized, options); },
              ThrowsMessage<UnsupportedError>(HasSubstr("quantized already")));
  EXPECT_THAT([&] { compile(quantized, in(Precision::fp16)); },
              ThrowsMessage<UnsupportedError>(HasSubstr("leave precision fp16 out")));
}

TEST_F(Compile, RefusesOptionsOfAnotherPrecision) {
  const auto refused = [&](auto&& change, const char* text) {
    CompileOptions options = in(Precision::fp32);
    change(options);
    EXPECT_THAT([&] { compile(graph, options); }, ThrowsMessage<Error>(HasSubstr(text)));
  };
  refused([&](CompileOptions& o) { o.scales = QuantizationPlan{}; },
          "a quantization plan is for precision int8");
  refused([&](CompileOptions& o) { o.keep = {{"stem", "fp32"}}; }, "layers to keep are for precision int8");
  refused([&](CompileOptions& o) { o.group_size = 32; }, "a group size is for precision w4, not fp32");
  refused([&](CompileOptions& o) { o.per_sample_scales = false; }, "for precision int8-dynamic");
  refused([&](CompileOptions& o) { o.gpus = {0}; }, "the device is the CPU");
  if (!cuda_status().problem.empty()) {
    CompileOptions options = in(Precision::fp32);
    options.planning.device = DeviceKind::cuda;
    EXPECT_THROW(compile(graph, options), Error);
  }
}

// What a first plan has timed a later process finds in the file.
TEST_F(Compile, KeepsTheTimesOfKernels) {
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / ("pipit-compile-" + std::to_string(seed) + ".json");
  std::filesystem::remove(file);
  const auto choices = [&] {
    CompileOptions options = in(Precision::fp32);
    options.tuning = std::make_shared<KernelTuning>(true, file);
    const Compiled compiled = compile(graph, options);
    EXPECT_THAT(compiled.notes, IsEmpty());
    std::map<ChosenBy, int> count;
    for (const Step& step : compiled.plans[0]->steps()) ++count[step.choice.by];
    return count;
  };
  const std::map<ChosenBy, int> first = choices();
  EXPECT_GT(first.at(ChosenBy::measurement), 0);
  EXPECT_FALSE(first.contains(ChosenBy::cache));
  const std::map<ChosenBy, int> second = choices();
  EXPECT_EQ(second.at(ChosenBy::cache), first.at(ChosenBy::measurement));
  std::ofstream(file) << "no cache";
  EXPECT_THAT([&] { choices(); }, ThrowsMessage<Error>(HasSubstr(file.filename().string())));
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace pipit::internal
