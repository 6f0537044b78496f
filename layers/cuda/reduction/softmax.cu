// Softmax and LogSoftmax: maximum, sum and result in three passes over each group.
#include "layers/ops/softmax.h"

#include "layers/cuda/families.h"
#include "layers/cuda/reduction/team.cuh"

namespace pipit::internal {

namespace {

using namespace cuda;

// Operands of both loops: output, input.
__global__ void softmax_kernel(TeamPlan plan, DeviceLoop<2> groups, DeviceLoop<2> inside, bool log, Out y,
                               In x) {
  __shared__ float shared[kTeamShared];
  const Team team(plan);
  int start[2] = {0, 0};
  if (team.active) groups.offsets(team.group, start);
  const auto for_each = [&](auto&& body) {
    if (!team.active) return;
    for (unsigned i = team.lane; i < inside.size; i += team.lanes) {
      int at[2];
      inside.offsets(i, at);
      body(load<float>(x, static_cast<std::int64_t>(start[1]) + at[1]),
           static_cast<std::int64_t>(start[0]) + at[0]);
    }
  };
  float highest = -INFINITY;
  for_each([&](float value, std::int64_t) { highest = fmaxf(highest, value); });
  highest = team.reduce(highest, shared, [](float a, float b) { return fmaxf(a, b); });
  float sum = 0;
  for_each([&](float value, std::int64_t) { sum += expf(value - highest); });
  sum = team.reduce(sum, shared, Sum{});
  const float log_sum = logf(sum);
  for_each([&](float value, std::int64_t to) {
    const float shifted = value - highest;
    store<float>(y, to, log ? shifted - log_sum : expf(shifted) / sum);
  });
}

void run(const Softmax& layer, std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
         const RunContext& context) {
  const TensorDesc& desc = inputs[0].desc;
  const Strides to = outputs[0].desc.strides();
  const Strides from = desc.strides();
  const SoftmaxGroups range = softmax_groups(layer.attributes(), desc.shape);
  StridedLoop<2> groups, inside;
  for (int d = 0; d < desc.shape.rank(); ++d) {
    const auto u = static_cast<std::size_t>(d);
    (d >= range.begin && d < range.end ? inside : groups).add(desc.shape[d], {to[u], from[u]});
  }
  groups.collapse();
  inside.collapse();
  if (inside.size() == 0) return;
  launch_teams("softmax", softmax_kernel, TeamPlan(groups, 1, inside, 1), context, DeviceLoop<2>(groups),
               DeviceLoop<2>(inside), layer.attributes().log, Out(outputs[0]), In(inputs[0]));
}

}  // namespace

void register_cuda_softmax(Registry& registry) {
  add_kernel<Softmax>(registry, "teams", refuse_unless_float_or_half, run);
}

}  // namespace pipit::internal
