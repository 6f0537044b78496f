// What kernels do (StepWork), counted here a second time, and the floors that are made of it.
#include "pipit/detail/floors.h"

#include <gtest/gtest.h>

#include "compile/compile.h"
#include "layers/cpu/tile/tile_kernel.h"
#include "layers/ops/binary.h"
#include "layers/ops/conv.h"
#include "layers/ops/pool.h"
#include "layers/ops/qconv.h"
#include "layers/ops/reshaping.h"
#include "layers/ops/slicing.h"
#include "layers/ops/unary.h"
#include "layers/passes/passes.h"
#include "layers/registry.h"
#include "pipit/detail/memory_use.h"
#include "pipit/detail/step_info.h"
#include "tests/support/run_graph.h"

namespace pipit::internal {
namespace {

using detail::Floors;
using detail::step_info;
using detail::StepFloor;
using detail::StepWork;

struct ConvCase {
  std::int64_t channels = 32, outputs = 32, height = 14, width = 14;
  std::int64_t kernel = 1, stride = 1, pad = 0, groups = 1, batch = 1;
};

class Networks : public ::testing::Test {
 protected:
  std::mt19937 random{test::test_seed()};
  GraphBuilder graph;

  ValueId conv(ValueId x, const ConvCase& c) {
    ConvAttributes a;
    a.window.kernel = {c.kernel, c.kernel, 1};
    a.window.stride = {c.stride, c.stride, 1};
    a.window.pad_begin = a.window.pad_end = {c.pad, c.pad, 0};
    a.groups = c.groups;
    const Shape weights{c.outputs, c.channels / c.groups, c.kernel, c.kernel};
    const ValueId w = graph.add_constant("w" + std::to_string(++constants_),
                                         test::random_tensor(weights, random, -0.3F, 0.3F));
    return graph.add1("conv" + std::to_string(constants_), std::make_shared<Conv>(a), {x, w});
  }
  ValueId input(const ConvCase& c) {
    return graph.add_input("image", TensorDesc{Shape{c.batch, c.channels, c.height, c.width}});
  }
  std::shared_ptr<const ExecutionPlan> plan(CompileOptions options = {}) {
    if (options.planning.threads == 0) options.planning.threads = 1;
    return compile(graph.build(), options).plans[0];
  }
  // The plan of one convolution on `kernel`, after another: the first one would read the image as it comes.
  std::shared_ptr<const ExecutionPlan> plan(const ConvCase& c, const std::string& kernel) {
    ConvCase first = c;
    first.channels = 3, first.outputs = c.channels;
    first.kernel = first.stride = first.groups = 1;
    first.pad = 0;
    graph.mark_output(conv(conv(input(first), first), c), "y");
    CompileOptions options;
    options.planning.prefer_kernels = {{kernel}};
    return plan(options);
  }
  // The last step that runs on `kernel`.
  static const Step& step_on(const ExecutionPlan& made, const std::string& kernel) {
    for (std::size_t i = made.steps().size(); i-- > 0;) {
      if (made.steps()[i].kernel_name == kernel) return made.steps()[i];
    }
    ADD_FAILURE() << "no step runs on " << kernel;
    return made.steps()[0];
  }
  static StepWork work_of(const ExecutionPlan& made, const std::string& kernel) {
    return step_info(made, step_on(made, kernel)).work;
  }

