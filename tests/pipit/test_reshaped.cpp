// A model for other shapes, and what it holds of the weights.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/graph/shared_buffer.h"
#include "pipit/detail/load.h"
#include "pipit/pipit.h"
#include "tests/pipit/models.h"

namespace {

using pipit::CompiledModel;
using pipit::Error;
using pipit::LoadOptions;
using pipit::Precision;
using pipit::Shape;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

LoadOptions one_thread(Precision precision = Precision::fp32) {
  LoadOptions options;
  options.device.threads = 1;
  options.precision = precision;
  return options;
}

// What the kernels of some models have packed, each memory once.
std::size_t packed(const std::vector<CompiledModel>& models) {
  const pipit::internal::SharedBuffer::CountedOnce once;
  std::size_t bytes = 0;
  for (const CompiledModel& model : models) {
    for (const pipit::internal::Step& step : model.state().plans[0]->steps())
      bytes += step.kernel->packed_bytes();
  }
  return bytes;
}

TEST(Reshaped, RunsOtherShapes) {
  const CompiledModel model("resnet20-cifar10", one_thread());
  const CompiledModel three = model.with_batch(3);
  EXPECT_EQ(three.name(), model.name());
  EXPECT_EQ(three.inputs()[0].shape, (Shape{3, 3, 32, 32}));
  EXPECT_EQ(three.outputs()[0].shape, (Shape{3, 10}));
  EXPECT_EQ(three.with_batch(1).inputs()[0].shape, (Shape{1, 3, 32, 32}));
  EXPECT_EQ(three.reshaped({}).inputs()[0].shape, (Shape{1, 3, 32, 32}));
  std::vector<float> image(3 * 32 * 32), images;
  for (std::size_t i = 0; i < image.size(); ++i) image[i] = static_cast<float>(i % 101) / 50 - 1;
  for (int i = 0; i < 3; ++i) images.insert(images.end(), image.begin(), image.end());
  pipit::ModelSession session = model.session(), of_three = three.session();
  const std::span<const float> one = session.run({{image, Shape{1, 3, 32, 32}}})[0].values<float>();
  const std::span<const float> all = of_three.run({{images, Shape{3, 3, 32, 32}}})[0].values<float>();
  for (std::size_t i = 0; i < 30; ++i) EXPECT_NEAR(all[i], one[i % 10], 1e-3);
  EXPECT_THAT([&] { model.with_batch(0); }, ThrowsMessage<Error>(HasSubstr("resnet20-cifar10")));
  const std::string onnx = pipit::internal::test::chain(4, {"Relu"});
  const CompiledModel of_bytes(std::as_bytes(std::span(onnx)), "relu", one_thread());
  EXPECT_THAT([&] { of_bytes.with_batch(2); },
              ThrowsMessage<Error>(AllOf(HasSubstr("relu"), HasSubstr("loaded from bytes"))));
}

TEST(Reshaped, SharesPackedWeights) {
  for (const Precision precision : {Precision::fp32, Precision::fp16, Precision::w8}) {
    const CompiledModel model("resnet18", one_thread(precision));
    const CompiledModel four = model.with_batch(4);
    const std::size_t alone = packed({model}), of_four = packed({four}), together = packed({model, four});
    EXPECT_GT(alone, std::size_t{8} << 20);
    EXPECT_LT(static_cast<double>(together), 1.02 * static_cast<double>(std::max(alone, of_four)))
        << pipit::precision_name(precision) << ": " << alone << " and " << of_four << " bytes";
  }
}

TEST(Reshaped, MayChooseOtherKernels) {
  const CompiledModel model("resnet20-cifar10", one_thread());
  pipit::RunShapes shapes;
  shapes.batch = 16;
  const CompiledModel same = model.reshaped(shapes);
  const CompiledModel anew = model.reshaped(shapes, {.same_kernels = false});
  LoadOptions options = one_thread();
  options.shapes.batch = 16;
  const CompiledModel loaded("resnet20-cifar10", options);
  const auto kernels = [](const CompiledModel& of) {
    std::vector<std::string> names;
    for (const pipit::internal::Step& step : of.state().plans[0]->steps()) names.push_back(step.kernel_name);
    return names;
  };
  EXPECT_EQ(kernels(same), kernels(model));
  EXPECT_EQ(kernels(anew), kernels(loaded));
  EXPECT_NE(packed({anew}), 0U);
}

}  // namespace
