#include <fmt/format.h>

#include "layers/common/layer_kernel.h"
#include "layers/cuda/conv/gemm_problem.h"
#include "layers/cuda/conv/resident_gemm/plan.h"
#include "layers/cuda/conv/tensor_map.h"
#include "layers/cuda/cost/launch_cost.h"
#include "layers/cuda/device/gpu_info.h"
#include "layers/cuda/families.h"
#include "layers/ops/conv.h"
#include "layers/ops/qconv.h"

namespace pipit::internal::cuda {

namespace {

constexpr int kChunkBytes = 16;
constexpr int kMaxBox = 256;  // pixels of one copy
constexpr int kAhead = 4;     // products whose places are read before it is known whether they exist

int pixel_bytes_of(const ConvShape& shape) {
  return shape.in_c * 2 <= 64 ? 64 : 128;
}

// Rows of the stream that the positions [first, first + count) read.
int rows_read(const ConvShape& shape, int in_rows, std::int64_t first, std::int64_t count) {
  const auto row_of = [&](std::int64_t position) {
    const std::int64_t image = position / (shape.out_h * shape.out_w);
    const std::int64_t rest = position % (shape.out_h * shape.out_w);
    return image * in_rows + rest / shape.out_w * shape.stride_h;
  };
  const std::int64_t last = std::min(first + count, shape.rows()) - 1;
  return static_cast<int>(row_of(last) - row_of(first)) + (shape.kernel_h - 1) * shape.dilation_h + 1;
}

// The maximum number of rows that `count` consecutive tiles read.
int rows_of_tiles(const ConvShape& shape, int in_rows, int count) {
  int most = 0;
  // After as many tiles as an image has positions everything repeats itself.
  const std::int64_t tiles =
      std::min(ceil_div(shape.rows(), kResidentRows), std::int64_t{shape.out_h} * shape.out_w);
  for (std::int64_t t = 0; t < tiles; ++t)
    most = std::max(most, rows_read(shape, in_rows, t * kResidentRows, std::int64_t{count} * kResidentRows));
  return most;
}

ResidentPlan plan_of(const ConvShape& shape, const KeptDepth& depth, int columns) {
  ResidentPlan plan;
  plan.columns = columns;
  plan.groups = most_resident_groups(columns);
  plan.pixel_bytes = pixel_bytes_of(shape);
  plan.planes = static_cast<int>(ceil_div(shape.in_c * 2, plan.pixel_bytes));
  plan.box_pixels = (shape.out_w - 1) * shape.stride_w + (shape.kernel_w - 1) * shape.dilation_w + 1;
  plan.pitch = static_cast<int>(ceil_div(plan.box_pixels, 8)) * 8;
  plan.in_rows = (shape.out_h - 1) * shape.stride_h + (shape.kernel_h - 1) * shape.dilation_h + 1;
  plan.steps = depth.most_steps(columns);
  plan.places = plan.steps * (kTileDepth / 16) + kAhead;
  const int fixed = plan.steps * columns * kTileDepth * 2 + plan.places * 2 * static_cast<int>(sizeof(int));
  const int left = kResidentShared - kResidentReserved - 1024 - fixed;  // 1024: to begin at a multiple of it
  plan.ring_rows = left > 0 ? std::min(left / plan.row_bytes(), kResidentMaxRing) : 0;
  plan.shared_bytes = fixed + plan.ring_rows * plan.row_bytes() + 1024;
  return plan;
}

}  // namespace

std::string ResidentPlan::name() const {
  return fmt::format("{}/{}", columns, groups);
}

std::optional<std::string> refuse_resident(const ConvShape& shape, const KeptDepth& depth) {
  if (shape.out_c % 8 != 0) return "outputs must be a multiple of 8";
  const ResidentPlan narrow = plan_of(shape, depth, 64);
  if (narrow.box_pixels > kMaxBox)
    return fmt::format("rows of {} pixels; at most {} are copied at once", narrow.box_pixels, kMaxBox);
  // Only the rows and pixels that windows begin at would be needed.
  if (shape.stride_h > (shape.kernel_h - 1) * shape.dilation_h + 1 ||
      shape.stride_w > (shape.kernel_w - 1) * shape.dilation_w + 1)
    return "windows leave out pixels of x";
  const int rows = rows_of_tiles(shape, narrow.in_rows, 1);
  if (narrow.steps > kResidentMaxSteps || narrow.ring_rows < rows)
    return fmt::format(
        "the weights of 64 outputs ({} KiB) and {} rows of x ({} KiB) do not fit into shared memory",
        narrow.steps * 64 * kTileDepth * 2 >> 10, rows, rows * narrow.row_bytes() >> 10);
  return std::nullopt;
}

std::vector<ResidentPlan> resident_plans(const ConvShape& shape, const KeptDepth& depth) {
  std::vector<ResidentPlan> plans;
  if (refuse_resident(shape, depth)) return plans;
  for (const int columns : {128, 64}) {
    ResidentPlan plan = plan_of(shape, depth, columns);
    if (columns == 128 && (shape.out_c <= 64 || plan.steps > kResidentMaxSteps ||
                           plan.ring_rows < rows_of_tiles(shape, plan.in_rows, 1)))
      continue;
    for (; plan.groups >= 1; --plan.groups) {
      // From a group's tile to its next lie less than two rounds of the ring: its rows have two barriers.
      if (rows_of_tiles(shape, plan.in_rows, plan.groups + 1) <= 2 * plan.ring_rows) plans.push_back(plan);
    }
  }
  return plans;
}

int resident_blocks(const ConvShape& shape, const KeptDepth& depth, int tile, int columns) {
  if (depth.all()) return static_cast<int>(shape.depth() / block_units(shape));
  return static_cast<int>(depth.blocks(tile, columns).size());
}

std::vector<int> resident_places(const ConvShape& shape, const KeptDepth& depth, const ResidentPlan& plan) {
  const int per_tap = shape.in_c / block_units(shape);
  const int per_plane = plan.pixel_bytes / kChunkBytes;
  const auto tiles = static_cast<std::size_t>(ceil_div(shape.out_c, plan.columns));
  const auto half = static_cast<std::size_t>(plan.places);
  std::vector<int> all(tiles * half * 2);
  for (std::size_t tile = 0; tile < tiles; ++tile) {
    std::size_t i = 0;
    for (const int block : depth.blocks(static_cast<int>(tile), plan.columns)) {
      const int down = block / per_tap / shape.kernel_w * shape.dilation_h;
      const int right = block / per_tap % shape.kernel_w * shape.dilation_w;
      const int chunk = block % per_tap;
      all[(tile * 2 + i % 2) * half + i / 2] = down * plan.row_bytes() +
                                               chunk / per_plane * plan.plane_bytes() +
                                               right * plan.pixel_bytes + chunk % per_plane * kChunkBytes;
      ++i;
    }
  }
  return all;
}

bool places_are_paired(const ResidentPlan& plan, const std::vector<int>& places) {
  for (std::size_t half = 0; half < places.size(); half += static_cast<std::size_t>(plan.places)) {
    for (std::size_t i = half; i + 1 < half + static_cast<std::size_t>(plan.places); i += 2) {
      const bool filler = places[i] == 0 && places[i + 1] == 0;
      if (!filler && (places[i] % 64 >= 32 || places[i + 1] != places[i] + 32)) return false;
    }
  }
  return true;
}

}  // namespace pipit::internal::cuda

