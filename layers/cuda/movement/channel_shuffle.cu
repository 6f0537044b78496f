// Candidate "rows" of ChannelShuffle.
#include <algorithm>
#include <numeric>

#include "layers/common/dispatch.h"
#include "layers/cuda/families.h"
#include "layers/cuda/movement/row_mover.cuh"
#include "layers/ops/channel_shuffle.h"

namespace pipit {

namespace {

using namespace cuda;

static_assert(kShuffleMost == ChannelShuffle::kMost);

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
    ShuffleArgs args;
    side_by_side(inputs, args.x, [&](std::size_t i, const TensorDesc& x) {
      return RowPart{a_.taken_of(i, x), x.shape[1]};
    });
    const int width = side_by_side(outputs, args.y, [&](std::size_t o, const TensorDesc& y) {
      return RowPart{a_.sizes[o], y.shape[1]};
    });
    const std::int64_t channels = std::accumulate(a_.sizes.begin(), a_.sizes.end(), std::int64_t{0});
    args.groups = static_cast<unsigned>(a_.groups);
    args.of_group = static_cast<unsigned>(channels / a_.groups);
    std::int64_t elements = 0;
    for (const TensorView& y : outputs) elements += y.desc.elements();
    if (elements == 0) return;
    args.rows = static_cast<int>(elements / width);
    with_element_size(outputs[0].desc.dtype, [&](auto size) {
      using T = Element<decltype(size)::value>;
      if constexpr (sizeof(T) <= 4) {
        if (divides<T, 4>(outputs)) return mover_.launch<T, 4>(args, width, context);
        if (divides<T, 2>(outputs)) return mover_.launch<T, 2>(args, width, context);
      }
      mover_.launch<T, 1>(args, width, context);
    });
  }

 private:
  // Whether units of N channels lie within an output and where they may be written at once.
  template <typename T, int N>
  static bool divides(std::span<const TensorView> outputs) {
    return std::ranges::all_of(outputs, [](const TensorView& y) {
      return y.desc.shape[1] % N == 0 && reinterpret_cast<std::uintptr_t>(y.data) % (N * sizeof(T)) == 0;
    });
  }

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

}  // namespace pipit
