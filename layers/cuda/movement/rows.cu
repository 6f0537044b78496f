// Candidates "rows" of ChannelShuffle and Split, and the launch of that of Concat.
#include <algorithm>
#include <span>
#include <vector>

#include "engine/base/ceil_div.h"
#include "layers/cuda/device/kernel.cuh"
#include "layers/cuda/device/launch.cuh"
#include "layers/cuda/families.h"
#include "layers/cuda/movement/row_parts.h"
#include "layers/cuda/movement/rows_kernel.cuh"
#include "layers/ops/channel_shuffle.h"
#include "layers/ops/slicing.h"

namespace pipit::internal::cuda {

/// A tensor's part of a row, in bytes: those that are moved, and all.
template <typename Pointer>
struct RowPart {
  Pointer data;
  std::int64_t used, width;
};

struct RowMove {
  std::span<const RowPart<const void*>> x;
  std::span<const RowPart<void*>> y;
  std::int64_t groups = 1, element = 1;  ///< element: bytes of what one group follows the other by
  std::int64_t rows = 0;
};

/// Launches kernels that move rows of inputs to rows of outputs.
class RowMover {
 public:
  explicit RowMover(int gpu) {
    PIPIT_CUDA(cudaDeviceGetAttribute(&processors_, cudaDevAttrMultiProcessorCount, gpu));
    PIPIT_CUDA(can_overlap(reinterpret_cast<const void*>(&shuffle_rows<unsigned char, 1>), overlap_));
  }

  void run(const RowMove& move, const RunContext& context) const {
    if (move.rows == 0) return;
    // With one group whole runs of channels are moved, in units as wide as every part of a row allows.
    auto all = static_cast<std::uintptr_t>(move.element);
    if (move.groups == 1) {
      all = 16;
      for (const auto& part : move.x) all |= bits(part) | static_cast<std::uintptr_t>(part.used);
      for (const auto& part : move.y) all |= bits(part) | static_cast<std::uintptr_t>(part.used);
    }
    if (all % 16 == 0) return launch<uint4, 1>(move, context);
    if (all % 8 == 0) return launch<std::uint64_t, 1>(move, context);
    if (all % 4 == 0) return launch_several<unsigned>(move, context);
    if (all % 2 == 0) return launch_several<unsigned short>(move, context);
    launch_several<unsigned char>(move, context);
  }

 private:
  template <typename Pointer>
  static std::uintptr_t bits(const RowPart<Pointer>& part) {
    return reinterpret_cast<std::uintptr_t>(part.data) | static_cast<std::uintptr_t>(part.width);
  }

  // As many neighbours at once as lie within an output and may be written together.
  template <typename T>
  void launch_several(const RowMove& move, const RunContext& context) const {
    std::uintptr_t outputs = 0;
    for (const auto& part : move.y) outputs |= bits(part);
    if (outputs % (4 * sizeof(T)) == 0) return launch<T, 4>(move, context);
    if (outputs % (2 * sizeof(T)) == 0) return launch<T, 2>(move, context);
    launch<T, 1>(move, context);
  }

  template <typename T, int N>
  void launch(const RowMove& move, const RunContext& context) const {
    ShuffleArgs args;
    const Sums channels = side_by_side<T>(move.x, args.x);
    const Sums outputs = side_by_side<T>(move.y, args.y);
    args.groups = static_cast<unsigned>(move.groups);
    args.of_group = static_cast<unsigned>(channels.used) / args.groups;
    args.rows = static_cast<int>(move.rows);
    // As many threads as the GPU holds at once, of a few rows at least.
    constexpr int kResident = 2048;
    args.units = outputs.width / N;
    args.row_step = static_cast<int>(std::min<std::int64_t>(
        ceil_div(args.rows, kShuffleAtOnce),
        std::max<std::int64_t>(std::int64_t{processors_} * kResident / args.units, 1)));
    const dim3 blocks(blocks_for(std::int64_t{args.row_step} * args.units, kShuffleThreads));
    PIPIT_CUDA(launch_kernel(shuffle_rows<T, N>, {blocks, dim3(kShuffleThreads), 0, overlap_},
                             static_cast<cudaStream_t>(context.stream), args));
  }

  struct Sums {
    int used = 0, width = 0;
  };
  template <typename T, typename Pointer>
  static Sums side_by_side(std::span<const RowPart<Pointer>> parts,
                           ShuffledRows<Pointer> (&rows)[kShuffleMax]) {
    constexpr std::int64_t kBytes = sizeof(T);
    Sums sums;
    int count = 0;
    for (const auto& [data, used, width] : parts) {
      sums.used += static_cast<int>(used / kBytes);
      sums.width += static_cast<int>(width / kBytes);
      if (width > 0) rows[count++] = {data, sums.used, static_cast<int>(width / kBytes)};
    }
    return sums;
  }

  int processors_ = 0;
  bool overlap_ = false;
};

}  // namespace pipit::internal::cuda

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

// Candidate "rows" of Split: where the rows of its outputs make up those of its input, one launch for all of them.

