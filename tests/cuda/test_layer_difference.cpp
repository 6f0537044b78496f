// What diff measures on a GPU: values of inner layers, INT8 against fp32, as on the CPU.
#include "quant/layer_difference.h"

#include <gtest/gtest.h>
#include <cmath>

#include <cstring>

#include "compile/mixed_model.h"
#include "tests/cuda/conformance.h"
#include "tests/quant/small_resnet.h"

namespace pipit::internal::test {
namespace {

// All values that steps write, in their order, on the host.
class Recorder final : public RunObserver {
 public:
  void before_run() override { ++runs; }
  void after_step(const Step& /*step*/, std::span<const ConstTensorView> /*inputs*/,
                  std::span<const TensorView> outputs) override {
    for (const TensorView& output : outputs)
      values.push_back(to_layout({output.desc, output.data}, Layout::row_major));
  }
  int runs = 0;
  std::vector<Tensor> values;
};

struct Mixed {
  explicit Mixed(unsigned seed)
      : random(seed), graph(small_resnet(random)), scales(calibrated(graph, random, 8)) {
    for (int i = 0; i < 3; ++i) images.push_back(random_tensor(Shape{1, 3, 12, 12}, random));
  }

  MixedModel model(DeviceKind device, Precision kept_as) const {
    CompileOptions options;
    options.planning.threads = 1;
    options.planning.device = device;
    return {graph, scales, options, kept_as};
  }

  std::vector<LayerDifference> differences(DeviceKind device, Precision kept_as,
                                           const std::set<std::string>& floating) const {
    const MixedModel mixed = model(device, kept_as);
    const auto fp32 = mixed.in_fp32(true);
    const auto int8 = mixed.in_int8(floating, true);
    LayerComparison comparison(*fp32, *int8);
    Session reference(fp32), quantized(int8);
    reference.set_observer(&comparison.reference());
    quantized.set_observer(&comparison.quantized());
    for (const Tensor& image : images) {
      const ConstTensorView view = image.view();
      comparison.begin(1);
      reference.run({&view, 1});
      quantized.run({&view, 1});
    }
    return comparison.layers();
  }

