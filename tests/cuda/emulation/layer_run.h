// Kernels of whole layers on a CPU, against the layers' plain kernels: operands as views of memory between pages that
// no thread may touch.
#pragma once

#include <deque>
#include <memory>

#include "engine/plan/registry.h"
#include "tests/cuda/emulation/reference.h"

namespace pipit::internal::test::emulation {

/// Rounded to halves where they are floats.
inline Tensor as_halves(const Tensor& tensor) {
  Tensor result = tensor.clone();
  if (tensor.desc().dtype == DType::f32) {
    for (float& v : result.values<float>()) v = to_float(to_half(v));
  }
  return result;
}

/// The operands of a launch; with `halves` floats are stored in 16 bits.
class Operands {
 public:
  explicit Operands(bool halves) : halves_(halves) {}

  ConstTensorView in(const Tensor& tensor) {
    const TensorView view = allocate(tensor.desc());
    if (view.desc.dtype == tensor.desc().dtype) {
      if (view.desc.bytes() > 0) std::memcpy(view.data, tensor.view().data, view.desc.bytes());
    } else {
      for (std::size_t i = 0; i < tensor.values<float>().size(); ++i)
        view.as<Half>()[i] = to_half(tensor.values<float>()[i]);
    }
    return {view.desc, view.data};
  }
  TensorView out(const TensorDesc& desc) { return allocate(desc); }

  /// Zeros, or all bits set.
  std::byte* bytes(std::size_t count, int value) { return memory_.emplace_back(count, value).data(); }

 private:
  TensorView allocate(TensorDesc desc) {
    if (halves_ && desc.dtype == DType::f32) desc.dtype = DType::f16;
    return {desc, memory_.emplace_back(desc.bytes()).data()};
  }

  bool halves_;
  std::deque<Global<std::byte>> memory_;
};

/// What the plain kernel that `register_reference` adds computes.
template <typename Register>
std::vector<Tensor> referenced(Register register_reference, const Layer& layer,
                               const std::vector<std::shared_ptr<const Tensor>>& inputs) {
  Registry registry;
  register_reference(registry);
  std::vector<const TensorDesc*> descs;
  std::vector<ConstTensorView> views;
  for (const auto& input : inputs) {
    descs.push_back(input ? &input->desc() : nullptr);
    views.push_back(input ? input->view() : ConstTensorView{});
  }
  std::vector<Tensor> outputs;
  std::vector<TensorView> targets;
  const std::vector<TensorDesc> results = layer.infer(descs);
  for (const TensorDesc& desc : results) outputs.emplace_back(desc);
  for (Tensor& output : outputs) targets.push_back(output.view());
  const NodeSpec spec{layer, descs, results, inputs};
  ThreadPool pool(1);
  registry.candidates(layer.type(), DeviceKind::cpu)
      .at(0)
      .create(spec)
      ->run(views, targets, RunContext{pool});
  return outputs;
}

/// Exactly, or floats within `tolerance` of the norm.
inline void expect_same(const TensorView& got, const Tensor& expected, double tolerance) {
  const auto count = static_cast<std::size_t>(expected.shape().elements());
  if (expected.desc().dtype != DType::f32) {
    if (count == 0) return;
    EXPECT_EQ(std::memcmp(got.data, expected.view().data, expected.desc().bytes()), 0)
        << expected.desc().str();
    return;
  }
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const float y = expected.values<float>()[i];
    const float v = got.desc.dtype == DType::f16 ? to_float(got.as<Half>()[i]) : got.as<float>()[i];
    if (v == y || (v != v && y != y)) continue;
    ASSERT_TRUE(std::isfinite(v) && std::isfinite(y)) << "element " << i << ": " << v << ", expected " << y;
    difference += (static_cast<double>(v) - y) * (static_cast<double>(v) - y);
    norm += static_cast<double>(y) * y;
  }
  for (std::size_t i = 0; i < count; ++i) {
    const float y = expected.values<float>()[i];
    norm += std::isfinite(y) ? static_cast<double>(y) * y : 0;
  }
  const double step = got.desc.dtype == DType::f16 ? 0x1p-24 : 0;  // halves of any size lie that far apart
  EXPECT_LE(std::sqrt(difference), tolerance * std::sqrt(norm) + step * std::sqrt(static_cast<double>(count)))
      << expected.desc().str();
}

/// Launches one thread per point.
template <typename... Parameters, typename... Arguments>
bool run_points(void (*kernel)(Parameters...), std::mt19937& random, std::int64_t points,
                const Arguments&... arguments) {
  if (points == 0) return true;
  const auto blocks = static_cast<int>((points + 255) / 256);
  return expect_no_error(run(kernel, launch_of(random, blocks, 256, 0), arguments...));
}

}  // namespace pipit::internal::test::emulation