namespace {

int split_axis(const NodeSpec& spec) {
  return normalize_axis(layer_as<Split>(spec.layer).attributes().axis, spec.inputs[0]->shape.rank(), "Split");
}

Refusal refuse_split(const NodeSpec& spec) {
  if (spec.outputs.size() > kShuffleMax) return "more outputs than a launch has room for";
  std::vector<const TensorDesc*> outputs;
  for (const TensorDesc& y : spec.outputs) outputs.push_back(&y);
  return refuse_unless_rows(*spec.inputs[0], outputs, split_axis(spec));
}

class SplitRows final : public Kernel {
 public:
  explicit SplitRows(const NodeSpec& spec) : axis_(split_axis(spec)), mover_(spec.gpu) {}

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const TensorDesc& x = inputs[0].desc;
    if (x.elements() == 0) return;
    const auto part = [&](auto data, const TensorDesc& desc) {
      const std::int64_t bytes =
          step_along(desc, axis_) * desc.shape[axis_] * static_cast<std::int64_t>(dtype_bytes(desc.dtype));
      return RowPart<decltype(data)>{data, bytes, bytes};
    };
    const RowPart whole = part(static_cast<const void*>(inputs[0].data), x);
    std::vector<RowPart<void*>> parts;
    for (const TensorView& y : outputs) parts.push_back(part(static_cast<void*>(y.data), y.desc));
    mover_.run(
        {.x = std::span(&whole, 1), .y = parts, .rows = static_cast<std::int64_t>(x.bytes()) / whole.width},
        context);
  }

 private:
  int axis_;
  RowMover mover_;
};

}  // namespace

void register_cuda_split_rows(Registry& registry) {
  registry.add(Split::kType, DeviceKind::cuda,
               {"rows", refuse_split, [](const NodeSpec& spec) {
                  return std::unique_ptr<Kernel>(std::make_unique<SplitRows>(spec));
                }});
}

}  // namespace pipit::internal

// The kernels of rows side by side that are compiled, and their launch.

namespace pipit::internal::cuda {

namespace {

using namespace concat;

template <typename Then>
cudaError_t launch(const ConcatRowsArgs& args, bool overlap, cudaStream_t stream) {
  // As many threads as the GPU holds at once, of a few rows at least.
  constexpr int kResident = 2048;
  const int units = args.columns / static_cast<int>(sizeof(typename Then::Unit));
  const auto row_step = static_cast<int>(
      std::min<std::int64_t>(ceil_div(args.rows, kAtOnce),
                             std::max<std::int64_t>(std::int64_t{args.processors} * kResident / units, 1)));
  const std::int64_t blocks = ceil_div(std::int64_t{row_step} * units, concat::kThreads);
  return launch_kernel(copy_rows<Then>,
                       {dim3(static_cast<unsigned>(blocks)), dim3(concat::kThreads), 0, overlap}, stream,
                       args, units, row_step);
}

// Whether every part begins and ends on a multiple of `unit` bytes.
bool divides(const ConcatRowsArgs& args, unsigned unit) {
  std::uintptr_t all = reinterpret_cast<std::uintptr_t>(args.y) | static_cast<std::uintptr_t>(args.pitch);
  for (int i = 0; i < args.count; ++i)
    all |= reinterpret_cast<std::uintptr_t>(args.part[i].x) | static_cast<unsigned>(args.part[i].end);
  return all % unit == 0;
}

}  // namespace

cudaError_t concat_rows_overlaps(bool& result) {
  return can_overlap(reinterpret_cast<const void*>(&copy_rows<Unchanged<uint4>>), result);
}

cudaError_t launch_concat_rows(ConcatThen then, const ConcatRowsArgs& args, bool overlap,
                               cudaStream_t stream) {
  const auto wide_or_one = [&]<typename Wide, typename One>() {
    return divides(args, sizeof(typename Wide::Unit)) ? launch<Wide>(args, overlap, stream)
                                                      : launch<One>(args, overlap, stream);
  };
  switch (then) {
    case ConcatThen::halves:
      return wide_or_one.operator()<Scaled<__half, 8>, Scaled<__half, 1>>();
    case ConcatThen::bfloats:
      return wide_or_one.operator()<Scaled<__nv_bfloat16, 8>, Scaled<__nv_bfloat16, 1>>();
    case ConcatThen::floats:
      return wide_or_one.operator()<Scaled<float, 4>, Scaled<float, 1>>();
    case ConcatThen::bytes:
      return wide_or_one.operator()<Requantized<8>, Requantized<1>>();
    case ConcatThen::nothing:
      break;
  }
  if (divides(args, 16)) return launch<Unchanged<uint4>>(args, overlap, stream);
  if (divides(args, 8)) return launch<Unchanged<uint2>>(args, overlap, stream);
  if (divides(args, 4)) return launch<Unchanged<unsigned>>(args, overlap, stream);
  if (divides(args, 2)) return launch<Unchanged<unsigned short>>(args, overlap, stream);
  return launch<Unchanged<unsigned char>>(args, overlap, stream);
}

}  // namespace pipit::internal::cuda
