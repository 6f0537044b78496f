// Candidate "rows" of Concat: inputs that lie in rows, which y is made of, in one launch for up to 64 of them, with a
// batch normalization after it, as the 1x1 convolution of one channel a group that it has become (fold_scale_shift).
// And "rows" of Conv and QConv: such a convolution by itself.
#include "layers/cuda/movement/concat_rows.h"

#include <vector>

#include "engine/cuda/runtime.h"
#include "layers/common/layer_kernel.h"
#include "layers/cuda/conv/gemm_problem.h"
#include "layers/cuda/cost/launch_cost.h"
#include "layers/cuda/families.h"
#include "layers/cuda/movement/row_parts.h"
#include "layers/ops/conv.h"
#include "layers/ops/qconv.h"
#include "layers/ops/slicing.h"

namespace pipit::internal {

namespace {

using cuda::ConcatRowsArgs;
using cuda::ConcatThen;
using cuda::DeviceBuffer;

/// The convolution's attributes, which Conv and QConv have alike; null for other layers.
const ConvAttributes* convolution_of(const Layer& layer) {
  if (const auto* conv = dynamic_cast<const Conv*>(&layer)) return &conv->attributes();
  if (const auto* conv = dynamic_cast<const QConv*>(&layer)) return &conv->attributes().conv;
  return nullptr;
}

bool takes_types(const NodeSpec& next) {
  const DType x = next.inputs[0]->dtype, y = next.outputs[0].dtype;
  if (const auto* conv = dynamic_cast<const QConv*>(&next.layer)) {
    const QConvAttributes& a = conv->attributes();
    return cuda::is_symmetric_i8(a.x) && cuda::is_symmetric_i8(a.y) && x == DType::i8 && y == DType::i8;
  }
  return x == y && (is_stored_float(x) || x == DType::f32);
}

Refusal refuse_scale(const NodeSpec& spec) {
  const ConvAttributes* conv = convolution_of(spec.layer);
  const TensorDesc& x = *spec.inputs[0];
  const TensorDesc& y = spec.outputs[0];
  if (conv == nullptr || conv->window != Window{.rank = conv->window.rank} || conv->groups != x.shape[1] ||
      y.shape != x.shape)
    return "not a 1x1 convolution of one channel a group, without stride and padding";
  if (!is_channels_last(x) || !is_channels_last(y)) return "x and y must be channels_last";
  if (spec.constant(1) == nullptr || (spec.has_input(2) && spec.constant(2) == nullptr))
    return "weights or bias are computed at run time";
  if (spec.has_input(3)) return "a residual is not added";
  if (!takes_types(spec)) return "neither f32, f16, bf16 nor i8 with zero point 0 in x and y alike";
  return std::nullopt;
}

bool fuses_epilogue(const NodeSpec& spec, const NodeSpec& next) {
  return spec.fusion.followers.empty() && cuda::concat_axis(spec) == 1 &&
         *next.inputs[0] == spec.outputs[0] && !refuse_scale(next);
}

// The kernel of a Concat, or of a convolution that was one.
class ConcatRows final : public Kernel {
 public:
  explicit ConcatRows(const NodeSpec& spec)
      : axis_(convolution_of(spec.layer) != nullptr ? 1 : cuda::concat_axis(spec)),
        count_(spec.inputs.size()) {
    if (convolution_of(spec.layer) != nullptr) {
      count_ = 1;
      scale_by(spec);
    } else if (!spec.fusion.followers.empty()) {
      scale_by(*spec.fusion.followers[0]);
    }
    PIPIT_CUDA(cuda::concat_rows_overlaps(overlap_));
    PIPIT_CUDA(cudaDeviceGetAttribute(&args_.processors, cudaDevAttrMultiProcessorCount, spec.gpu));
  }
  bool reads_constant(std::size_t index) const override { return index < count_; }
  std::size_t packed_bytes() const override {
    return factors_.bytes() + shifts_.bytes() + multipliers_.bytes();
  }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const TensorDesc& y = outputs[0].desc;
    if (y.elements() == 0) return;
    const std::int64_t row = cuda::step_along(y, axis_) * y.shape[axis_];
    const auto element = static_cast<std::int64_t>(dtype_bytes(y.dtype));
    ConcatRowsArgs args = args_;
    args.pitch = row * element;
    args.rows = static_cast<int>(y.elements() / row);
    std::int64_t first = 0;  // of the row, in elements
    const auto launch = [&] {
      if (args.count == 0) return;
      const std::int64_t begin = first - args.columns / element;
      args.y = outputs[0].data + begin * element;
      move_constants(args, begin);
      PIPIT_CUDA(cuda::launch_concat_rows(then_, args, overlap_, static_cast<cudaStream_t>(context.stream)));
      args.count = args.columns = 0;
    };
    for (const ConstTensorView& x : inputs.first(count_)) {
      const std::int64_t width = cuda::step_along(x.desc, axis_) * x.desc.shape[axis_];
      if (width == 0) continue;
      const int end = args.columns + static_cast<int>(width * element);
      args.part[args.count++] = {x.data, args.columns, end};
      args.columns = end, first += width;
      if (args.count == cuda::kConcatMaxParts) launch();
    }
    launch();
  }

