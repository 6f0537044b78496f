// Candidate "pooled_stem" of Conv and QConv: a network's first convolution and the maximum after it in one launch. Of
// NormalizeImage: the image as bytes, too.
#include <algorithm>
#include <cmath>
#include <optional>
#include <variant>

#include "engine/cuda/runtime.h"
#include "layers/common/layer_kernel.h"
#include "layers/cuda/conv/chain/conv_chain.h"
#include "layers/cuda/conv/gemm_args.h"
#include "layers/cuda/conv/pooled_stem/plan.h"
#include "layers/cuda/cost/launch_cost.h"
#include "layers/cuda/device/gpu_info.h"
#include "layers/cuda/families.h"
#include "layers/ops/normalize_image.h"
#include "layers/ops/pool.h"
#include "layers/ops/qconv.h"

namespace pipit::internal {

namespace {

using cuda::PooledStemArgs;
using cuda::PooledStemPlan;
using cuda::PooledStemShape;

/// Why no chain begins with the node.
Refusal refuse_convolution(const NodeSpec& spec) {
  const bool int8 = cuda::is_int8_conv(spec);
  const TensorDesc& x = *spec.inputs[0];
  const TensorDesc& y = spec.outputs[0];
  const ConvAttributes& a = cuda::conv_attributes(spec);
  const Window& w = a.window;
  if (x.dtype != DType::f32) return "x is not f32, as a user's image is";
  if (y.dtype != (int8 ? DType::i8 : stored_type(spec.precision)) ||
      (!int8 && !stores_16_bits(spec.precision)))
    return "only fp16, bf16 and int8 are handled";
  if (w.rank != 2 || a.groups != 1 || w.kernel[0] != cuda::kPooledStemTaps ||
      w.kernel[1] > cuda::kPooledStemPixels || w.dilation[0] != 1 || w.dilation[1] != 1)
    return "only windows of 7 rows and up to 8 columns are handled";
  if (x.shape[1] > cuda::kPooledStemChannels || y.shape[1] != cuda::kUnitChannels)
    return "only up to 4 channels, and 64 outputs, are handled";
  if (spec.constant(1) == nullptr || (spec.has_input(2) && spec.constant(2) == nullptr) || spec.has_input(3))
    return "weights must be constants, and nothing may be added";
  if (!is_channels_last(y)) return "the output must be channels_last";
  if (x.elements() == 0 || x.elements() > (1 << 30) || y.elements() > (std::int64_t{1} << 36))
    return "empty tensors, or as large as these, are not handled";
  if (int8) {
    const QConvAttributes& q = layer_as<QConv>(spec.layer).attributes();
    const auto symmetric = [](const Quantization& z) { return z.dtype == DType::i8 && z.zero_point == 0; };
    if (!symmetric(q.x) || !symmetric(q.y)) return "x or y is not i8 with zero point 0";
    if (!cuda::ImageScale::takes(q.x.scale)) return "the image's scale is out of range";
    if (!cuda::has_sums_below(spec, true, cuda::kSmallSum)) return "only small sums and ReLU are handled";
  }
  return std::nullopt;
}

bool is_image(const NodeSpec& spec) {
  return spec.layer.type() == NormalizeImage::kType;
}

/// Why no chain begins with this NormalizeImage.
Refusal refuse_image(const NodeSpec& spec) {
  if (spec.constant(1) == nullptr) return "the table must be a constant";
  if (!layer_as<NormalizeImage>(spec.layer).attributes().channels_first)
    return "what it writes must be [N, C, H, W]";
  if (!is_row_major(*spec.inputs[0])) return "the image must be row_major";
  return std::nullopt;
}

bool is_convolution(const NodeSpec& spec) {
  return spec.layer.type() == Conv::kType || spec.layer.type() == QConv::kType;
}

/// Nothing where the nodes are no first convolution and its maximum, with or without an image of bytes before them, or
/// do not fit.
std::optional<PooledStemPlan> plan_of(const NodeSpec& first, std::span<const ChainLink> links) {
  const bool from_bytes = is_image(first);
  if (links.size() != (from_bytes ? 2 : 1) || links.back().node->layer.type() != Pool::kType)
    return std::nullopt;
  if (from_bytes && (refuse_image(first) || !is_convolution(*links[0].node))) return std::nullopt;
  const NodeSpec& conv = from_bytes ? *links[0].node : first;
  if (refuse_convolution(conv)) return std::nullopt;
  const NodeSpec& pool = *links.back().node;
  const PoolAttributes& a = layer_as<Pool>(pool.layer).attributes();
  const TensorDesc& y = pool.outputs[0];
  if (a.kind != PoolKind::max || a.global || a.indices || a.window.rank != 2 || !is_channels_last(y) ||
      y.dtype != conv.outputs[0].dtype || y.elements() == 0)
    return std::nullopt;
  for (const std::size_t axis : {0, 1}) {
    if (a.window.kernel[axis] != 3 || a.window.stride[axis] != 2 || a.window.dilation[axis] != 1)
      return std::nullopt;
  }
  const Window& w = cuda::conv_attributes(conv).window;
  const Shape& x = conv.inputs[0]->shape;
  const Shape& mid = conv.outputs[0].shape;
  const auto narrow = [](std::int64_t v) { return static_cast<int>(v); };
  PooledStemShape shape;
  shape.from_bytes = from_bytes;
  shape.element_bytes = cuda::is_int8_conv(conv) ? 1 : 2;
  shape.bf16 = conv.precision == Precision::bf16;
  shape.images = narrow(x[0]), shape.channels = narrow(x[1]);
  shape.in_h = narrow(x[2]), shape.in_w = narrow(x[3]);
  shape.stride_h = narrow(w.stride[0]), shape.stride_w = narrow(w.stride[1]);
  shape.pad_h = narrow(w.pad_begin[0]), shape.pad_w = narrow(w.pad_begin[1]);
  shape.mid_h = narrow(mid[2]), shape.mid_w = narrow(mid[3]);
  shape.pool_pad_h = narrow(a.window.pad_begin[0]), shape.pool_pad_w = narrow(a.window.pad_begin[1]);
  shape.out_h = narrow(y.shape[2]), shape.out_w = narrow(y.shape[3]);
  const auto planned = cuda::plan_pooled_stem(shape, cuda::hopper_processors(conv.gpu));
  const auto* plan = std::get_if<PooledStemPlan>(&planned);
  return plan == nullptr ? std::nullopt : std::optional(*plan);
}

class PooledStem final : public Kernel {
 public:
  explicit PooledStem(const NodeSpec& spec) {
    const PooledStemPlan plan = plan_of(spec, spec.fusion.chain).value();
    const PooledStemShape& shape = plan.shape;
    args_.plan = plan;
    const NodeSpec& conv = shape.from_bytes ? *spec.fusion.chain[0].node : spec;
    shape.from_bytes ? read_bytes(spec) : read_floats(spec);
    if (cuda::is_int8_conv(conv))
      args_.x_scale = cuda::ImageScale(layer_as<QConv>(conv.layer).attributes().x.scale);
    args_.bounds = cuda::unit_bounds(conv);
    const int steps = shape.images * plan.steps;
    args_.workers = std::min(cuda::hopper_processors(spec.gpu), steps);
    args_.least_steps = steps / args_.workers, args_.more_steps = steps % args_.workers;
    args_.steps = cuda::Divisor(plan.steps);
    args_.mid_row = cuda::Divisor(plan.mid_columns), args_.mid_ring = cuda::Divisor(plan.mid_rows);
    args_.image_ring = cuda::Divisor(plan.image_rows);
    pack(conv);
    PIPIT_CUDA(cuda::prepare_pooled_stem(shape));
  }
  bool orders_prior_writes() const override { return true; }
  bool reads_constant(std::size_t index) const override { return index != 1 && index != 2; }
  std::size_t packed_bytes() const override { return weights_.bytes() + constants_.bytes() + table_.bytes(); }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    PooledStemArgs args = args_;
    args.y = outputs[0].data;
    const auto launch = [&] {
      PIPIT_CUDA(cuda::launch_pooled_stem(args, static_cast<cudaStream_t>(context.stream)));
    };
    const auto in_fours = [](int elements) { return elements % 4 == 0; };
    if (args.plan.shape.from_bytes) {
      args.bytes = inputs[0].as<std::uint8_t>() + first_channel_;
      args.runs_of_four = args.plan.shape.channels == 3 && args.x_pixel == 3 && in_fours(args.x_row) &&
                          in_fours(args.x_image) && in_fours(args.plan.shape.in_w) &&
                          reinterpret_cast<std::uintptr_t>(inputs[0].data) % 4 == 0;
      args.runs = cuda::Divisor(args.plan.runs_of(args.runs_of_four ? 4 : 1));
      return launch();
    }
    args.runs_of_four = args.x_pixel == 1 && in_fours(args.x_row) && in_fours(args.x_channel) &&
                        in_fours(args.x_image) && in_fours(args.plan.shape.in_w) &&
                        reinterpret_cast<std::uintptr_t>(inputs[0].data) % 16 == 0;
    args.runs = cuda::Divisor(args.plan.runs_of(args.runs_of_four ? 4 : 1));
    args.x = reinterpret_cast<const float*>(inputs[0].data);
    launch();
  }

