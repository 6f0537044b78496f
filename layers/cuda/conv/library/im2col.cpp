// Convolution as a matrix product of cuBLASLt: patches gathered into scratch memory, unless the input already is the
// matrix (1x1, stride 1).
#include <algorithm>
#include <limits>

#include "layers/cuda/conv/library/library.h"
#include "layers/cuda/families.h"
#include "layers/cuda/libraries/lt_gemm.h"
#include "layers/ops/inference_checks.h"

namespace pipit::internal {

namespace {

using cuda::Addend;
using cuda::GemmShape;
using cuda::Im2colShape;
using cuda::LtGemm;

constexpr std::int64_t kMaxPatchBytes = std::int64_t{256} << 20;

// How a node is split into products.
struct Split {
  DType type = DType::f32;
  std::int64_t images = 1;     // of one product
  std::int64_t products = 1;   // one after the other
  std::int64_t positions = 1;  // output positions of one image
  bool gather = true;          // patches are needed
  Im2colShape patches;
  GemmShape gemm;  // one product, all groups, without epilogue

  double kept_share() const {
    if (patches.kept.empty()) return 1;
    return static_cast<double>(std::ssize(patches.kept) * patches.block) /
           static_cast<double>(patches.group_channels * patches.window.taps());
  }
  std::int64_t patch_bytes() const {
    return gather ? images * positions * patches.groups * patches.row *
                        static_cast<std::int64_t>(patches.element)
                  : 0;
  }
};

// Where the runs of `block` channels of a tap begin, in tap * channels + channel, in which any output has a weight that
// is not zero; at least one. weights [outputs, channels, taps].
std::vector<std::int64_t> kept_runs(const Tensor& weights, std::int64_t block) {
  const std::int64_t outputs = weights.shape()[0];
  const std::int64_t channels = weights.shape()[1];
  const std::int64_t taps = weights.shape().elements() / outputs / channels;
  const std::int64_t per_tap = channels / block;
  const std::span<const float> values = weights.values<float>();
  std::vector<bool> kept(static_cast<std::size_t>(taps * per_tap));
  // In a dense layer the first output has weights in all of them.
  for (std::int64_t o = 0; o < outputs && std::find(kept.begin(), kept.end(), false) != kept.end(); ++o) {
    for (std::int64_t i = 0; i < channels * taps; ++i) {
      if (values[static_cast<std::size_t>(o * channels * taps + i)] != 0)
        kept[static_cast<std::size_t>(i % taps * per_tap + i / taps / block)] = true;
    }
  }
  if (std::find(kept.begin(), kept.end(), true) == kept.end()) kept[0] = true;
  std::vector<std::int64_t> runs;
  for (std::int64_t run = 0; run < taps * per_tap; ++run) {
    if (kept[static_cast<std::size_t>(run)]) runs.push_back(run * block);
  }
  return runs;
}

// As many images as the patch matrix may hold, the same number in every product.
std::int64_t images_at_once(std::int64_t batch, std::int64_t image_bytes) {
  const std::int64_t most = kMaxPatchBytes / image_bytes;
  if (batch <= most) return batch;
  std::int64_t images = 1;
  for (std::int64_t d = 1; d <= batch / d; ++d) {
    if (batch % d != 0) continue;
    if (d <= most) images = std::max(images, d);
    if (batch / d <= most) return std::max(images, batch / d);
  }
  return images;
}

Split split(const Conv& layer, const NodeSpec& spec) {
  const ConvAttributes& attributes = layer.attributes();
  const TensorDesc& input = *spec.inputs[0];
  const Image x(input);
  const Image y(spec.outputs[0]);
  Split s;
  s.type = spec.outputs[0].dtype;
  s.positions = y.positions();

  const Window& w = attributes.window;
  bool pointwise = is_channels_last(input) && w.taps() == 1;
  for (std::size_t axis = 0; axis < kMaxSpatial; ++axis)
    pointwise = pointwise && w.stride[axis] == 1 && w.pad_begin[axis] == 0 && w.pad_end[axis] == 0;
  s.gather = !pointwise;

  Im2colShape& p = s.patches;
  p.window = as_3d(w);
  p.groups = attributes.groups;
  p.group_channels = x.channels / attributes.groups;
  p.element = dtype_bytes(s.type);
  const auto wide = static_cast<std::int64_t>(16 / p.element);
  std::int64_t depth = p.group_channels * w.taps();
  if (!pointwise) {
    p.block = is_channels_last(input) && p.group_channels % wide == 0 ? wide : 1;
    p.kept = kept_runs(*spec.constant(1), p.block);
    const std::int64_t kept = static_cast<std::int64_t>(p.kept.size()) * p.block;
    if (kept == depth) p.kept.clear();
    depth = kept;
  }
  // Rows of whole 16-byte words: the library has no fast algorithm for others.
  p.row = pointwise ? depth : (depth + wide - 1) / wide * wide;
  p.input = x.extent;
  p.output = y.extent;
  p.batch_stride = x.batch_stride;
  p.channel_stride = is_channels_last(input) ? 1 : x.channel_stride;
  p.stride = x.stride;

  const std::int64_t row_bytes = p.groups * p.row * static_cast<std::int64_t>(p.element);
  s.images = s.gather ? images_at_once(x.batch, saturating_product(s.positions, row_bytes)) : x.batch;
  s.products = x.batch / s.images;

  GemmShape& g = s.gemm;
  g.dtype = s.type;
  g.m = s.images * s.positions;
  g.n = y.channels / attributes.groups;
  g.k = p.row;
  g.transpose_b = true;
  g.lda = p.groups * p.row;
  g.ldb = p.row;
  g.ldd = y.channels;
  g.batch = p.groups;
  g.a_step = p.row;
  g.b_step = g.n * p.row;
  g.d_step = g.n;
  g.bias_step = g.n;
  const auto aligned = [&](std::int64_t elements) {
    return elements * static_cast<std::int64_t>(p.element) % 16 == 0;
  };
  const bool even = (p.groups == 1 || (aligned(g.a_step) && aligned(g.b_step) && aligned(g.d_step))) &&
                    (s.products == 1 || (aligned(x.batch_stride * s.images) && aligned(g.m * g.ldd)));
  g.alignment = even ? 16 : static_cast<std::int64_t>(p.element);
  return s;
}

// Filters by tap, of each what is kept, followed by zeros.
std::vector<float> kept_filters(const Tensor& weights, const Im2colShape& p) {
  if (p.kept.empty()) return cuda::filters_by_tap<float>(weights, p.row);
  const std::int64_t outputs = weights.shape()[0];
  const std::int64_t depth = weights.shape().elements() / outputs;
  const std::vector<float> all = cuda::filters_by_tap<float>(weights, depth);
  std::vector<float> packed(static_cast<std::size_t>(outputs * p.row), 0.0F);
  for (std::int64_t o = 0; o < outputs; ++o) {
    auto to = packed.begin() + o * p.row;
    for (const std::int64_t run : p.kept) to = std::copy_n(all.begin() + o * depth + run, p.block, to);
  }
  return packed;
}

class Im2colConv final : public Kernel {
 public:
  Im2colConv(const Conv& layer, const NodeSpec& spec)
      : split_(split(layer, spec)),
        weights_(cuda::upload(kept_filters(*spec.constant(1), split_.patches), split_.type)),
        clamp_(layer.attributes().activation) {
    if (split_.gather) im2col_ = cuda::Im2col(split_.patches);
    GemmShape shape = split_.gemm;
    if (spec.has_input(2)) {
      bias_ = cuda::upload(spec.constant(2)->values<float>(), split_.type);
      shape.bias = bias_.data();
    }
    if (spec.has_input(3)) {
      if (spec.constant(3) != nullptr) {
        const Tensor moved = to_layout(spec.constant(3)->view(), spec.outputs[0].layout);
        residual_ = cuda::upload(moved.values<float>(), split_.type);
      }
      shape.beta = 1;
    }
    if (clamp_ == Clamp::relu()) {
      shape.relu = true;
      clamp_ = {};
    }
    std::string reason;
    const int proposal = cuda::proposal_number(spec.variant);
    gemm_ = LtGemm::create(shape, reason, proposal);
    if (!gemm_) {
      late_bias_ = spec.has_input(2);
      late_residual_ = spec.has_input(3);
      clamp_ = layer.attributes().activation;
      gemm_ = LtGemm::create(split_.gemm, reason, proposal);
      if (!gemm_) fail("{}", reason);
    }
  }

