// Whole networks on the GPU against the CPU, and against themselves when replayed.
#include <fmt/format.h>

#include <cmath>

#include "compile/compile.h"
#include "models/model.h"
#include "tests/cuda/conformance.h"
#include "tests/support/run_graph.h"

namespace pipit::internal::test {
namespace {

Session make_session(const std::string& model, std::int64_t batch, DeviceKind device, Precision precision) {
  OnnxOptions onnx;
  onnx.batch = batch;
  CompileOptions options;
  options.planning.device = device;
  options.planning.precision = precision;
  return Session(compile(load_model(model, onnx).graph, options).plans[0]);
}

std::vector<float> logits(Session& session, const Tensor& input) {
  const ConstTensorView view = input.view();
  const ConstTensorView y = session.run({&view, 1})[0];
  const float* data = y.as<float>();
  return {data, data + y.desc.elements()};
}

Tensor random_image(std::int64_t batch, unsigned seed) {
  std::mt19937 random(seed);
  return random_tensor({batch, 3, 224, 224}, random, -2, 2);
}

/// ||e|| / ||y|| of a network's logits that rounding explains, as a random walk over its products: sums of K products
/// in fp32 are off by u sqrt(K), u = 2^-24, whatever their order; in fp16 and bf16 weights and activations are rounded
/// by up to u = 2^-11 and 2^-8 as well, once a layer. Activations keep their norm from layer to layer, and rectifiers
/// and sums do not enlarge errors relative to it. (Rounding every weight and activation of ResNet-50 to half, on the
/// CPU, gave 4.3e-4 where this gives 3.6e-3: the root mean square of a rounding is 0.4 u, and branches are scaled
/// down.)
double tolerance(const ExecutionPlan& plan, Precision precision) {
  double variance = 0;
  for (const Node& node : plan.graph().nodes()) {
    const std::vector<TensorDesc> outputs = plan.graph().output_descs(node);
    const Work work = node.layer->work(plan.graph().input_descs(node), outputs);
    if (work.macs == 0) continue;
    const double depth = static_cast<double>(work.macs) / static_cast<double>(outputs[0].elements());
    const double rounding = precision == Precision::fp16   ? 0x1p-11
                            : precision == Precision::bf16 ? 0x1p-8
                                                           : 0;
    variance += std::pow(2.0, -48) * depth + rounding * rounding;
  }
  return std::sqrt(variance);
}

class GpuModels : public ::testing::TestWithParam<const char*> {};

TEST_P(GpuModels, LogitsAgreeWithTheCpu) {
  PIPIT_NEEDS_GPU();
  const Tensor input = random_image(2, gpu_seed());
  Session cpu = make_session(GetParam(), 2, DeviceKind::cpu, Precision::fp32);
  const std::vector<float> expected = logits(cpu, input);
  for (const Precision precision : {Precision::fp32, Precision::fp16, Precision::bf16}) {
    Session gpu = make_session(GetParam(), 2, DeviceKind::cuda, precision);
    const double allowed = tolerance(cpu.plan(), precision);
    const double error = relative_error(logits(gpu, input), expected);
    EXPECT_LE(error, allowed) << precision_name(precision) << ", seed " << gpu_seed();
    EXPECT_GT(error, 0) << "the same bits on both devices: were both run?";
    RecordProperty(fmt::format("relative_error_{}", precision_name(precision)), fmt::format("{:.2e}", error));
    fmt::print("{} {}: relative error {:.2e}, allowed {:.2e}\n", GetParam(), precision_name(precision), error,
               allowed);
  }
}

// With the integers and scales of the CPU, what differs is what halves round.
TEST_P(GpuModels, StoredWeightsAgreeWithTheCpu) {
  PIPIT_NEEDS_GPU();
  const Tensor input = random_image(2, gpu_seed());
  for (const Precision precision : {Precision::w8, Precision::w4}) {
    Session cpu = make_session(GetParam(), 2, DeviceKind::cpu, precision);
    Session gpu = make_session(GetParam(), 2, DeviceKind::cuda, precision);
    EXPECT_LE(relative_error(logits(gpu, input), logits(cpu, input)), tolerance(cpu.plan(), Precision::fp16))
        << precision_name(precision) << ", seed " << gpu_seed();
  }
}

// Halves move a few activations to a neighbouring integer: by less than rounding all of them to integers did.
TEST_P(GpuModels, DynamicScalesAgreeWithTheCpu) {
  PIPIT_NEEDS_GPU();
  const Tensor input = random_image(2, gpu_seed());
  Session exact = make_session(GetParam(), 2, DeviceKind::cpu, Precision::fp32);
  Session cpu = make_session(GetParam(), 2, DeviceKind::cpu, Precision::int8_dynamic);
  Session gpu = make_session(GetParam(), 2, DeviceKind::cuda, Precision::int8_dynamic);
  const std::vector<float> expected = logits(cpu, input);
  EXPECT_LE(relative_error(logits(gpu, input), expected), relative_error(expected, logits(exact, input)))
      << "seed " << gpu_seed();
}

// The first run is step by step, the second captures, the others replay; another image between them, so that no run
// can pass by leaving the answer of the one before.
TEST_P(GpuModels, EveryReplayGivesTheSameBits) {
  PIPIT_NEEDS_GPU();
  for (const std::int64_t batch : {1, 32}) {
    const Tensor input = random_image(batch, gpu_seed());
    const Tensor other = random_image(batch, gpu_seed() + 1);
    Session session = make_session(GetParam(), batch, DeviceKind::cuda, Precision::fp16);
    const std::vector<float> first = logits(session, input);
    EXPECT_NE(logits(session, other), first) << "batch " << batch;
    for (int replay = 0; replay < 3; ++replay) {
      EXPECT_EQ(logits(session, input), first)
          << "batch " << batch << ", replay " << replay << ", seed " << gpu_seed();
    }
    EXPECT_NE(logits(session, other), first) << "batch " << batch;
  }
}

INSTANTIATE_TEST_SUITE_P(Resnets, GpuModels, ::testing::Values("resnet18", "resnet50"));

// What one image of a batch gives does not depend on the others: row i of a batch is the image alone, up to the
// rounding of kernels chosen for another batch.
TEST(GpuModels, ABatchIsItsImages) {
  PIPIT_NEEDS_GPU();
  const Tensor images = random_image(3, gpu_seed());
  Session batched = make_session("resnet18", 3, DeviceKind::cuda, Precision::fp16);
  Session single = make_session("resnet18", 1, DeviceKind::cuda, Precision::fp16);
  const std::vector<float> all = logits(batched, images);
  const std::size_t classes = all.size() / 3;
  const std::size_t elements = images.values<float>().size() / 3;
  for (std::size_t i = 0; i < 3; ++i) {
    Tensor image{TensorDesc{Shape{1, 3, 224, 224}}};
    std::copy_n(images.values<float>().begin() + static_cast<std::ptrdiff_t>(i * elements), elements,
                image.values<float>().begin());
    const std::vector<float> alone = logits(single, image);
    const std::span<const float> row{all.data() + i * classes, classes};
    EXPECT_LE(relative_error(row, alone), tolerance(single.plan(), Precision::fp16)) << "image " << i;
  }
}

}  // namespace
}  // namespace pipit::internal::test
