// Recurrent: a launch for each step, whose blocks share the units.
#include "layers/ops/recurrent.h"

#include <fmt/format.h>

#include <limits>

#include "layers/cuda/device/constants.h"
#include "layers/cuda/device/kernel.cuh"
#include "layers/cuda/families.h"
#include "layers/cuda/linear/recurrent_kernel.cuh"

namespace pipit::internal {

namespace {

using namespace cuda;

constexpr int kStepSamples = 8;  // of a block

Refusal refuse_recurrent(const NodeSpec& spec) {
  if (Refusal reason = refuse_unless_indexable(spec)) return reason;
  const DType type = spec.outputs[0].dtype;
  for (std::size_t i = 0; i < spec.inputs.size(); ++i) {
    if (!spec.has_input(i) || i == Recurrent::kLengths) continue;
    if (!is_float_or_half(spec.inputs[i]->dtype))
      return "an operand is " + std::string(dtype_name(spec.inputs[i]->dtype)) +
             ", only f32, f16 and bf16 are handled";
  }
  if (!is_float_or_half(type)) return "only f32, f16 and bf16 are handled";
  if (layer_as<Recurrent>(spec.layer).attributes().rounds_state) return "the hidden state is rounded";
  for (const UnaryAttributes& activation : layer_as<Recurrent>(spec.layer).attributes().activations) {
    if (!RecurrentActivation::knows(activation.kind))
      return "activation " + std::string(unary_name(activation.kind)) + " is not handled";
  }
  const RecurrentGeometry g(layer_as<Recurrent>(spec.layer).attributes(), spec.inputs[0]->shape,
                            spec.inputs[1]->shape);
  if (g.samples > 65535) return "more than 65535 samples";
  return refuse_unless_row_major(spec);
}

class RecurrentKernel final : public Kernel {
 public:
  explicit RecurrentKernel(const NodeSpec& spec)
      : attributes_(layer_as<Recurrent>(spec.layer).attributes()),
        geometry_(attributes_, spec.inputs[0]->shape, spec.inputs[1]->shape),
        type_(spec.constant(Recurrent::kWeights) != nullptr ? spec.outputs[0].dtype
                                                            : spec.inputs[Recurrent::kWeights]->dtype),
        weights_(spec, Recurrent::kWeights, type_) {}
  bool reads_constant(std::size_t index) const override { return index != Recurrent::kWeights; }
  std::size_t packed_bytes() const override { return weights_.bytes(); }
  std::size_t scratch_bytes() const override {
    const std::size_t arrays = attributes_.kind == RecurrentKind::lstm ? 3 : scales_state() ? 4 : 2;
    return arrays * state_size() * sizeof(float);
  }
  std::string fault_text(std::int64_t value) const override {
    return fmt::format("Recurrent: a sequence of length {}; there are {} positions", value,
                       geometry_.positions);
  }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    if (state_size() == 0) return;
    RecurrentArgs args = arguments(inputs, outputs, context);
    launch("recurrent: begin", begin_recurrent, static_cast<std::int64_t>(state_size()), context, args);
    if (geometry_.positions > 0) {
      if (type_ == DType::f16) {
        run_steps<__half>(args, context);
      } else if (type_ == DType::bf16) {
        run_steps<__nv_bfloat16>(args, context);
      } else {
        run_steps<float>(args, context);
      }
    }
    launch("recurrent: end", end_recurrent, static_cast<std::int64_t>(state_size()), context, args);
  }