namespace pipit::internal {

namespace {

using namespace cuda;

/// A plan and whether its launch overlaps with the previous kernel.
struct ResidentVariant {
  ResidentPlan plan;
  bool overlap = true;
  std::string name() const { return plan.name() + (overlap ? "+overlap" : ""); }
};

/// What no instance handles, beside what refuse_conv_gemm names.
Refusal refuse_resident_gemm(const NodeSpec& spec, const ConvShape& shape) {
  if (!is_channels_last(*spec.inputs[0])) return "x must be channels_last";
  if (!has_hopper_kernels()) return "only Hopper's GPUs are handled";
  return refuse_resident(shape, blocks_with_weights(spec, shape));
}

/// What the variant is expected to take.
Estimate variant_estimate(const NodeSpec& spec, const ConvShape& shape, const ResidentVariant& variant) {
  const int processors = processors_of(spec.gpu);
  const std::int64_t tiles = ceil_div(shape.rows(), kResidentRows),
                     column_tiles = ceil_div(shape.out_c, variant.plan.columns);
  const std::int64_t workers = std::clamp<std::int64_t>(processors / column_tiles, 1, tiles);
  LaunchTerms terms;
  terms.steps = variant.plan.steps;
  terms.rounds = static_cast<double>(ceil_div(tiles, workers) * ceil_div(column_tiles, processors));
  terms.blocks = static_cast<double>(tiles * column_tiles) / processors;
  terms.megabytes = operand_megabytes(spec);
  terms.again = 1e-6 * static_cast<double>(spec.inputs[0]->bytes()) * static_cast<double>(column_tiles - 1);
  terms.waits = variant.overlap ? 0 : 1;
  return estimate_of(fmt::format("resident_gemm {} {}", shape.int8 ? "i8" : "f16", variant.plan.name()),
                     terms);
}

/// The one with the least estimate first.
std::vector<ResidentVariant> resident_variants(const NodeSpec& spec, const ConvShape& shape) {
  std::vector<ResidentVariant> variants;
  for (const ResidentPlan& plan : resident_plans(shape, blocks_with_weights(spec, shape))) {
    // A group alone was never faster than two.
    if (variants.empty() || plan.groups > 1) variants.push_back({plan, true});
    if (variants.size() == 1) variants.push_back({plan, false});
  }
  return least_first(std::move(variants),
                     [&](const ResidentVariant& variant) { return variant_estimate(spec, shape, variant); });
}

/// The one that the spec names, or the first. Throws Error when there is none of that name.
ResidentVariant resident_variant(const NodeSpec& spec, const ConvShape& shape) {
  return find_variant(resident_variants(spec, shape), spec.variant);
}

Estimate resident_estimate(const NodeSpec& spec, const ConvShape& shape) {
  return variant_estimate(spec, shape, resident_variant(spec, shape));
}

class ResidentGemm : public PackedKernel {
 public:
  ResidentGemm(const NodeSpec& spec, const ConvShape& shape) : depth_(blocks_with_weights(spec, shape)) {
    const auto [plan, overlap] = resident_variant(spec, shape);
    args_.conv = conv_gemm_args(shape, depth_, {kResidentRows, plan.columns, 1});
    args_.conv.overlap = overlap;
    args_.plan = plan;
    const std::vector<int> places = resident_places(shape, depth_, plan);
    args_.places = keep(places);
    args_.paired = places_are_paired(plan, places);
    std::vector<int> blocks;
    for (int tile = 0; tile * plan.columns < shape.out_c; ++tile)
      blocks.push_back(resident_blocks(shape, depth_, tile, plan.columns));
    args_.blocks = blocks[0];
    if (std::any_of(blocks.begin(), blocks.end(), [&](int b) { return b != blocks[0]; }))
      args_.tile_blocks = keep(blocks);
    const auto tiles = static_cast<int>(ceil_div(shape.rows(), kResidentRows));
    const auto column_tiles = static_cast<int>(blocks.size());
    args_.workers = std::clamp(processors_of(spec.gpu) / column_tiles, 1, tiles);
    args_.least_tiles = tiles / args_.workers;
    args_.more_tiles = tiles % args_.workers;
    args_.ring = Divisor(plan.ring_rows);
    args_.barriers = Divisor(2 * plan.ring_rows);
  }
  double kept_share() const override { return depth_.share(args_.plan.columns); }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    ResidentArgs args = args_;
    args.x = x_map(inputs[0].data);
    args.conv.residual = inputs.size() > 3 ? inputs[3].data : nullptr;
    args.conv.y = outputs[0].data;
    PIPIT_CUDA(launch_resident_gemm(args, static_cast<cudaStream_t>(context.stream)));
  }