  std::mt19937 random;
  Graph graph;
  QuantizationPlan scales;
  std::vector<Tensor> images;
};

TEST(GpuLayerDifference, ObserversSeeWhatStepsWriteAndChangeNothing) {
  PIPIT_NEEDS_GPU();
  const Mixed mixed(gpu_seed());
  const MixedModel model = mixed.model(DeviceKind::cuda, Precision::fp32);
  for (const bool int8 : {false, true}) {
    SCOPED_TRACE(int8);
    Session session(int8 ? model.in_int8({}, true) : model.in_fp32(true));
    const ConstTensorView view = mixed.images[0].view();
    const auto run = [&] { return to_layout(session.run({&view, 1})[0], Layout::row_major); };
    const Tensor before = run();
    Recorder recorder;
    session.set_observer(&recorder);
    const Tensor observed = run();
    session.set_observer(nullptr);
    EXPECT_EQ(recorder.runs, 1);
    ASSERT_GE(recorder.values.size(), session.plan().steps().size());
    // The last one is the model's output, and replaying the graph gives it once more.
    for (const Tensor* other : {&before, &std::as_const(recorder.values.back())}) {
      ASSERT_EQ(other->desc().elements(), observed.desc().elements());
      EXPECT_EQ(std::memcmp(other->view().data, observed.view().data, observed.desc().bytes()), 0);
    }
    const Tensor after = run();
    EXPECT_EQ(std::memcmp(after.view().data, observed.view().data, observed.desc().bytes()), 0);
    EXPECT_EQ(recorder.runs, 1);
  }
}

TEST(GpuLayerDifference, SaysWhatTheCpuSays) {
  PIPIT_NEEDS_GPU();
  const Mixed mixed(gpu_seed());
  SCOPED_TRACE(testing::Message() << "PIPIT_TEST_SEED=" << gpu_seed());
  for (const std::set<std::string>& floating : {std::set<std::string>{}, {"block1"}}) {
    const auto cpu = mixed.differences(DeviceKind::cpu, Precision::fp32, floating);
    const auto gpu = mixed.differences(DeviceKind::cuda, Precision::fp32, floating);
    ASSERT_EQ(cpu.size(), gpu.size());
    for (std::size_t l = 0; l < cpu.size(); ++l) {
      SCOPED_TRACE(cpu[l].node);
      EXPECT_EQ(gpu[l].node, cpu[l].node);
      EXPECT_EQ(gpu[l].precision, cpu[l].precision);
      EXPECT_EQ(gpu[l].output8, cpu[l].output8);
      EXPECT_EQ(gpu[l].difference.count(), cpu[l].difference.count());
      // Integers are the same on both; sums in fp32 differ in their last bits, 2^-24 of a value against 2^-8, which
      // moves a value to the next of 255 where it lies between two by as little.
      EXPECT_NEAR(gpu[l].difference.sqnr_db(), cpu[l].difference.sqnr_db(), 0.1);
      EXPECT_NEAR(gpu[l].difference.cosine(), cpu[l].difference.cosine(), 1e-4);
      EXPECT_NEAR(gpu[l].difference.clipped(), cpu[l].difference.clipped(),
                  2.0 / static_cast<double>(cpu[l].difference.count()));
    }
  }
}

TEST(GpuLayerDifference, WhatIsKeptInHalvesIsReadAndSaidToBe) {
  PIPIT_NEEDS_GPU();
  const Mixed mixed(gpu_seed());
  const auto fp32 = mixed.differences(DeviceKind::cuda, Precision::fp32, {"block1"});
  const auto fp16 = mixed.differences(DeviceKind::cuda, Precision::fp16, {"block1"});
  const auto bf16 = mixed.differences(DeviceKind::cuda, Precision::bf16, {"block1"});
  ASSERT_EQ(fp32.size(), fp16.size());
  ASSERT_EQ(fp32.size(), bf16.size());
  for (std::size_t l = 0; l < fp32.size(); ++l) {
    SCOPED_TRACE(fp32[l].node);
    const bool kept = fp32[l].node == "block1";
    EXPECT_EQ(fp32[l].precision, kept ? Precision::fp32 : Precision::int8);
    EXPECT_EQ(fp16[l].precision, kept ? Precision::fp16 : Precision::int8);
    EXPECT_EQ(bf16[l].precision, kept ? Precision::bf16 : Precision::int8);
    // Halves add 2^-11 of a value to the noise of INT8, which is 2^-8 and more: what they and it have in common, at
    // most 2 / 8 of its power, is an average over count() values, which are few for a classifier.
    const double deviation = 0.25 / std::sqrt(static_cast<double>(fp32[l].difference.count()));
    EXPECT_NEAR(fp16[l].difference.sqnr_db(), fp32[l].difference.sqnr_db(),
                1 + 10 * std::log10(1 + 4 * deviation));
  }
}

TEST(MixedModelOnAGpu, EndsInWhatLayersAreKeptIn) {
  PIPIT_NEEDS_GPU();
  const Mixed mixed(gpu_seed());
  for (const Precision kept_as : {Precision::fp32, Precision::fp16, Precision::bf16}) {
    SCOPED_TRACE(precision_name(kept_as));
    const MixedModel model = mixed.model(DeviceKind::cuda, kept_as);
    EXPECT_EQ(model.floating_point_is_fp32(), kept_as == Precision::fp32);
    const auto plan = model.in_floating_point();
    const DType stored = stored_type(kept_as);
    int narrow = 0;
    for (const Value& value : plan->graph().values()) {
      EXPECT_TRUE(value.desc.dtype != DType::i8 && value.desc.dtype != DType::u8) << value.name;
      narrow += is_stored_float(stored) && value.desc.dtype == stored ? 1 : 0;
    }
    EXPECT_EQ(narrow > 0, kept_as != Precision::fp32);
    Session session(plan);
    Session reference(model.in_fp32());
    const ConstTensorView view = mixed.images[0].view();
    const Tensor got = to_layout(session.run({&view, 1})[0], Layout::row_major);
    const Tensor real = to_layout(reference.run({&view, 1})[0], Layout::row_major);
    // Each of four layers rounds its weights and results, to 2^-8 in bf16.
    EXPECT_LT(relative_error(got.values<float>(), real.values<float>()),
              kept_as == Precision::bf16 ? 0.03 : 0.01);
  }
}

}  // namespace
}  // namespace pipit::internal::test