 private:
  template <typename T>
  static DeviceBuffer upload(const std::vector<T>& values) {
    return {values.data(), values.size() * sizeof(T)};
  }

  void scale_by(const NodeSpec& next) {
    const auto channels = static_cast<std::size_t>(next.outputs[0].shape[1]);
    const Tensor weights = to_layout(next.constant(1)->view(), Layout::row_major);
    if (const auto* conv = dynamic_cast<const QConv*>(&next.layer)) {
      const auto bytes = weights.values<std::int8_t>();
      factors_ = upload(std::vector<std::int32_t>(bytes.begin(), bytes.end()));
      shifts_ = upload(cuda::qconv_biases(next));
      multipliers_ = upload(requantization_multipliers(conv->attributes(), std::ssize(bytes)));
      const StepBounds bounds = cuda::output_bounds(conv->attributes().y, conv->attributes().conv.activation);
      args_.low = bounds.low, args_.high = bounds.high;
      then_ = ConcatThen::bytes;
      return;
    }
    const auto values = weights.values<float>();
    factors_ = upload(std::vector<float>(values.begin(), values.end()));
    std::vector<float> shifts(channels, 0.0F);
    if (const Tensor* bias = next.constant(2)) std::ranges::copy(bias->values<float>(), shifts.begin());
    shifts_ = upload(shifts);
    const Clamp& clamp = layer_as<Conv>(next.layer).attributes().activation;
    args_.low = clamp.low, args_.high = clamp.high;
    const DType type = next.outputs[0].dtype;
    then_ = type == DType::f16    ? ConcatThen::halves
            : type == DType::bf16 ? ConcatThen::bfloats
                                  : ConcatThen::floats;
  }

  /// To those of the channels from `first` on.
  void move_constants(ConcatRowsArgs& args, std::int64_t first) const {
    if (then_ == ConcatThen::nothing) return;
    if (then_ == ConcatThen::bytes) {
      args.weights = factors_.as<const std::int32_t>() + first;
      args.biases = shifts_.as<const std::int32_t>() + first;
      args.multipliers = multipliers_.as<const float>() + first;
    } else {
      args.factors = factors_.as<const float>() + first;
      args.shifts = shifts_.as<const float>() + first;
    }
  }

  int axis_;
  std::size_t count_;  ///< inputs that are copied; the others are constants
  ConcatThen then_ = ConcatThen::nothing;
  ConcatRowsArgs args_;
  bool overlap_ = false;
  DeviceBuffer factors_;  ///< or weights
  DeviceBuffer shifts_;   ///< or biases
  DeviceBuffer multipliers_;
};

}  // namespace

void register_cuda_concat_rows(Registry& registry) {
  Candidate candidate{"rows", cuda::refuse_unless_joins_rows,
                      [](const NodeSpec& spec) { return std::make_unique<ConcatRows>(spec); }};
  candidate.fusions.epilogue = fuses_epilogue;
  registry.add(Concat::kType, DeviceKind::cuda, std::move(candidate));
}

void register_cuda_conv_rows(Registry& registry) {
  for (const std::string_view type : {Conv::kType, QConv::kType}) {
    Candidate candidate{"rows", refuse_scale,
                        [](const NodeSpec& spec) { return std::make_unique<ConcatRows>(spec); }};
    candidate.estimate = [](const NodeSpec& spec) -> std::optional<Estimate> {
      if (refuse_scale(spec)) return std::nullopt;
      return cuda::estimate_of("rows", cuda::plain_terms(spec, Window{}));
    };
    registry.add(type, DeviceKind::cuda, std::move(candidate));
  }
}

}  // namespace pipit::internal
