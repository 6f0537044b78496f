// Recurrent layers on a CPU, against the plain kernel.
#include "tests/cuda/emulation/emulation.h"
// The emulator comes first: kernels use its declarations.
#include "layers/cuda/linear/recurrent_kernel.cuh"
#include "layers/reference/reference.h"
#include "tests/cuda/emulation/layer_run.h"
#include "tests/cuda/random_layers.h"

namespace pipit::internal::test::emulation {
namespace {

using cuda::In;
using cuda::Out;
using cuda::RecurrentArgs;
using cuda::RecurrentPhase;

template <typename W, int Gates, int Samples>
void run_steps(std::mt19937& random, RecurrentArgs args) {
  constexpr int kUnits = cuda::kRecurrentThreads / 32;
  Launch how = launch_of(random, (args.hidden + kUnits - 1) / kUnits, cuda::kRecurrentThreads, 0);
  how.grid.y = static_cast<unsigned>(args.directions);
  how.grid.z = static_cast<unsigned>((args.samples + Samples - 1) / Samples);
  const auto launch = [&](RecurrentPhase phase) {
    args.phase = phase;
    how.seed = random();
    expect_no_error(run(cuda::recurrent_step<W, Gates, Samples>, how, args));
  };
  for (args.step = 0; args.step < args.positions; ++args.step) {
    if (Gates != 2 || how.grid.x == 1) {
      launch(RecurrentPhase::whole);
    } else {
      launch(RecurrentPhase::reset);
      launch(RecurrentPhase::candidate);
    }
  }
}

template <typename W, int Gates>
void run_samples(std::mt19937& random, const RecurrentArgs& args, int samples) {
  samples == 1 ? run_steps<W, Gates, 1>(random, args) : run_steps<W, Gates, 8>(random, args);
}

template <typename W>
void run_gates(std::mt19937& random, const RecurrentArgs& args, int gates, int samples) {
  switch (gates) {
    case 1:
      return run_samples<W, 1>(random, args, samples);
    case 2:
      return run_samples<W, 2>(random, args, samples);
    case 3:
      return run_samples<W, 3>(random, args, samples);
    default:
      return run_samples<W, 4>(random, args, samples);
  }
}

void check(LayerRandom& random, const RecurrentExtents& e, bool halves, int samples) {
  RandomLayer node = random_recurrent(random, e);
  for (auto& input : node.inputs) {
    if (halves && input) input = std::make_shared<const Tensor>(as_halves(*input));
  }
  const auto& a = static_cast<const Recurrent&>(*node.layer).attributes();
  const RecurrentGeometry g(a, node.inputs[0]->shape(), node.inputs[1]->shape());
  const auto expected = referenced(register_reference_recurrent, *node.layer, node.inputs);
  Operands operands(halves);
  std::vector<TensorView> outputs;
  for (const Tensor& output : expected) outputs.push_back(operands.out(output.desc()));
  const bool lstm = a.kind == RecurrentKind::lstm,
             scales = a.kind == RecurrentKind::gru && !a.linear_before_reset;
  RecurrentArgs args{Out(outputs[0]), Out(outputs[1]), Out(outputs[lstm ? 2 : 1])};
  const auto given = [&](std::size_t i) {
    return i < node.inputs.size() && node.inputs[i] ? In(operands.in(*node.inputs[i])) : In();
  };
  args.input_forget = a.input_forget;
  args.backward = a.direction == RecurrentDirection::reverse;
  args.clip = a.clip > 0 ? static_cast<float>(a.clip) : kInfinity;
  args.positions = static_cast<int>(g.positions);
  args.samples = static_cast<int>(g.samples);
  args.directions = static_cast<int>(g.directions);
  args.gates = static_cast<int>(g.gates);
  args.hidden = static_cast<int>(g.hidden);
  const std::size_t each = recurrent_activations(a.kind);
  for (std::size_t i = 0; i < a.activations.size(); ++i) {
    const UnaryAttributes& f = a.activations[i];
    args.activations[i / each][i % each] = {f.kind, static_cast<float>(f.alpha), static_cast<float>(f.beta)};
  }
  args.x = given(Recurrent::kGates);
  args.weights = given(Recurrent::kWeights).data;
  args.hidden_bias = given(Recurrent::kHiddenBias);
  args.first_hidden = given(Recurrent::kFirstHidden);
  args.first_cell = given(Recurrent::kFirstCell);
  args.peepholes = given(Recurrent::kPeepholes);
  if (node.inputs.size() > Recurrent::kLengths && node.inputs[Recurrent::kLengths])
    args.lengths = cuda::Indices(operands.in(*node.inputs[Recurrent::kLengths]));
  const std::int64_t states = g.directions * g.samples * g.hidden;
  const auto state = [&] {
    return reinterpret_cast<float*>(operands.bytes(static_cast<std::size_t>(states) * 4, 0xFF));
  };
  args.states[0] = state();
  args.states[1] = state();
  if (lstm) args.cell = state();
  if (scales) args.reset = state(), args.update = state();
  Fault fault;
  args.fault = &fault;
  run_points(cuda::begin_recurrent, random.random, states, args);
  const int gates = scales ? 2 : static_cast<int>(g.gates);
  if (halves) {
    run_gates<__half>(random.random, args, gates, samples);
  } else {
    run_gates<float>(random.random, args, gates, samples);
  }
  run_points(cuda::end_recurrent, random.random, states, args);
  EXPECT_EQ(fault.found, 0);
  for (std::size_t o = 0; o < outputs.size(); ++o)
    expect_same(outputs[o], expected[o], recurrent_tolerance(e) + (halves ? 0x1p-11 : 0));
  if (::testing::Test::HasFailure()) ADD_FAILURE() << node.layer->summary() << ", seed " << gpu_seed();
}

TEST(EmulatedRecurrent, Random) {
  LayerRandom random(gpu_seed() * 1000 + 810);
  for (int round = 0; round < 80 && !::testing::Test::HasFailure(); ++round) {
    const RecurrentExtents e{random.integer(1, 5), random.integer(1, 11),
                             round % 3 == 0 ? 4 * random.integer(1, 40) : random.integer(1, 40)};
    check(random, e, random.coin(), random.coin() ? 1 : 8);
  }
}

TEST(EmulatedRecurrent, ALengthOutOfRangeIsReported) {
  LayerRandom random(gpu_seed() * 1000 + 811);
  Operands operands(false);
  const TensorView y = operands.out(TensorDesc{Shape{2, 1, 1, 1}}),
                   last = operands.out(TensorDesc{Shape{1, 1, 1}});
  RecurrentArgs args{Out(y), Out(last), Out(last)};
  args.clip = kInfinity;
  args.positions = 2, args.samples = args.hidden = args.gates = 1;
  args.x = In(operands.in(*random.tensor(Shape{2, 1, 1})));
  args.weights = operands.in(*random.tensor(Shape{1, 1, 1})).data;
  args.lengths =
      cuda::Indices(operands.in(Tensor::from<std::int64_t>(Shape{1}, std::vector<std::int64_t>{-3})));
  args.states[0] = reinterpret_cast<float*>(operands.bytes(4, 0));
  args.states[1] = reinterpret_cast<float*>(operands.bytes(4, 0));
  Fault fault;
  args.fault = &fault;
  run_steps<float, 1, 1>(random.random, args);
  EXPECT_EQ(fault.found, 1);
  EXPECT_EQ(fault.value, -3);
}

}  // namespace
}  // namespace pipit::internal::test::emulation
