// Candidate "rows" of ChannelShuffle, and of Split where the input's rows are made of the outputs': one launch for all.
#include <algorithm>

#include "engine/base/ceil_div.h"
#include "layers/common/dispatch.h"
#include "layers/cuda/device/early_launch.cuh"
#include "layers/cuda/device/row_concat.h"
#include "layers/cuda/families.h"
#include "layers/cuda/movement/channel_shuffle_kernel.cuh"
#include "layers/ops/channel_shuffle.h"
#include "layers/ops/slicing.h"

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

// Makes the launches of both candidates.
class RowMover {
 public:
  explicit RowMover(int gpu) {
    PIPIT_CUDA(cudaDeviceGetAttribute(&processors_, cudaDevAttrMultiProcessorCount, gpu));
    PIPIT_CUDA(can_overlap(reinterpret_cast<const void*>(&shuffle_rows<unsigned char, 1>), overlap_));
  }

  // Of rows of x and y, in elements of T, everything else is set.
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

 private:
  int processors_ = 0;
  bool overlap_ = false;
};

// The widths of the views' rows by `width`; returns their sum.
template <typename View, typename Pointer, typename Width>
int side_by_side(std::span<const View> views, ShuffledRows<Pointer> (&rows)[kShuffleMost],
                 const Width& width) {
  int count = 0, end = 0;
  for (const View& view : views) {
    const auto first = end;
    end += static_cast<int>(width(view.desc));
    if (end > first) rows[count++] = {view.data, first, end};
  }
  return end;
}

class ShuffleRows final : public Kernel {
 public:
  explicit ShuffleRows(const NodeSpec& spec)
      : groups_(layer_as<ChannelShuffle>(spec.layer).attributes().groups), mover_(spec.gpu) {}

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const auto width = [](const TensorDesc& desc) { return desc.shape[1]; };
    ShuffleArgs args;
    const int channels = side_by_side(inputs, args.x, width);
    side_by_side(outputs, args.y, width);
    args.groups = static_cast<unsigned>(groups_);
    args.of_group = static_cast<unsigned>(channels / groups_);
    std::int64_t elements = 0;
    for (const TensorView& y : outputs) elements += y.desc.elements();
    if (elements == 0) return;
    args.rows = static_cast<int>(elements / channels);
    with_element_size(outputs[0].desc.dtype, [&](auto size) {
      using T = Element<decltype(size)::value>;
      if constexpr (sizeof(T) <= 4) {
        if (divides<T, 4>(outputs)) return mover_.launch<T, 4>(args, channels, context);
        if (divides<T, 2>(outputs)) return mover_.launch<T, 2>(args, channels, context);
      }
      mover_.launch<T, 1>(args, channels, context);
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

  std::int64_t groups_;
  RowMover mover_;
};

int split_axis(const NodeSpec& spec) {
  return normalize_axis(layer_as<Split>(spec.layer).attributes().axis, spec.inputs[0]->shape.rank(), "Split");
}

Refusal refuse_split(const NodeSpec& spec) {
  if (spec.outputs.size() > kShuffleMost) return "more outputs than a launch has room for";
  std::vector<const TensorDesc*> outputs;
  for (const TensorDesc& y : spec.outputs) outputs.push_back(&y);
  return refuse_unless_rows(*spec.inputs[0], outputs, split_axis(spec));
}

// One group, whose channels stay in their order, in units as wide as all outputs allow.
class SplitRows final : public Kernel {
 public:
  explicit SplitRows(const NodeSpec& spec) : axis_(split_axis(spec)), mover_(spec.gpu) {}

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const TensorDesc& x = inputs[0].desc;
    if (x.elements() == 0) return;
    const auto bytes = [&](const TensorDesc& desc) {
      return step_along(desc, axis_) * desc.shape[axis_] * static_cast<std::int64_t>(dtype_bytes(desc.dtype));
    };
    std::uintptr_t all = reinterpret_cast<std::uintptr_t>(inputs[0].data);
    for (const TensorView& y : outputs)
      all |= reinterpret_cast<std::uintptr_t>(y.data) | static_cast<std::uintptr_t>(bytes(y.desc));
    const auto move = [&]<typename T>() {
      const auto width = [&](const TensorDesc& desc) {
        return bytes(desc) / static_cast<std::int64_t>(sizeof(T));
      };
      ShuffleArgs args;
      args.of_group = static_cast<unsigned>(side_by_side(inputs.first(1), args.x, width));
      side_by_side(outputs, args.y, width);
      args.rows = static_cast<int>(static_cast<std::int64_t>(x.bytes()) / bytes(x));
      mover_.launch<T, 1>(args, static_cast<int>(args.of_group), context);
    };
    if (all % 16 == 0) return move.operator()<uint4>();
    if (all % 8 == 0) return move.operator()<unsigned long long>();
    if (all % 4 == 0) return move.operator()<unsigned>();
    if (all % 2 == 0) return move.operator()<unsigned short>();
    move.operator()<unsigned char>();
  }

 private:
  int axis_;
  RowMover mover_;
};

}  // namespace

void register_cuda_channel_shuffle(Registry& registry) {
  registry.add(ChannelShuffle::kType, DeviceKind::cuda,
               {"rows", refuse_shuffle, [](const NodeSpec& spec) {
                  return std::unique_ptr<Kernel>(std::make_unique<ShuffleRows>(spec));
                }});
  registry.add(Split::kType, DeviceKind::cuda,
               {"rows", refuse_split, [](const NodeSpec& spec) {
                  return std::unique_ptr<Kernel>(std::make_unique<SplitRows>(spec));
                }});
}

}  // namespace pipit
