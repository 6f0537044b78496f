// Small layers with known kernels, so that the engine is tested without the layers library.
#pragma once

#include <thread>

#include "engine/graph/graph.h"
#include "engine/plan/registry.h"

namespace pipit::internal::test {

struct ToyAddAttributes {
  bool in_place = false;
};

/// y = a + b (b optional), element by element; optionally in place, with scratch, or refusing.
class ToyAdd final : public LayerOf<ToyAdd, ToyAddAttributes> {
 public:
  static constexpr std::string_view kType = "ToyAdd";
  explicit ToyAdd(bool in_place = false) : LayerOf({in_place}) {}
  std::vector<TensorDesc> infer(std::span<const TensorDesc* const> inputs) const override {
    if (inputs.empty() || inputs[0] == nullptr) fail("input 0 is missing");
    if (inputs.size() > 1 && inputs[1] != nullptr && !(inputs[1]->shape == inputs[0]->shape)) {
      fail("shapes {} and {} differ", inputs[0]->shape.str(), inputs[1]->shape.str());
    }
    return {*inputs[0]};
  }
  bool may_run_in_place(int) const override { return attributes_.in_place; }
  bool is_batch_independent(const SampledInputs& inputs) const override {
    return inputs.by_sample[0] && (inputs.by_sample.size() < 2 || inputs.by_sample[1]);
  }
};

struct ToyViewAttributes {
  Shape shape;
};

/// The same memory under another shape.
class ToyView final : public LayerOf<ToyView, ToyViewAttributes> {
 public:
  static constexpr std::string_view kType = "ToyView";
  explicit ToyView(Shape shape) : LayerOf({shape}) {}
  std::vector<TensorDesc> infer(std::span<const TensorDesc* const> inputs) const override {
    return {TensorDesc{attributes_.shape, inputs[0]->dtype}};
  }
  bool is_view(const TensorDesc&, const TensorDesc&) const override { return true; }
  bool is_batch_independent(const SampledInputs& inputs) const override {
    return attributes_.shape[0] == inputs.descs[0]->shape[0];
  }
  LayerPtr for_samples(std::int64_t samples) const override {
    return std::make_shared<ToyView>(attributes_.shape.with(0, samples));
  }
};

class ToyAddKernel final : public Kernel {
 public:
  explicit ToyAddKernel(std::size_t scratch, bool reads_constants)
      : scratch_(scratch), reads_(reads_constants) {}
  std::size_t scratch_bytes() const override { return scratch_; }
  bool reads_constant(std::size_t) const override { return reads_; }
  void run(std::span<const ConstTensorView> in, std::span<const TensorView> out,
           const RunContext& context) const override {
    if (scratch_ > 0) std::memset(context.scratch, 0xA5, scratch_);
    const float* a = in[0].as<float>();
    const float* b = in.size() > 1 && in[1].present() ? in[1].as<float>() : nullptr;
    float* y = out[0].as<float>();
    context.pool.parallel_for(out[0].desc.elements(),
                              [&](std::int64_t i, int) { y[i] = a[i] + (b ? b[i] : 0.0F); });
  }

 private:
  std::size_t scratch_;
  bool reads_;
};

/// A registry with ToyAdd kernels: "picky" (only 4 elements), then "plain".
inline Registry toy_registry(std::size_t scratch = 0, bool reads_constants = true) {
  Registry registry;
  registry.add(ToyAdd::kType, DeviceKind::cpu,
               {"picky",
                [](const NodeSpec& spec) -> Refusal {
                  if (spec.outputs[0].elements() != 4) return "needs 4 elements";
                  return std::nullopt;
                },
                [=](const NodeSpec&) { return std::make_unique<ToyAddKernel>(scratch, reads_constants); }});
  registry.add(ToyAdd::kType, DeviceKind::cpu,
               {"plain",
                [](const NodeSpec& spec) -> Refusal {
                  if (spec.precision != Precision::fp32) return "only fp32";
                  return std::nullopt;
                },
                [=](const NodeSpec&) { return std::make_unique<ToyAddKernel>(scratch, reads_constants); }});
  return registry;
}

}  // namespace pipit::internal::test
