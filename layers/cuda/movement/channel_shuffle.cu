// Candidate "rows" of ChannelShuffle.
#include <algorithm>

#include "engine/base/ceil_div.h"
#include "layers/common/dispatch.h"
#include "layers/cuda/device/early_launch.cuh"
#include "layers/cuda/families.h"
#include "layers/cuda/movement/channel_shuffle_kernel.cuh"
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
  std::int64_t elements = 0;
  for (const TensorDesc& y : spec.outputs) {
    if (!is_channels_last(y)) return "outputs must be channels_last";
    elements += y.elements();
  }
  if (elements > std::numeric_limits<std::int32_t>::max() / 2) return "too many elements for 32-bit offsets";
  return std::nullopt;
}

class ShuffleRows final : public Kernel {
 public:
  explicit ShuffleRows(const NodeSpec& spec)
      : groups_(layer_as<ChannelShuffle>(spec.layer).attributes().groups) {
    PIPIT_CUDA(cudaDeviceGetAttribute(&processors_, cudaDevAttrMultiProcessorCount, spec.gpu));
    PIPIT_CUDA(can_overlap(reinterpret_cast<const void*>(&shuffle_rows<unsigned char, 1>), overlap_));
  }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    ShuffleArgs args;
    const int channels = side_by_side(inputs, args.x);
    side_by_side(outputs, args.y);
    args.groups = static_cast<unsigned>(groups_);
    args.of_group = static_cast<unsigned>(channels / groups_);
    std::int64_t elements = 0;
    for (const TensorView& y : outputs) elements += y.desc.elements();
    if (elements == 0) return;
    args.rows = static_cast<int>(elements / channels);
    with_element_size(outputs[0].desc.dtype, [&](auto size) {
      using T = Element<decltype(size)::value>;
      if constexpr (sizeof(T) <= 4) {
        if (divides<T, 4>(outputs)) return launch<T, 4>(args, channels, context);
        if (divides<T, 2>(outputs)) return launch<T, 2>(args, channels, context);
      }
      launch<T, 1>(args, channels, context);
    });
  }

 private:
  // Returns the channels of all of them.
  template <typename View, typename Pointer>
  static int side_by_side(std::span<const View> views, ShuffledRows<Pointer> (&rows)[kShuffleMost]) {
    int count = 0, channels = 0;
    for (const View& view : views) {
      const auto width = static_cast<int>(view.desc.shape[1]);
      if (width == 0) continue;
      rows[count++] = {view.data, channels, channels + width};
      channels += width;
    }
    return channels;
  }

  // Whether units of N channels lie within an output and where they may be written at once.
  template <typename T, int N>
  static bool divides(std::span<const TensorView> outputs) {
    return std::ranges::all_of(outputs, [](const TensorView& y) {
      return y.desc.shape[1] % N == 0 && reinterpret_cast<std::uintptr_t>(y.data) % (N * sizeof(T)) == 0;
    });
  }

  template <typename T, int N>
  void launch(ShuffleArgs args, int channels, const RunContext& context) const {
    // As many threads as the GPU holds at once, of a few rows at least.
    constexpr int kResident = 2048;
    args.units = channels / N;
    args.row_step = static_cast<int>(std::min<std::int64_t>(
        ceil_div(args.rows, kShuffleAtOnce),
        std::max<std::int64_t>(std::int64_t{processors_} * kResident / args.units, 1)));
    PIPIT_CUDA(launch_overlapping(
        shuffle_rows<T, N>, dim3(blocks_for(std::int64_t{args.row_step} * args.units, kShuffleThreads)),
        dim3(kShuffleThreads), overlap_, static_cast<cudaStream_t>(context.stream), args));
  }

  std::int64_t groups_;
  int processors_ = 0;
  bool overlap_ = false;
};

}  // namespace

void register_cuda_channel_shuffle(Registry& registry) {
  registry.add(ChannelShuffle::kType, DeviceKind::cuda,
               {"rows", refuse_shuffle, [](const NodeSpec& spec) {
                  return std::unique_ptr<Kernel>(std::make_unique<ShuffleRows>(spec));
                }});
}

}  // namespace pipit