 private:
  static int narrow(std::int64_t v) { return static_cast<int>(v); }
  void read_floats(const NodeSpec& conv) {
    const Strides strides = conv.inputs[0]->strides();
    args_.x_image = narrow(strides[0]), args_.x_channel = narrow(strides[1]);
    args_.x_row = narrow(strides[2]), args_.x_pixel = narrow(strides[3]);
  }
  void read_bytes(const NodeSpec& image) {
    const Strides strides = image.inputs[0]->strides();
    args_.x_image = narrow(strides[0]), args_.x_row = narrow(strides[1]);
    args_.x_pixel = narrow(strides[2]), args_.x_channel = narrow(strides[3]);
    if (layer_as<NormalizeImage>(image.layer).attributes().reverse_channels) {
      first_channel_ = narrow(image.inputs[0]->shape[3] - 1) * args_.x_channel;
      args_.x_channel = -args_.x_channel;
    }
    const auto table = image.constant(1)->values<float>();
    table_ = cuda::DeviceBuffer(table.data(), table.size_bytes());
    args_.table = table_.as<const float>();
  }
  void pack(const NodeSpec& spec) {
    const PooledStemShape& shape = args_.plan.shape;
    const auto bytes = static_cast<std::size_t>(shape.element_bytes);
    std::vector<std::byte> packed(cuda::kPooledStemUnits * cuda::kUnitRows * cuda::kUnitChannels * bytes);
    cuda::pack_pooled_stem(shape, static_cast<int>(cuda::conv_attributes(spec).window.kernel[1]),
                           cuda::ordered_weights(spec).data(), packed.data());
    std::vector<std::byte> constants;
    cuda::append_unit_constants(spec, true, constants);
    weights_ = cuda::DeviceBuffer(packed.data(), packed.size());
    constants_ = cuda::DeviceBuffer(constants.data(), constants.size());
    args_.weights = weights_.as<const std::byte>();
    args_.constants = constants_.as<const std::byte>();
  }

