// Candidate "rows" of ChannelShuffle.
#include <algorithm>
#include <vector>

#include "layers/cuda/families.h"
#include "layers/cuda/movement/row_mover.cuh"
#include "layers/ops/channel_shuffle.h"

namespace pipit::internal {

namespace {

using namespace cuda;

static_assert(kShuffleMax == ChannelShuffle::kMax);

Refusal refuse_shuffle(const NodeSpec& spec) {
  for (const TensorDesc* x : spec.inputs) {
    if (!is_channels_last(*x)) return "inputs must be channels_last";
    if (x->dtype != spec.outputs[0].dtype) return "an input has another element type";
  }
  std::int64_t elements = 0, channels = 0;
  for (const TensorDesc& y : spec.outputs) {
    if (!is_channels_last(y)) return "outputs must be channels_last";
    elements += y.elements(), channels += y.shape[1];
  }
  constexpr std::int64_t kLimit = std::numeric_limits<std::int32_t>::max() / 4;
  if (channels > kLimit || elements > kLimit * std::max<std::int64_t>(channels, 1))
    return "the rows are too long, or too many, for 32-bit numbers";
  return std::nullopt;
}

class ShuffleRows final : public Kernel {
 public:
  explicit ShuffleRows(const NodeSpec& spec)
      : a_(layer_as<ChannelShuffle>(spec.layer).attributes()), mover_(spec.gpu) {}

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const TensorDesc& first = outputs[0].desc;
    const auto element = static_cast<std::int64_t>(dtype_bytes(first.dtype));
    std::vector<RowPart<const void*>> x;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const TensorDesc& desc = inputs[i].desc;
      x.push_back({inputs[i].data, element * a_.taken_of(i, desc), element * desc.shape[1]});
    }
    std::vector<RowPart<void*>> y;
    std::int64_t elements = 0, width = 0;
    for (std::size_t o = 0; o < outputs.size(); ++o) {
      const TensorDesc& desc = outputs[o].desc;
      y.push_back({outputs[o].data, element * a_.sizes[o], element * desc.shape[1]});
      elements += desc.elements(), width += desc.shape[1];
    }
    if (elements == 0) return;
    mover_.run({x, y, a_.groups, element, elements / width}, context);
  }

 private:
  ChannelShuffleAttributes a_;
  RowMover mover_;
};

}  // namespace

void register_cuda_channel_shuffle(Registry& registry) {
  registry.add(ChannelShuffle::kType, DeviceKind::cuda,
               {"rows", refuse_shuffle, [](const NodeSpec& spec) {
                  return std::unique_ptr<Kernel>(std::make_unique<ShuffleRows>(spec));
                }});
}

}  // namespace pipit::internal
