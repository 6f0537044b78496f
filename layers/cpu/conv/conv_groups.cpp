// Convolution of small groups on NHWC data, with any window in one or two dimensions.
#include <algorithm>
#include <type_traits>

#include "engine/base/ceil_div.h"
#include "layers/common/layer_kernel.h"
#include "layers/cpu/conv/fused_source.h"
#include "layers/cpu/conv/group_windows.h"
#include "layers/cpu/conv/window_conv.h"
#include "layers/cpu/elementwise/epilogue.h"
#include "layers/cpu/families.h"
#include "layers/cpu/tile/tile_kernel.h"
#include "layers/cpu/work_sharing.h"
#include "layers/ops/conv.h"
#include "layers/ops/operands.h"

namespace pipit::internal {

namespace {

GroupWindows::Geometry geometry_of(const NodeSpec& spec) {
  const ConvAttributes& attributes = layer_as<Conv>(spec.layer).attributes();
  return {attributes.window, spec.inputs[0]->shape, spec.outputs[0].shape, attributes.groups};
}

Refusal refuse_groups_shape(const NodeSpec& spec) {
  if (const auto reason = GroupWindows::refuse(geometry_of(spec))) return *reason;
  return std::nullopt;
}

Refusal refuse_groups(const NodeSpec& spec) {
  return refuse_window_conv(spec, refuse_groups_shape);
}

// One panel of a source is some of ours.
bool fuses_producer_of_groups(const NodeSpec& spec) {
  return pays_to_compute_input(spec) && GroupWindows::takes_pieces(geometry_of(spec));
}

// T: what activations are stored in.
template <typename T>
class GroupConv final : public Kernel {
 public:
  explicit GroupConv(const NodeSpec& spec)
      : activation_(layer_as<Conv>(spec.layer).attributes().activation),
        epilogue_(1, spec.fusion.followers),
        source_(spec.fusion.producer != nullptr ? std::make_unique<FusedSource>(spec) : nullptr),
        windows_(geometry_of(spec), false, spec.threads, source_ ? source_->rows().piece_channels() : 0),
        channels_(spec.outputs[0].shape[1]),
        packed_(windows_.pack(to_layout(spec.constant(1)->view(), Layout::row_major).values<float>().data())),
        worker_bytes_(worker_stride(windows_.worker_bytes() + std::max(own_bytes(), source_bytes()))),
        scratch_bytes_(static_cast<std::size_t>(spec.threads) * worker_bytes_) {}

  std::size_t scratch_bytes() const override { return scratch_bytes_; }
  bool reads_constant(std::size_t index) const override {
    return source_ ? source_->kernel().reads_constant(index) : index != 1;
  }
  double kept_share() const override { return source_ ? source_->kernel().kept_share() : 1; }
  std::vector<KernelWork> work() const override {
    std::vector<KernelWork> parts;
    if (source_) parts = source_->work();
    parts.push_back({windows_.macs(), Products::fp32, f32_tiles().isa});
    return parts;
  }
  std::size_t packed_bytes() const override {
    return packed_.size() * sizeof(float) + (source_ ? source_->kernel().packed_bytes() : 0);
  }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const T* x = source_ ? nullptr : inputs[0].as<T>();
    const float* bias = source_ ? source_->bias() : optional_data<float>(inputs, 2);
    const T* residual = source_ ? nullptr : optional_data<T>(inputs, 3);
    T* y = outputs[0].as<T>();
    const WindowStorage<T>& storage = stored_kernels<T>().windows;
    const auto finish = [&](const GroupWindows::Part& part, std::byte* scratch) {
      WindowOutput<T> output = part.output<T>();
      DepthwiseTile<T>& tile = output.tile;
      if (bias != nullptr) tile.bias = windows_.repeats() ? repeated(bias, scratch) : bias;
      if (residual != nullptr) tile.residual = residual + part.offset;
      tile.y = y + part.offset;
      tile.low = activation_.low;
      tile.high = activation_.high;
      storage.finish(output);
    };
    const auto finished = [&](const GroupWindows::Tile& tile, std::byte* scratch) {
      if (epilogue_.empty()) return;
      const SpanRows rows{tile.channels, tile.pixels, tile.step};
      if constexpr (std::is_same_v<T, float>) {
        epilogue_.apply(y + tile.offset, tile.channel, rows);
      } else {
        epilogue_.apply(y + tile.offset, tile.channel, rows, reinterpret_cast<float*>(scratch));
      }
    };
    const auto fill = [&](const GroupWindows::Rows& rows, std::byte* scratch) {
      if (source_) {
        compute_rows(inputs, rows, scratch);
      } else {
        windows_.stage(x, 0.0F, storage, rows);
      }
    };
    windows_.run(packed_.data(), context, worker_bytes_, fill, finish, finished);
  }

 private:
  // A row of results in f32, or the bias of a register that holds several pixels.
  std::size_t own_bytes() const {
    return static_cast<std::size_t>(channels_ + row_kernels().lanes) * sizeof(float);
  }
  // Rows of halves as the source computes them, then its own.
  std::size_t piece_bytes() const {
    return std::is_same_v<T, float>
               ? 0
               : static_cast<std::size_t>(round_up(windows_.piece_elements(), std::int64_t{64})) * sizeof(T);
  }
  std::size_t source_bytes() const {
    return source_ ? piece_bytes() + source_->rows().piece_scratch_bytes() : 0;
  }
  void compute_rows(std::span<const ConstTensorView> inputs, const GroupWindows::Rows& rows,
                    std::byte* scratch) const {
    std::byte* to = std::is_same_v<T, float> ? reinterpret_cast<std::byte*>(rows.to) : scratch;
    source_->rows().compute_piece(inputs, rows.image, rows.begin, rows.end, rows.block, to, rows.pitch,
                                  scratch + piece_bytes());
    if constexpr (!std::is_same_v<T, float>) {
      const std::int64_t pitch = rows.pitch * rows.channels;
      StagedPixels<T> pixels{
          reinterpret_cast<const T*>(scratch), pitch, rows.to, pitch, rows.end - rows.begin,
          rows.pixels * rows.channels,         0.0F};
      stored_kernels<T>().windows.stage(pixels);
    }
  }
  const float* repeated(const float* bias, std::byte* scratch) const {
    float* to = reinterpret_cast<float*>(scratch);
    for (std::int64_t l = 0; l < row_kernels().lanes; ++l) to[l] = bias[l % channels_];
    return to;
  }

  Clamp activation_;
  Epilogue epilogue_;
  std::unique_ptr<const FusedSource> source_;  // computes the input, or null
  GroupWindows windows_;
  std::int64_t channels_;
  std::vector<float> packed_;
  std::size_t worker_bytes_;
  std::size_t scratch_bytes_;
};

}  // namespace

void register_cpu_conv_groups(Registry& registry) {
  add_window_conv<GroupConv>(registry, "small_groups", refuse_groups, fuses_producer_of_groups);
}

}  // namespace pipit::internal
