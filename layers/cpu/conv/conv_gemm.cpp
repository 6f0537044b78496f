// Convolution as a matrix product: patches [pixels, K] times filters [K, O / groups], group by group, tile by
// tile of output pixels. Every element is summed up in an order that depends on the shapes alone.
#include "engine/graph/shared_buffer.h"
#include "layers/common/layer_kernel.h"
#include "layers/cpu/conv/im2col.h"
#include "layers/cpu/elementwise/epilogue.h"
#include "layers/cpu/families.h"
#include "layers/cpu/linear/gemm.h"
#include "layers/cpu/vector/channel_rows.h"
#include "layers/ops/conv.h"
#include "layers/ops/operands.h"

namespace pipit::internal {

namespace {

// A tile's patches of one depth block are 72 KiB: they stay in the second-level cache beside the filters.
constexpr std::int64_t kMaxTileRows = 96;

Refusal refuse_conv(const NodeSpec& spec) {
  if (Refusal reason = refuse_unless_f32(spec)) return reason;
  if (spec.inputs[0]->shape.rank() != 4) return "only two spatial dimensions are handled";
  if (spec.constant(1) == nullptr) return "weights are computed at run time";
  if (!is_channels_last(spec.outputs[0])) return "the output must be channels_last";
  if (spec.has_input(3) && !is_channels_last(*spec.inputs[3])) return "the residual must be channels_last";
  return std::nullopt;
}

class ConvGemm final : public Kernel {
 public:
  explicit ConvGemm(const NodeSpec& spec)
      : epilogue_(1, spec.fusion.followers),
        groups_(layer_as<Conv>(spec.layer).attributes().groups),
        patches_(*spec.inputs[0], spec.outputs[0].shape, layer_as<Conv>(spec.layer).attributes().window,
                 groups_) {
    const ConvAttributes& attributes = layer_as<Conv>(spec.layer).attributes();
    const Shape& y = spec.outputs[0].shape;
    activation_ = attributes.activation;
    group_outputs_ = y[1] / groups_;
    pixels_ = y[0] * y[2] * y[3];
    tile_ = tile_rows(pixels_, kMaxTileRows);
    tiles_ = (pixels_ + tile_ - 1) / tile_;
    blocking_ =
        GemmBlocking(patches_.size(), group_outputs_, share_columns(tiles_ * groups_, group_outputs_));
    pack(*spec.constant(1));
    patch_floats_ = blocking_.workspace_floats(tile_);
    worker_floats_ = 2 * patch_floats_;
    scratch_bytes_ = worker_floats_ * sizeof(float) * static_cast<std::size_t>(spec.threads);
  }

  std::size_t scratch_bytes() const override { return scratch_bytes_; }
  bool reads_constant(std::size_t index) const override { return index != 1; }
  std::size_t packed_bytes() const override { return packed_.bytes(); }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const float* x = inputs[0].as<float>();
    const float* bias = optional_data<float>(inputs, 2);
    const float* residual = optional_data<float>(inputs, 3);
    float* y = outputs[0].as<float>();
    float* scratch = reinterpret_cast<float*>(context.scratch);
    const std::int64_t blocks = blocking_.n_blocks();
    context.pool.parallel_for(tiles_ * groups_ * blocks, [&](std::int64_t task, int worker) {
      const Tile tile{task / (groups_ * blocks) * tile_, task / blocks % groups_, task % blocks};
      compute(tile, x, bias, residual, y, scratch + static_cast<std::size_t>(worker) * worker_floats_);
    });
  }

 private:
  struct Tile {
    std::int64_t first_pixel;
    std::int64_t group;
    std::int64_t block;
  };

  void pack(const Tensor& weights) {
    const std::int64_t k = blocking_.k;
    const Tensor plain = to_layout(weights.view(), Layout::row_major);
    HostBuffer ordered(static_cast<std::size_t>(k * group_outputs_) * sizeof(float));
    float* rows = reinterpret_cast<float*>(ordered.data());
    HostBuffer packed(blocking_.packed_floats() * sizeof(float) * static_cast<std::size_t>(groups_));
    for (std::int64_t g = 0; g < groups_; ++g) {
      patches_.reorder_filters(plain.values<float>().data() + g * group_outputs_ * k, group_outputs_, rows);
      for (std::int64_t block = 0; block < blocking_.n_blocks(); ++block) {
        pack_block_column(blocking_, MatrixView{rows, k, true}, block,
                          reinterpret_cast<float*>(packed.data()) + group_offset(g));
      }
    }
    packed_ = SharedBuffer(std::move(packed));
  }

  std::size_t group_offset(std::int64_t group) const {
    return static_cast<std::size_t>(group) * blocking_.packed_floats();
  }

  void compute(const Tile& tile, const float* x, const float* bias, const float* residual, float* y,
               float* scratch) const {
    const std::int64_t channel = tile.group * group_outputs_ + tile.block * blocking_.n_block;
    const std::int64_t output_channels = groups_ * group_outputs_;
    const std::int64_t offset = tile.first_pixel * output_channels + channel;
    const Rows rows{y + offset, output_channels, std::min(tile_, pixels_ - tile.first_pixel),
                    blocking_.width(tile.block)};
    start_rows(rows, bias != nullptr ? bias + channel : nullptr,
               residual != nullptr ? residual + offset : nullptr, output_channels);
    const float* packed = reinterpret_cast<const float*>(packed_.data()) + group_offset(tile.group);
    float* workspace = scratch + patch_floats_;
    for (std::int64_t i = 0; i < blocking_.k_blocks(); ++i) {
      const std::int64_t depth = blocking_.depth(i);
      patches_.read(x, tile.group, tile.first_pixel, rows.count, i * blocking_.k_block, depth, scratch);
      gemm_isa().accumulate(rows.count, rows.channels, depth, 1, MatrixView{scratch, depth},
                            packed + blocking_.offset(i, tile.block), rows.data, rows.stride, workspace);
    }
    clamp_rows(rows, activation_);
    if (epilogue_.empty()) return;
    epilogue_.apply(rows.data, channel, {rows.channels, rows.count, rows.stride});
  }

  Clamp activation_;
  Epilogue epilogue_;
  std::int64_t groups_ = 1;
  PatchReader patches_;
  std::int64_t group_outputs_ = 0;
  std::int64_t pixels_ = 0;  // of all images
  std::int64_t tile_ = 0;    // output pixels per tile
  std::int64_t tiles_ = 0;
  GemmBlocking blocking_;
  SharedBuffer packed_;  // the filters, group by group
  // Scratch of one worker: patches of one depth block, then the packed form of them.
  std::size_t patch_floats_ = 0;
  std::size_t worker_floats_ = 0;
  std::size_t scratch_bytes_ = 0;
};

}  // namespace

void register_cpu_conv_im2col(Registry& registry) {
  Candidate gemm{"im2col_gemm", refuse_conv,
                 [](const NodeSpec& spec) { return std::make_unique<ConvGemm>(spec); }};
  gemm.fusions.epilogue = fuses_image_epilogue;
  registry.add(Conv::kType, DeviceKind::cpu, std::move(gemm));
}

}  // namespace pipit::internal
