// Recurrent layers on the GPU, against the CPU reference.
#include <iostream>

#include "tests/cuda/conformance.h"
#include "tests/cuda/random_layers.h"

namespace pipit::internal::test {
namespace {

void check(LayerRandom& random, const RecurrentExtents& extents) {
  const RandomLayer layer = random_recurrent(random, extents);
  const bool constants = random.coin();
  for (const Precision precision : {Precision::fp32, Precision::fp16}) {
    GpuCase test;
    test.precision = precision;
    // In fp16 results are rounded once, states are not.
    test.tolerance = recurrent_tolerance(extents) + (precision == Precision::fp16 ? 0x1p-11 : 0);
    for (std::size_t i = 0; i < layer.inputs.size(); ++i) {
      const bool constant = constants && i != Recurrent::kGates && i != Recurrent::kLengths;
      test.inputs.push_back({layer.inputs[i], Layout::row_major, constant && layer.inputs[i] != nullptr});
    }
    expect_gpu(*layer.layer, "warps", test);
  }
}

TEST(GpuRecurrent, AllStepsInOneLaunch) {
  PIPIT_NEEDS_GPU();
  LayerRandom random(gpu_seed());
  for (int round = 0; round < 80 && !HasFailure(); ++round)
    check(random,
          {random.integer(0, 12), random.integer(1, 9), random.integer(1, round % 4 == 0 ? 128 : 40)});
}

// Weights that no block keeps, or more samples than multiprocessors.
TEST(GpuRecurrent, ALaunchForEachStep) {
  PIPIT_NEEDS_GPU();
  LayerRandom random(gpu_seed() + 1);
  for (int round = 0; round < 24 && !HasFailure(); ++round)
    check(random, {random.integer(1, 5), random.integer(1, 19), random.integer(250, 300)});
  for (int round = 0; round < 24 && !HasFailure(); ++round)
    check(random, {random.integer(1, 5), random.integer(129, 140), random.integer(1, 24)});
}

TEST(GpuRecurrent, Empty) {
  PIPIT_NEEDS_GPU();
  LayerRandom random(gpu_seed() + 2);
  for (int round = 0; round < 8; ++round) {
    check(random, {0, 3, 5});
    check(random, {3, 0, 5});
  }
}

TEST(GpuRecurrent, UnknownFunctionsAreRefused) {
  PIPIT_NEEDS_GPU();
  LayerRandom random(gpu_seed() + 3);
  const Recurrent layer({RecurrentKind::rnn, RecurrentDirection::forward, {{UnaryKind::erf}}});
  GpuCase test;
  test.inputs = {{random.tensor(Shape{2, 1, 3})}, {random.tensor(Shape{1, 3, 3})}};
  EXPECT_TRUE(gpu_refusal(layer, "warps", test).has_value());
}

// test_cuda --gtest_also_run_disabled_tests --gtest_filter='*RecurrentBench*': microseconds of a layer and of a step.
TEST(DISABLED_RecurrentBench, UsualSizes) {
  PIPIT_NEEDS_GPU();
  LayerRandom random(gpu_seed());
  struct Row {
    RecurrentKind kind;
    RecurrentExtents extents;
  };
  const Row rows[] = {{RecurrentKind::lstm, {1, 1, 128}},    {RecurrentKind::lstm, {100, 1, 64}},
                      {RecurrentKind::lstm, {100, 1, 128}},  {RecurrentKind::lstm, {100, 32, 128}},
                      {RecurrentKind::lstm, {100, 1, 256}},  {RecurrentKind::lstm, {100, 32, 256}},
                      {RecurrentKind::lstm, {100, 1, 1024}}, {RecurrentKind::lstm, {100, 128, 512}},
                      {RecurrentKind::gru, {100, 1, 128}},   {RecurrentKind::gru, {100, 32, 256}}};
  for (const Precision precision : {Precision::fp16, Precision::fp32}) {
    for (const auto& [kind, e] : rows) {
      const std::int64_t gates = recurrent_gates(kind);
      std::vector<UnaryAttributes> functions{{UnaryKind::sigmoid}, {UnaryKind::tanh}};
      if (kind == RecurrentKind::lstm) functions.push_back({UnaryKind::tanh});
      const Recurrent layer({kind, RecurrentDirection::forward, functions});
      GpuCase test;
      test.precision = precision;
      test.inputs = {
          {random.tensor(Shape{e.positions, e.samples, gates * e.hidden})},
          {random.tensor(Shape{1, gates * e.hidden, e.hidden}, -0.1, 0.1), Layout::row_major, true}};
      const double time = gpu_microseconds(layer, "warps", test, 3);
      std::cout << precision_name(precision) << " " << layer.summary() << ", " << e.positions << " steps of "
                << e.samples << " samples, " << e.hidden << " units: " << time << " us, "
                << time / static_cast<double>(e.positions) << " a step" << std::endl;
    }
  }
}

}  // namespace
}  // namespace pipit::internal::test
