// What kernels cannot compute is an error of the run, as on the CPU.
#include <gmock/gmock.h>

#include <span>
#include <string>
#include <vector>

#include "compile/compile.h"
#include "engine/runtime/session.h"
#include "layers/ops/binary.h"
#include "layers/ops/indexing.h"
#include "layers/ops/recurrent.h"
#include "layers/ops/reshaping.h"
#include "layers/registry.h"
#include "tests/cuda/conformance.h"
#include "tests/support/run_graph.h"

namespace pipit::internal::test {
namespace {

using ::testing::HasSubstr;

Session gpu_session(const Graph& graph) {
  CompileOptions options;
  options.planning.device = DeviceKind::cuda;
  options.planning.threads = 1;
  return Session(compile(graph, options).plans[0]);
}

// x [5, 2] and indices [3], both of the run.
Graph gather_graph() {
  GraphBuilder builder;
  const ValueId x = builder.add_input("x", TensorDesc{Shape{5, 2}});
  const ValueId indices = builder.add_input("indices", TensorDesc{Shape{3}, DType::i64});
  builder.mark_output(builder.add1("rows", std::make_shared<Gather>(GatherAttributes{0}), {x, indices}));
  return builder.build();
}

std::string message_of(Session& session, std::span<const ConstTensorView> inputs) {
  try {
    session.run(inputs);
  } catch (const Error& e) {
    return e.what();
  }
  return {};
}

// Of the layers that the CPU runs these have no GPU kernel: the passes make a convolution of the first where its
// weights are constant, and fold the second or store its integers in the layer that reads it.
TEST(GpuRegistry, WhichLayersHaveNoKernel) {
  std::vector<std::string> missing;
  for (const std::string& type : default_registry().layer_types(DeviceKind::cpu)) {
    if (default_registry().candidates(type, DeviceKind::cuda).empty()) missing.push_back(type);
  }
  EXPECT_THAT(missing, ::testing::ElementsAre("ConvTranspose", "DequantizeBlocks"));
}

TEST(GpuFaults, AnIndexThatIsOutOfRangeFailsItsRun) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(gpu_seed());
  Session session = gpu_session(gather_graph());
  const Tensor x = random_tensor(Shape({5, 2}), random);
  const auto indices = [](std::int64_t last) {
    return Tensor::from<std::int64_t>(Shape{3}, std::vector<std::int64_t>{0, -5, last});
  };
  // Step by step, captured, and captured again.
  for (int round = 0; round < 3; ++round) {
    const Tensor bad = indices(5), good = indices(4);
    const ConstTensorView bad_inputs[] = {x.view(), bad.view()}, good_inputs[] = {x.view(), good.view()};
    const std::string message = message_of(session, bad_inputs);
    EXPECT_THAT(message, HasSubstr("index 5"));
    EXPECT_THAT(message, HasSubstr("rows")) << "the node";
    ASSERT_EQ(message_of(session, good_inputs), "");
    const auto y = session.run(good_inputs);
    const std::span<const float> from = x.values<float>();
    EXPECT_THAT(std::span(y[0].as<float>(), 6),
                ::testing::ElementsAre(from[0], from[1], from[0], from[1], from[8], from[9]));
  }
}

TEST(GpuFaults, OtherLayers) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(gpu_seed());
  GraphBuilder builder;
  const ValueId x = builder.add_input("x", TensorDesc{Shape{4, 3}});
  const ValueId indices = builder.add_input("indices", TensorDesc{Shape{2, 3}, DType::i64});
  const ValueId updates = builder.add_input("updates", TensorDesc{Shape{2, 3}});
  builder.mark_output(builder.add1("scatter", std::make_shared<ScatterIndexed>(ScatterIndexedAttributes{}),
                                   {x, indices, updates}));
  Session session = gpu_session(builder.build());
  const Tensor data = random_tensor(Shape({4, 3}), random), written = random_tensor(Shape({2, 3}), random);
  const Tensor places =
      Tensor::from<std::int64_t>(Shape{2, 3}, std::vector<std::int64_t>{0, 1, 2, 3, -4, -5});
  const ConstTensorView inputs[] = {data.view(), places.view(), written.view()};
  EXPECT_THAT(message_of(session, inputs), HasSubstr("index -5"));

  GraphBuilder recurrent;
  const ValueId gates = recurrent.add_input("gates", TensorDesc{Shape{3, 2, 4}});
  const ValueId lengths = recurrent.add_input("lengths", TensorDesc{Shape{2}, DType::i32});
  const ValueId weights = recurrent.add_constant("weights", random_tensor(Shape({1, 4, 4}), random));
  const auto layer = std::make_shared<Recurrent>(
      RecurrentAttributes{RecurrentKind::rnn, RecurrentDirection::forward, {{UnaryKind::tanh}}});
  recurrent.mark_output(recurrent.add("rnn", layer, {gates, weights, kNoValue, lengths})[0]);
  Session sequences = gpu_session(recurrent.build());
  const Tensor of_x = random_tensor(Shape({3, 2, 4}), random);
  const Tensor long_ones = Tensor::from<std::int32_t>(Shape{2}, std::vector<std::int32_t>{3, 4});
  const ConstTensorView steps[] = {of_x.view(), long_ones.view()};
  EXPECT_THAT(message_of(sequences, steps), HasSubstr("length 4"));
}

TEST(GpuFaults, IntegerDivisionByZero) {
  PIPIT_NEEDS_GPU();
  GraphBuilder builder;
  const ValueId a = builder.add_input("a", TensorDesc{Shape{2}, DType::i64});
  const ValueId b = builder.add_input("b", TensorDesc{Shape{2}, DType::i64});
  builder.mark_output(
      builder.add1("quotient", std::make_shared<Binary>(BinaryAttributes{BinaryKind::div}), {a, b}));
  Session session = gpu_session(builder.build());
  const Tensor x = Tensor::from<std::int64_t>(Shape{2}, std::vector<std::int64_t>{9, -8});
  const Tensor y = Tensor::from<std::int64_t>(Shape{2}, std::vector<std::int64_t>{2, 0});
  const ConstTensorView inputs[] = {x.view(), y.view()};
  EXPECT_THAT(message_of(session, inputs), HasSubstr("of -8 divides by zero"));
}

}  // namespace
}  // namespace pipit::internal::test