 private:
  std::size_t state_size() const {
    return static_cast<std::size_t>(geometry_.directions * geometry_.samples * geometry_.hidden);
  }
  // Whether the reset gate of a GRU is needed before the product of its last gate.
  bool scales_state() const {
    return attributes_.kind == RecurrentKind::gru && !attributes_.linear_before_reset;
  }
  RecurrentArgs arguments(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
                          const RunContext& context) const {
    const bool lstm = attributes_.kind == RecurrentKind::lstm;
    RecurrentArgs args{Out(outputs[0]), Out(outputs[1]), Out(outputs[lstm ? 2 : 1])};
    const auto given = [&](std::size_t i) {
      return i < inputs.size() && inputs[i].present() ? In(inputs[i]) : In();
    };
    args.input_forget = attributes_.input_forget;
    args.backward = attributes_.direction == RecurrentDirection::reverse;
    args.clip =
        attributes_.clip > 0 ? static_cast<float>(attributes_.clip) : std::numeric_limits<float>::infinity();
    args.positions = static_cast<int>(geometry_.positions);
    args.samples = static_cast<int>(geometry_.samples);
    args.directions = static_cast<int>(geometry_.directions);
    args.gates = static_cast<int>(geometry_.gates);
    args.hidden = static_cast<int>(geometry_.hidden);
    const std::size_t each = recurrent_activations(attributes_.kind);
    for (std::size_t i = 0; i < attributes_.activations.size(); ++i) {
      const UnaryAttributes& a = attributes_.activations[i];
      args.activations[i / each][i % each] = {a.kind, static_cast<float>(a.alpha),
                                              static_cast<float>(a.beta)};
    }
    args.x = In(inputs[Recurrent::kGates]);
    args.hidden_bias = given(Recurrent::kHiddenBias);
    args.first_hidden = given(Recurrent::kFirstHidden);
    args.first_cell = given(Recurrent::kFirstCell);
    args.peepholes = given(Recurrent::kPeepholes);
    if (inputs.size() > Recurrent::kLengths && inputs[Recurrent::kLengths].present())
      args.lengths = Indices(inputs[Recurrent::kLengths]);
    args.weights = weights_.data(inputs);
    auto* states = reinterpret_cast<float*>(context.scratch);
    args.states[0] = states;
    args.states[1] = states + state_size();
    if (lstm) args.cell = states + 2 * state_size();
    if (scales_state()) {
      args.reset = states + 2 * state_size();
      args.update = states + 3 * state_size();
    }
    args.fault = context.fault;
    return args;
  }

  template <typename W>
  void run_steps(const RecurrentArgs& args, const RunContext& context) const {
    switch (attributes_.kind) {
      case RecurrentKind::rnn:
        return run_gates<W, 1>(args, context);
      case RecurrentKind::gru:
        return scales_state() ? run_gates<W, 2>(args, context) : run_gates<W, 3>(args, context);
      case RecurrentKind::lstm:
        return run_gates<W, 4>(args, context);
    }
  }

  template <typename W, int Gates>
  void run_gates(RecurrentArgs args, const RunContext& context) const {
    const auto directions = static_cast<unsigned>(args.directions),
               samples = static_cast<unsigned>(args.samples);
    const unsigned units = blocks_for(args.hidden, kRecurrentThreads / 32);
    const auto step = [&](auto kernel, unsigned of_block) {
      for (int s = 0; s < args.positions; ++s) {
        args.step = s;
        const dim3 grid(units, directions, blocks_for(samples, of_block));
        const auto phase = [&](RecurrentPhase which) {
          args.phase = which;
          launch_waiting("recurrent: step", kernel, grid, dim3(kRecurrentThreads), context, args);
        };
        if (Gates != 2 || units == 1) {
          phase(RecurrentPhase::whole);
        } else {
          phase(RecurrentPhase::reset);
          phase(RecurrentPhase::candidate);
        }
      }
    };
    if (samples == 1) {
      step(recurrent_step<W, Gates, 1>, 1);
    } else {
      step(recurrent_step<W, Gates, kStepSamples>, kStepSamples);
    }
  }

  RecurrentAttributes attributes_;
  RecurrentGeometry geometry_;
  DType type_;  // of the weights
  Operand weights_;
};

}  // namespace

void register_cuda_recurrent(Registry& registry) {
  registry.add(Recurrent::kType, DeviceKind::cuda,
               {"warps", refuse_recurrent, [](const NodeSpec& spec) {
                  return std::unique_ptr<Kernel>(std::make_unique<RecurrentKernel>(spec));
                }});
}

}  // namespace pipit::internal