 private:
  int constants_ = 0;
};

std::int64_t up(std::int64_t n, std::int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

// Vectors have 4 to 16 lanes: 32 outputs are whole ones, 33 are not. 16 x 12 pixels follow each other in strips that
// cover them exactly on every instruction set (of 4, 6 or 12 pixels), or nearly.
TEST_F(Networks, TileCountsLanesAndPixels) {
  const ConvCase c{.channels = 8, .outputs = 33, .height = 16, .width = 12};
  const auto made = plan(c, "tile");
  const StepWork work = work_of(*made, "tile");
  ASSERT_EQ(work.products.size(), 1U);
  EXPECT_EQ(work.products[0].products, Products::fp32);
  const std::int64_t pixels = 16 * 12;
  EXPECT_GE(work.macs(), pixels * 8 * 36);
  EXPECT_LE(work.macs(), up(pixels, 16) * 8 * 48);
  EXPECT_EQ(work.macs() % (8 * 4), 0);
  EXPECT_EQ(work.read, pixels * 8 * 4);
  EXPECT_EQ(work.written, pixels * 33 * 4);
  EXPECT_GE(work.weights, 36 * 8 * 4);
  EXPECT_LE(work.weights, 48 * 8 * 4);
}

// Every pixel is one of a strip, and of the taps outside of the image all are multiplied.
TEST_F(Networks, TileMultipliesPadding) {
  const ConvCase c{.channels = 16, .outputs = 64, .height = 9, .width = 9, .kernel = 3, .pad = 1};
  const std::int64_t layer = 9 * 9 * 9 * 16 * 64;
  const StepWork work = work_of(*plan(c, "tile"), "tile");
  EXPECT_GE(work.macs(), layer);
  EXPECT_LE(work.macs(), layer * 16 / 9);  // a row of 9 pixels in strips that overlap
}

TEST_F(Networks, StridesWiderThanTheWindowLeaveInputsOut) {
  const ConvCase c{.channels = 32, .outputs = 32, .height = 14, .width = 14, .stride = 2};
  const StepWork work = work_of(*plan(c, "tile"), "tile");
  EXPECT_EQ(work.read, 7 * 7 * 32 * 4);
}

TEST_F(Networks, WinogradCountsProductsOfTiles) {
  const ConvCase c{.channels = 16, .outputs = 32, .height = 24, .width = 24, .kernel = 3, .pad = 1};
  const StepWork work = work_of(*plan(c, "winograd_f4x4"), "winograd_f4x4");
  const std::int64_t tiles = 6 * 6;
  EXPECT_GE(work.macs(), tiles * 36 * 16 * 32);
  EXPECT_LE(work.macs(), tiles * 36 * 16 * 32 * 4 / 3);  // strips of tiles that overlap
  EXPECT_LT(work.macs(), 24 * 24 * 9 * 16 * 32);
  EXPECT_EQ(work.weights, 36 * 16 * 32 * 4);
}

TEST_F(Networks, DepthwiseLeavesRowsOfTapsOut) {
  const ConvCase c{
      .channels = 32, .outputs = 32, .height = 7, .width = 7, .kernel = 5, .pad = 2, .groups = 32};
  const StepWork work = work_of(*plan(c, "depthwise"), "depthwise");
  // Rows 0 to 6 have 3, 4, 5, 5, 5, 4 and 3 rows of taps inside; columns are computed with all five.
  const std::int64_t rows = 3 + 4 + 5 + 5 + 5 + 4 + 3;
  EXPECT_GE(work.macs(), rows * 5 * 7 * 32);
  EXPECT_LE(work.macs(), rows * 5 * 8 * 32);
}

TEST_F(Networks, Im2colDoesWhatTheLayerSays) {
  const ConvCase c{.channels = 3, .outputs = 8, .height = 9, .width = 9, .kernel = 3, .pad = 1};
  const auto made = plan(c, "im2col_gemm");
  EXPECT_EQ(work_of(*made, "im2col_gemm").macs(), 9 * 9 * 9 * 3 * 8);
}

TEST_F(Networks, IntegersAreCountedAsSuch) {
  const ConvCase c{.channels = 32, .outputs = 32, .height = 12, .width = 12, .kernel = 3, .pad = 1};
  graph.mark_output(conv(input(c), c), "y");
  CompileOptions options;
  options.planning.precision = Precision::int8_dynamic;
  const auto made = plan(options);
  const StepWork work = work_of(*made, "tile");
  ASSERT_EQ(work.products.size(), 1U);
  EXPECT_EQ(work.products[0].products, Products::int8);
  EXPECT_GE(work.macs(), 12 * 12 * 9 * 32 * 32);
  EXPECT_GE(work.weights, 9 * 32 * 32);
}

TEST_F(Networks, StoredFloatsAreMultipliedAsTheKernelSays) {
  const ConvCase c{.channels = 32, .outputs = 32, .height = 12, .width = 12};
  const struct {
    Precision precision;
    const TileKernels* tiles;
    Products products;
  } cases[] = {{Precision::fp16, f16_tiles(), Products::fp16},
               {Precision::bf16, bf16_tiles(), Products::bf16}};
  for (const auto& [precision, tiles, products] : cases) {
    SCOPED_TRACE(precision_name(precision));
    graph = GraphBuilder();
    graph.mark_output(conv(input(c), c), "y");
    CompileOptions options;
    options.planning.precision = precision;
    const auto made = plan(options);
    const StepWork work = work_of(*made, "tile");
    ASSERT_EQ(work.products.size(), 1U);
    EXPECT_EQ(work.products[0].products, tiles != nullptr ? products : Products::fp32);
    EXPECT_EQ(work.weights, 32 * 32 * 2);
  }
}

// The second of two convolutions, and what a Concat whose inputs are in place has left to do.
TEST_F(Networks, PartsInPlaceAreNotMovedAgain) {
  const ConvCase c{.channels = 32, .outputs = 64, .height = 12, .width = 12};
  const ValueId x = input(c);
  const ValueId joined =
      graph.add1("join", std::make_shared<Concat>(ConcatAttributes{1}), {conv(x, c), conv(x, c)});
  graph.mark_output(graph.add1("relu", std::make_shared<Unary>(UnaryAttributes{UnaryKind::tanh}), {joined}),
                    "y");
  const auto made = plan();
  for (const Step& step : made->steps()) {
    if (step.parts.empty()) continue;
    const StepWork work = step_info(*made, step).work;
    EXPECT_EQ(work.read + work.written, 0) << step.kernel_name;
    return;
  }
}

TEST_F(Networks, AnOperandThatIsThereTwiceIsReadOnce) {
  const ConvCase c{.channels = 8, .height = 8, .width = 8};
  const ValueId x = input(c);
  graph.mark_output(graph.add1("square", std::make_shared<Binary>(BinaryAttributes{BinaryKind::mul}), {x, x}),
                    "y");
  const auto made = plan();
  const StepWork work = step_info(*made, made->steps()[0]).work;
  EXPECT_EQ(work.read, 8 * 8 * 8 * 4);
  EXPECT_EQ(work.written, 8 * 8 * 8 * 4);
  EXPECT_EQ(work.macs(), 0);
  EXPECT_EQ(work.intensity(), 0);
}

TEST_F(Networks, MicroBatchesAreCounted) {
  const ConvCase c{.channels = 32, .outputs = 32, .height = 12, .width = 12, .batch = 7};
  graph.mark_output(conv(input(c), c), "y");
  CompileOptions options;
  options.planning.micro_batch = 2;
  options.planning.prefer_kernels = {{"tile"}};
  const auto made = plan(options);
  const StepWork work = work_of(*made, "tile");
  EXPECT_EQ(work.runs, 4);  // the last one computes a sample twice
  EXPECT_GE(work.macs(), 8 * 12 * 12 * 32 * 32);
  EXPECT_LE(work.macs(), 8 * up(12 * 12, 16) * 32 * 32);
  EXPECT_EQ(work.bytes(), 4 * (2 * work.read / 2 + work.weights + work.written));
  EXPECT_EQ(work.read, 2 * 12 * 12 * 32 * 4);
}

TEST_F(Networks, MemoryIsThatOfAllSteps) {
  const ConvCase c{.channels = 16, .outputs = 32, .height = 24, .width = 24, .kernel = 3, .pad = 1};
  const auto made = plan(c, "winograd_f4x4");
  const detail::MemoryUse use = detail::memory_use(*made);
  EXPECT_EQ(use.weights, (3U * 16 + 9 * 16 * 32) * 4);
  std::size_t packed = 0, workspace = 0;
  for (const Step& step : made->steps()) {
    const detail::StepMemory memory = detail::step_memory(step);
    packed += memory.packed + memory.constants;
    workspace = std::max(workspace, memory.workspace);
  }
  EXPECT_EQ(use.packed + use.constants, packed);
  EXPECT_EQ(use.workspace, workspace);
  const Step& winograd = step_on(*made, "winograd_f4x4");
  EXPECT_EQ(use.largest_packed, winograd.index);
  EXPECT_EQ(detail::step_memory(winograd).packed, 36U * 16 * 32 * 4);
  EXPECT_LE(use.workspace, made->arena_bytes());
}

MeasuredRate rate(double best) {
  return {best, best, best, 9};
}

MemoryCeiling level(const std::string& name, std::int64_t bytes, double rate_of_all) {
  return {name, bytes, rate(rate_of_all), rate(rate_of_all), rate(rate_of_all), rate(rate_of_all)};
}

// 2e9 operations a second, an inner memory of `inner` bytes at 8e9 bytes a second, an outer one at 1e9.
Ceilings machine(std::int64_t inner) {
  Ceilings ceilings;
  ceilings.arithmetic = {{Products::fp32, "unit", rate(2e9), rate(1e9)}};
  ceilings.memory = {level("L1", inner, 8e9), level("memory", 0, 1e9)};
  return ceilings;
}

StepFloor floor_of(const ExecutionPlan& made, const Step& step, const Ceilings& ceilings) {
  return Floors(made, ceilings).of(step, step_info(made, step).work);
}

TEST_F(Networks, TheLongestIsTheFloor) {
  const ConvCase c{.channels = 8, .outputs = 32, .height = 16, .width = 12};
  const auto made = plan(c, "tile");
  const Step& step = step_on(*made, "tile");
  const StepWork work = step_info(*made, step).work;
  const StepFloor near = floor_of(*made, step, machine(1 << 30));
  EXPECT_EQ(near.bound, "compute");
  EXPECT_DOUBLE_EQ(near.compute_ms, 1e-6 * static_cast<double>(work.macs()));
  EXPECT_DOUBLE_EQ(near.tile_ms, 2 * near.compute_ms);
  EXPECT_DOUBLE_EQ(near.ms, near.compute_ms);
  EXPECT_DOUBLE_EQ(near.bytes_ms, static_cast<double>(work.bytes()) / 8e6);
  EXPECT_DOUBLE_EQ(near.share_of(2 * near.ms), 0.5);

  // Nothing lies nearer: all bytes come from memory.
  Ceilings slow = machine(0);
  slow.memory[1] = level("memory", 0, 1e8);
  const StepFloor far = floor_of(*made, step, slow);
  EXPECT_EQ(far.bound, "memory");
  EXPECT_DOUBLE_EQ(far.ms, static_cast<double>(work.bytes()) / 1e5);
}

TEST_F(Networks, WhatIsMoreThanTheInnerMemoryHoldsComesFromTheOuterOne) {
  const ConvCase c{.channels = 8, .height = 32, .width = 32};  // 32 KiB in and out
  graph.mark_output(graph.add1("f", std::make_shared<Unary>(UnaryAttributes{UnaryKind::tanh}), {input(c)}),
                    "y");
  const auto made = plan();
  const Step& step = made->steps()[0];
  constexpr double kBytes = 32 << 10;
  EXPECT_DOUBLE_EQ(floor_of(*made, step, machine(32 << 10)).ms, 2 * kBytes / 8e6);
  EXPECT_EQ(floor_of(*made, step, machine(32 << 10)).bound, "L1");
  // Half of the input and of the output do not fit.
  EXPECT_DOUBLE_EQ(floor_of(*made, step, machine(16 << 10)).ms, kBytes / 1e6);
  EXPECT_EQ(floor_of(*made, step, machine(16 << 10)).bound, "memory");
}

TEST_F(Networks, WeightsOfTheWholeRunShareTheInnerMemory) {
  const ConvCase c{.channels = 64, .outputs = 64, .height = 1, .width = 1};
  graph.mark_output(conv(conv(input(c), c), c), "y");
  CompileOptions options;
  options.planning.prefer_kernels = {{"tile"}};
  const auto made = plan(options);
  ASSERT_EQ(detail::memory_use(*made).packed, 2U * 64 * 64 * 4);
  const Step& step = step_on(*made, "tile");
  Ceilings ceilings = machine(16 << 10);  // of the 32 KiB of both
  ceilings.arithmetic[0].flops = rate(1e15);
  const StepFloor floor = floor_of(*made, step, ceilings);
  EXPECT_EQ(floor.bound, "memory");
  EXPECT_DOUBLE_EQ(floor.ms, (8 << 10) / 1e6);
  ceilings.memory[0].bytes = 32 << 10;
  EXPECT_EQ(floor_of(*made, step, ceilings).bound, "L1");
}

}  // namespace
}  // namespace pipit::internal