  cuda::DeviceBuffer weights_;
  cuda::DeviceBuffer constants_;
  cuda::DeviceBuffer table_;
  int first_channel_ = 0;  // of a pixel's bytes, which one channel 0 is made of
  PooledStemArgs args_;
};

bool takes_chain(const NodeSpec& first, std::span<const ChainLink> links) {
  if (!links.empty()) return plan_of(first, links).has_value();
  return cuda::has_hopper_kernels() && !(is_image(first) ? refuse_image(first) : refuse_convolution(first));
}

// A round is a step of the maximum: rows of the convolution, in tiles of 64 positions.
std::optional<Estimate> estimate(const NodeSpec& first, std::span<const ChainLink> links) {
  const std::optional<PooledStemPlan> plan = plan_of(first, links);
  if (!plan) return std::nullopt;
  const PooledStemShape& shape = plan->shape;
  const int processors = cuda::hopper_processors(first.gpu);
  const double steps = static_cast<double>(shape.images) * plan->steps;
  cuda::LaunchTerms terms;
  terms.steps = 2.0 * plan->step_rows * plan->mid_pitch / cuda::kUnitRows;
  terms.rounds = std::ceil(steps / std::max(1, processors / plan->parts));
  terms.blocks = steps * plan->parts / processors;
  terms.megabytes = cuda::chain_megabytes(first, links);
  return cuda::estimate_of("pooled_stem" + cuda::chain_type(shape.element_bytes), terms);
}

}  // namespace

void register_cuda_pooled_stem(Registry& registry) {
  for (const std::string_view type : {NormalizeImage::kType, Conv::kType, QConv::kType})
    cuda::register_chain<PooledStem>(registry, type, "pooled_stem", takes_chain, estimate);
}

}  // namespace pipit::internal
