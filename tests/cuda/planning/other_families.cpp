// The families whose candidates are registered beside their kernels, which only nvcc compiles: in their place one that
// takes every node, and as long as one that reads and writes its operands once.
#include "layers/cuda/cost/launch_cost.h"
#include "layers/cuda/families.h"
#include "layers/cuda/pooling/pool_estimate.h"
#include "layers/ops/pool.h"
#include "layers/ops/qelementwise.h"

namespace pipit::internal {

namespace {

class NothingRuns final : public Kernel {
 public:
  void run(std::span<const ConstTensorView>, std::span<const TensorView>, const RunContext&) const override {}
};

using TimeOf = std::function<std::optional<Estimate>(const NodeSpec&)>;

Refusal refuse_nothing(const NodeSpec&) {
  return std::nullopt;
}

void take(Registry& registry, std::initializer_list<const char*> layer_types,
          const TimeOf& estimate = cuda::streaming(refuse_nothing), const std::string& name = "made_up") {
  for (const char* type : layer_types) {
    Candidate candidate{name, refuse_nothing,
                        [](const NodeSpec&) { return std::make_unique<NothingRuns>(); }};
    candidate.estimate = estimate;
    registry.add(type, DeviceKind::cuda, std::move(candidate));
  }
}

/// global_average before windows, as windows.cu registers them.
void take_pools(Registry& registry, const char* type, const PoolAttributes& (*attributes)(const NodeSpec&)) {
  take(
      registry, {type},
      [attributes](const NodeSpec& spec) -> std::optional<Estimate> {
        const PoolAttributes& pool = attributes(spec);
        if (!pool.global || pool.kind != PoolKind::average) return std::nullopt;
        return cuda::global_average_estimate(spec);
      },
      "global_average");
  take(
      registry, {type},
      [attributes](const NodeSpec& spec) { return cuda::windows_estimate(spec, attributes(spec)); },
      "windows");
}

}  // namespace

void register_cuda_binary(Registry& registry) {
  take(registry, {"Binary", "Where"});
}
void register_cuda_cast(Registry& registry) {
  take(registry, {"Cast"});
}
void register_cuda_channel_shuffle(Registry& registry) {
  take(registry, {"ChannelShuffle"});
}
void register_cuda_dynamic_quantize(Registry& registry) {
  take(registry, {"DynamicQuantize"});
}
void register_cuda_grid_sample(Registry&) {}
void register_cuda_indexing(Registry&) {}
void register_cuda_movement(Registry& registry) {
  take(registry, {"Reshape", "Transpose", "Concat", "Slice", "ToLayout"});
}
void register_cuda_normalization(Registry&) {}
void register_cuda_normalize_image(Registry&) {}
void register_cuda_order(Registry&) {}
void register_cuda_pad_gather(Registry&) {}
void register_cuda_pool(Registry& registry) {
  take_pools(registry, "Pool", [](const NodeSpec& spec) -> const PoolAttributes& {
    return layer_as<Pool>(spec.layer).attributes();
  });
}
void register_cuda_small_windows(Registry&) {}
void register_cuda_qelementwise(Registry& registry) {
  take(registry, {"Quantize", "Dequantize", "QAdd"});
}
void register_cuda_qfunctions(Registry& registry) {
  take(registry, {"QUnary", "QMul"});
}
void register_cuda_qpool(Registry& registry) {
  take_pools(registry, "QAveragePool", [](const NodeSpec& spec) -> const PoolAttributes& {
    return layer_as<QAveragePool>(spec.layer).attributes().pool;
  });
}
void register_cuda_quantize_axis(Registry&) {}
void register_cuda_recurrent(Registry&) {}
void register_cuda_reduce(Registry& registry) {
  take(registry, {"Reduce"});
}
void register_cuda_resize(Registry&) {}
void register_cuda_softmax(Registry& registry) {
  take(registry, {"Softmax"});
}
void register_cuda_split_rows(Registry&) {}
void register_cuda_unary(Registry& registry) {
  take(registry, {"Unary"});
}

}  // namespace pipit::internal
