#include "layers/ops/channel_shuffle.h"

#include "layers/common/layer_kernel.h"
#include "layers/ops/operands.h"
#include "layers/reference/index.h"
#include "layers/reference/reference.h"

namespace pipit::internal {

namespace {

// One channel of x to one of y.
void copy_channel(const ConstTensorView& x, std::int64_t from, const TensorView& y, std::int64_t to) {
  const auto at = [](std::int64_t channel) {
    return [channel](Index i) {
      i[1] = channel;
      return i;
    };
  };
  copy_elements(x.desc.shape.with(1, 1), x, at(from), y, at(to));
}

void run_channel_shuffle(const ChannelShuffle& layer, std::span<const ConstTensorView> inputs,
                         std::span<const TensorView> outputs, const RunContext& /*context*/) {
  struct Channel {
    const ConstTensorView* x;
    std::int64_t index;
  };
  const ChannelShuffleAttributes& a = layer.attributes();
  std::vector<Channel> joined;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const std::int64_t taken = a.taken_of(i, inputs[i].desc);
    for (std::int64_t c = 0; c < taken; ++c) joined.push_back({&inputs[i], c});
  }
  const std::size_t groups = static_cast<std::size_t>(a.groups);
  const std::size_t of_group = joined.size() / groups;
  std::size_t c = 0;
  for (std::size_t o = 0; o < outputs.size(); ++o) {
    const TensorView& y = outputs[o];
    for (std::int64_t to = 0; to < y.desc.shape[1]; ++to) {
      if (to > 0 && to < a.sizes[o]) ++c;
      const Channel& from = joined[c % groups * of_group + c / groups];
      copy_channel(*from.x, from.index, y, to);
    }
    if (a.sizes[o] > 0) ++c;
  }
}

}  // namespace

void register_reference_channel_shuffle(Registry& registry) {
  add_layer_kernel<ChannelShuffle>(registry, kReference, refuse_reduced_precision, run_channel_shuffle);
}

}  // namespace pipit::internal