  std::size_t scratch_bytes() const override { return patch_area() + gemm_->workspace_bytes(); }
  bool reads_constant(std::size_t) const override { return false; }
  std::size_t packed_bytes() const override { return weights_.bytes() + bias_.bytes() + residual_.bytes(); }
  double kept_share() const override { return split_.kept_share(); }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const auto stream = static_cast<cudaStream_t>(context.stream);
    const GemmShape& g = split_.gemm;
    const auto element = static_cast<std::int64_t>(split_.patches.element);
    const std::int64_t x_step = split_.images * split_.patches.batch_stride * element;
    const std::int64_t y_step = g.m * g.ldd * element;
    const std::byte* residual = residual_.data();
    if (residual == nullptr && inputs.size() > 3) residual = inputs[3].data;
    for (std::int64_t i = 0; i < split_.products; ++i) {
      const std::byte* a = inputs[0].data + i * x_step;
      const std::byte* c = residual != nullptr ? residual + i * y_step : nullptr;
      std::byte* d = outputs[0].data + i * y_step;
      if (split_.gather) {
        im2col_.run(a, split_.images, context.scratch, stream);
        a = context.scratch;
      }
      gemm_->run(a, weights_.data(), c, d, context.scratch + patch_area(), stream);
      if (!late_bias_ && !late_residual_ && clamp_.is_identity()) continue;
      const Addend bias{late_bias_ ? bias_.data() : nullptr, 0, 1, 1.0F};
      const Addend late{late_residual_ ? c : nullptr, g.ldd, 1, 1.0F};
      apply_epilogue(d, split_.type, g.m, g.ldd, bias, late, clamp_, stream);
    }
  }