 protected:
  /// Packed weights on the GPU; everything else is set.
  void prepare(const void* weights) {
    const ResidentPlan& plan = args_.plan;
    constexpr int kStepBytes = kTileDepth * 2;
    args_.weights =
        matrix_map(weights, std::int64_t{plan.steps} * kStepBytes,
                   ceil_div(args_.conv.shape.out_c, plan.columns) * plan.columns, kStepBytes, plan.columns);
    PIPIT_CUDA(prepare_resident_gemm(args_));
    x_map(weights);  // throws what is wrong with the geometry, if anything, before the first run
  }

  KeptDepth depth_;
  ResidentArgs args_;

 private:
  CUtensorMap x_map(const void* x) const {
    return row_map(x, args_.conv.shape, args_.plan.pixel_bytes, args_.plan.box_pixels);
  }
};

/// What both candidates share; shape_of: the convolution of a node.
template <typename K>
Candidate resident_candidate(Refusal (*refuse)(const NodeSpec&), ConvShape (*shape_of)(const NodeSpec&),
                             bool (*fuses)(const NodeSpec&, const NodeSpec&)) {
  Candidate candidate{
      "resident_gemm", refuse, [](const NodeSpec& spec) { return std::make_unique<K>(spec); },
      [shape_of](const NodeSpec& spec) { return variant_names_of(resident_variants(spec, shape_of(spec))); }};
  candidate.estimate = [refuse, shape_of](const NodeSpec& spec) -> std::optional<Estimate> {
    if (refuse(spec)) return std::nullopt;
    return resident_estimate(spec, shape_of(spec));
  };
  candidate.kept_share = [shape_of](const NodeSpec& spec) {
    const ConvShape shape = shape_of(spec);
    return blocks_with_weights(spec, shape).share(resident_variant(spec, shape).plan.columns);
  };
  candidate.fusions.epilogue = fuses;
  return candidate;
}

// Of Conv: convolutions in fp16 and bf16 on Hopper whose weights fit into shared memory.

Refusal refuse(const NodeSpec& spec) {
  if (Refusal reason = refuse_half_conv(spec)) return reason;
  if (spec.inputs[0]->shape[1] % 8 != 0) return "channels must be a multiple of 8";
  return refuse_resident_gemm(spec, half_conv_shape(spec));
}

class HalfResidentGemm final : public ResidentGemm {
 public:
  explicit HalfResidentGemm(const NodeSpec& spec) : ResidentGemm(spec, half_conv_shape(spec)) {
    const ConvShape& shape = args_.conv.shape;
    const int columns = args_.plan.columns;
    const Tensor weights = to_layout(spec.constant(1)->view(), Layout::row_major);
    const auto rows = static_cast<std::size_t>(args_.conv.column_tiles) * static_cast<std::size_t>(columns);
    args_.conv.bias = keep(in_packed_order(conv_biases(spec), rows));
    const Clamp& clamp = layer_as<Conv>(spec.layer).attributes().activation;
    args_.conv.low = clamp.low, args_.conv.high = clamp.high;
    args_.conv.function = follower_function(spec);
    prepare(
        keep(pack_conv_weights_by_lane(shape, depth_, shape.in_c, weights.values<float>().data(), columns)));
  }
};

// Of QConv: the same in INT8.

Refusal refuse_int8(const NodeSpec& spec) {
  if (Refusal reason = refuse_qconv_gemm(spec)) return reason;
  if (spec.outputs[0].dtype != DType::i8) return "y must be i8";
  if (spec.inputs[0]->shape[1] % 16 != 0) return "channels must be a multiple of 16";
  return refuse_resident_gemm(spec, pair_conv_shape(spec));
}

class Int8ResidentGemm final : public ResidentGemm {
 public:
  explicit Int8ResidentGemm(const NodeSpec& spec)
      : ResidentGemm(spec, pair_conv_shape(spec)),
        operands_(spec, args_.conv.shape, depth_, args_.conv.shape.in_c * 2, args_.plan.columns) {
    operands_.set(args_.conv);
    prepare(operands_.weights());
  }
  std::size_t packed_bytes() const override { return operands_.bytes() + PackedKernel::packed_bytes(); }

 private:
  QConvGemmOperands operands_;
};

}  // namespace

void register_cuda_resident_gemm(Registry& registry) {
  registry.add(Conv::kType, DeviceKind::cuda,
               resident_candidate<HalfResidentGemm>(refuse, half_conv_shape, fuses_function));
  registry.add(QConv::kType, DeviceKind::cuda,
               resident_candidate<Int8ResidentGemm>(refuse_int8, pair_conv_shape, fuses_table));
}

}  // namespace pipit::internal
