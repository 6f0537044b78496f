#include "layers/evaluate.h"

#include "layers/reference/reference.h"
#include "layers/registry.h"

namespace pipit::internal {

namespace {

// Constants of a model are small; a larger result means a hostile or broken file.
constexpr std::size_t kMaxResultBytes = std::size_t{1} << 31;

const Candidate& reference_of(const Layer& layer) {
  for (const Candidate& candidate : default_registry().candidates(layer.type(), DeviceKind::cpu)) {
    if (candidate.name == kReference) return candidate;
  }
  fail_unsupported("{}: there is no reference kernel to evaluate it on constants", layer.type());
}

std::vector<Tensor> allocate(const Layer& layer, const std::vector<TensorDesc>& descs) {
  std::size_t total = 0;
  for (const TensorDesc& desc : descs) {
    if (desc.bytes() > kMaxResultBytes - total) {
      fail("{}: a constant result of {} takes {} bytes; at most {} are evaluated ahead of time", layer.type(),
           desc.str(), desc.bytes(), kMaxResultBytes);
    }
    total += desc.bytes();
  }
  return std::vector<Tensor>(descs.begin(), descs.end());
}

}  // namespace

std::vector<Tensor> evaluate(const Layer& layer, std::span<const std::shared_ptr<const Tensor>> inputs) {
  std::vector<const TensorDesc*> descs;
  std::vector<ConstTensorView> views;
  for (const auto& input : inputs) {
    descs.push_back(input ? &input->desc() : nullptr);
    views.push_back(input ? input->view() : ConstTensorView{});
  }
  const std::vector<TensorDesc> results = layer.infer(descs);
  const NodeSpec node{layer, descs, results, inputs};
  const Candidate& reference = reference_of(layer);
  if (const Refusal refusal = reference.refuse(node)) fail_unsupported("{}: {}", layer.type(), *refusal);
  const std::unique_ptr<Kernel> kernel = reference.create(node);

  std::vector<Tensor> outputs = allocate(layer, results);
  std::vector<TensorView> output_views;
  for (Tensor& output : outputs) output_views.push_back(output.view());
  const HostBuffer scratch(kernel->scratch_bytes());
  const HostBuffer state = zeroed_host_buffer(kernel->state_bytes());
  // Without workers it runs every loop in the caller, so threads may share it.
  static ThreadPool& single = *new ThreadPool(1);
  kernel->run(views, output_views, RunContext{single, scratch.data(), nullptr, state.data()});
  return outputs;
}

}  // namespace pipit::internal