 private:
  std::size_t patch_area() const {
    return (static_cast<std::size_t>(split_.patch_bytes()) + 255) / 256 * 256;
  }

  Split split_;
  cuda::DeviceBuffer weights_;
  cuda::DeviceBuffer bias_;
  cuda::DeviceBuffer residual_;  // only where it is a constant
  cuda::Im2col im2col_;
  bool late_bias_ = false;  // applied by a kernel of our own, as clamp_ is
  bool late_residual_ = false;
  Clamp clamp_;
  std::unique_ptr<LtGemm> gemm_;
};

Refusal refuse(const NodeSpec& spec) {
  if (Refusal reason = cuda::refuse_library_conv(spec)) return reason;
  if (const std::string& problem = cuda::cublaslt().problem; !problem.empty()) return problem;
  const Split s = split(layer_as<Conv>(spec.layer), spec);
  constexpr std::int64_t kMax = std::numeric_limits<std::int32_t>::max();
  if (std::max({s.gemm.m, s.gemm.n, s.gemm.k, s.gemm.batch}) > kMax) return "the matrices are too large";
  if (s.gather) {
    if (const char* problem = cuda::Im2col::problem(s.patches, s.images)) return problem;
  }
  std::string reason;
  if (!LtGemm::create(s.gemm, reason)) return reason;
  return std::nullopt;
}

std::optional<Estimate> estimate(const NodeSpec& spec) {
  if (cuda::refuse_library_conv(spec)) return std::nullopt;
  const ConvAttributes& a = layer_as<Conv>(spec.layer).attributes();
  const Split s = split(layer_as<Conv>(spec.layer), spec);
  // The library's only activation is relu; others are a launch of their own over y.
  const bool late = !a.activation.is_identity() && !(a.activation == Clamp::relu());
  // In floating point: of shapes that are refused later the bytes do not fit an integer.
  const double patches = s.gather
                             ? static_cast<double>(s.patches.groups * s.patches.row) *
                                   static_cast<double>(s.patches.element) * static_cast<double>(s.positions) *
                                   static_cast<double>(s.images * s.products)
                             : 0;
  const double results = late ? static_cast<double>(spec.outputs[0].bytes()) : 0;
  return cuda::library_estimate(spec, a, "im2col_gemm " + cuda::library_family(spec, a),
                                (s.gather ? 1 : 0) + (late ? 1 : 0), 2e-6 * (patches + results));
}

}  // namespace

void register_cuda_conv_im2col(Registry& registry) {
  Candidate candidate{"im2col_gemm", refuse,
                      [](const NodeSpec& spec) -> std::unique_ptr<Kernel> {
                        return std::make_unique<Im2colConv>(layer_as<Conv>(spec.layer), spec);
                      },
                      [](const NodeSpec&) { return cuda::proposals(LtGemm::kProposals); }};
  candidate.estimate = estimate;
  candidate.kept_share = [](const NodeSpec& spec) {
    return split(layer_as<Conv>(spec.layer), spec).kept_share();
  };
  registry.add(Conv::kType, DeviceKind::cuda, std::move(candidate));
}

}  // namespace pipit::internal
