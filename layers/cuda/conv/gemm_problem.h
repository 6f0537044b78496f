// A node as the implicit-GEMM kernels see it: what the candidates in fp16 and INT8 share.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/cuda/runtime.h"
#include "engine/plan/kernel.h"
#include "engine/plan/registry.h"
#include "layers/common/layer_kernel.h"
#include "layers/cuda/conv/gemm_args.h"
#include "layers/cuda/epilogue/functions.h"
#include "layers/ops/conv.h"
#include "layers/ops/qconv.h"

namespace pipit::internal::cuda {

/// Several groups.
Refusal refuse_groups(const ConvAttributes& attributes);
/// What no instance of the kernel handles: other dimensions, groups, operands at run time, outputs and residuals that
/// are not channels_last, empty tensors, offsets beyond 32 bits. `units`: channels of x as the kernel reads them, in
/// units of 16 bits.
Refusal refuse_conv_gemm(const NodeSpec& spec, const ConvAttributes& attributes, std::int64_t units);

/// The same for a kernel that takes lists of blocks: groups are weights that are zero. Not depthwise convolutions.
Refusal refuse_grouped_conv_gemm(const NodeSpec& spec, const ConvAttributes& attributes, std::int64_t units);

/// The geometry, with in_c = units.
ConvShape conv_gemm_shape(const NodeSpec& spec, const ConvAttributes& attributes, std::int64_t units);
/// That of a Conv in fp16 or bf16.
ConvShape half_conv_shape(const NodeSpec& spec);
/// That of a QConv whose x has an even number of channels: in_c in pairs of bytes.
ConvShape pair_conv_shape(const NodeSpec& spec);

/// Why a Conv is not one of f16 or of bf16 alone, its residual included, or what refuse_conv_gemm() says.
Refusal refuse_half_conv(const NodeSpec& spec);
/// Why x, the residual and y are not all stored as fp16, or bf16, as the spec's precision says. image: x may be f32.
Refusal refuse_other_types(const NodeSpec& spec, bool image = false);

/// The blocks of k that the spec's constant weights (f32, or i8 where two channels are a unit) keep.
KeptDepth blocks_with_weights(const NodeSpec& spec, const ConvShape& shape);
/// The same, or all where no tile of "implicit_gemm" lists blocks or the shape is averaged.
KeptDepth kept_depth(const NodeSpec& spec, const ConvShape& shape);
/// What the tile multiplies of a shape that kept_depth() describes.
KeptDepth kept_depth(const NodeSpec& spec, const ConvShape& shape, const ConvTile& tile);
/// Kernel::kept_share() of the kernel that would be made.
double kept_share(const NodeSpec& spec, const ConvShape& shape);

/// The blocks of every column tile on the GPU; nothing where all are kept: finding those without a list is faster in
/// short kernels (ResNet-50 at batch 1 took 6 % longer with lists of all blocks).
class DepthOnGpu {
 public:
  DepthOnGpu() = default;
  DepthOnGpu(const ConvShape& shape, const KeptDepth& depth, int columns);
  /// Sets what the kernel reads of them.
  void set(ConvGemmArgs& args) const;
  std::size_t bytes() const { return blocks_.bytes() + steps_.bytes(); }

 private:
  DeviceBuffer blocks_;
  DeviceBuffer steps_;  ///< empty where all tiles have the same number
  int tile_blocks_ = 0;
};

/// conv_variants() on the spec's GPU, by their estimates.
std::vector<ConvVariant> conv_gemm_variants(const NodeSpec& spec, const ConvShape& shape);

/// The estimate of "implicit_gemm" in the spec's variant, or the one that it chooses. copies: x is brought into another
/// form first.
Estimate conv_gemm_estimate(const NodeSpec& spec, const ConvShape& shape, bool copies);

/// The one that the spec names, or the first. Throws Error when there is none of that name.
ConvVariant named_variant(const std::vector<ConvVariant>& variants, std::string_view name);
/// The same of conv_gemm_variants(). What was timed without its average may have no kernel with it: then the first.
ConvVariant chosen_variant(const NodeSpec& spec, const ConvShape& shape);
/// Of those that are worth timing, at most five.
std::vector<std::string> names_of(const std::vector<ConvVariant>& variants);

// What the INT8 candidates share on the host.

constexpr bool is_symmetric_i8(const Quantization& q) {
  return q.dtype == DType::i8 && q.zero_point == 0;
}

/// The bounds of an output's value: in steps of its scale, or real where it is not quantized.
inline StepBounds output_bounds(const Quantization& y, const Clamp& activation) {
  if (y.quantized()) return step_bounds(y, activation.low, activation.high);
  return {activation.low, activation.high};
}

/// What the residual's integers are multiplied by.
inline float residual_factor(const QConvAttributes& a) {
  return a.residual.scale / (a.y.quantized() ? a.y.scale : 1.0F);
}

/// The bias of every output; zeros where the node has none. It must be a constant.
inline std::vector<std::int32_t> qconv_biases(const NodeSpec& spec) {
  std::vector<std::int32_t> bias(static_cast<std::size_t>(spec.outputs[0].shape[1]));
  if (const Tensor* given = spec.constant(2)) {
    const auto values = given->values<std::int32_t>();
    bias.assign(values.begin(), values.end());
  }
  return bias;
}

/// The maximum magnitude of a sum, and of a result in steps of y before it is clamped, whatever x is.
struct MostOfInt8 {
  std::int64_t sum = 0;
  double steps = 0;

  /// Whether the short arithmetic of stores.cuh gives the specification's bits.
  bool is_small() const { return sum < kSmallSum && steps < kMaxSteps; }
};

/// weights [bias.size(), depth] of a QConv; bias: as the kernel adds it.
inline MostOfInt8 most_of_int8(const NodeSpec& spec, std::span<const std::int8_t> weights,
                               std::span<const std::int32_t> bias) {
  constexpr std::int64_t kLargestInput = 128;
  const QConvAttributes& a = layer_as<QConv>(spec.layer).attributes();
  const std::vector<float> multipliers =
      requantization_multipliers(a, static_cast<std::int64_t>(bias.size()));
  const double added = spec.has_input(3) ? std::abs(double{residual_factor(a)}) * kLargestInput : 0;
  const std::size_t depth = weights.size() / bias.size();
  MostOfInt8 most;
  for (std::size_t o = 0; o < bias.size(); ++o) {
    std::int64_t sum = std::abs(static_cast<std::int64_t>(bias[o]));
    for (const std::int8_t w : weights.subspan(o * depth, depth)) sum += kLargestInput * std::abs(w);
    most.sum = std::max(most.sum, sum);
    most.steps = std::max(most.steps, static_cast<double>(sum) * std::abs(double{multipliers[o]}) + added);
  }
  return most;
}

// The constants of a QConv as the implicit-GEMM kernels read them: what their candidates share.

/// What no INT8 instance of the kernels handles: x, residual or an INT8 y other than i8 with zero point 0, and what
/// refuse_conv_gemm names.
Refusal refuse_qconv_gemm(const NodeSpec& spec);
/// The same for a kernel that takes lists of blocks (refuse_grouped_conv_gemm).
Refusal refuse_grouped_qconv_gemm(const NodeSpec& spec);

/// The convolution as "implicit_gemm" computes it: channels padded to the 16 that are copied at once.
ConvShape qconv_gemm_shape(const NodeSpec& spec);

/// Weights, bias and multipliers on the GPU, in the order of packed_channel, and the follower's table.
class QConvGemmOperands {
 public:
  /// shape: in_c in pairs of bytes, as packed; depth: what is packed; channels: those of x itself; columns of a tile.
  QConvGemmOperands(const NodeSpec& spec, const ConvShape& shape, const KeptDepth& depth, int channels,
                    int columns);
  /// The same with weights that are packed otherwise.
  QConvGemmOperands(const NodeSpec& spec, const ConvShape& shape, std::span<const std::byte> packed,
                    int columns);
  /// Sets the constants and everything else that the epilogue needs, but for residual and y.
  void set(ConvGemmArgs& args) const;
  const void* weights() const { return weights_.data(); }
  std::size_t bytes() const {
    return weights_.bytes() + bias_.bytes() + multipliers_.bytes() + table_.bytes();
  }

 private:
  DeviceBuffer weights_;
  DeviceBuffer bias_;
  DeviceBuffer multipliers_;
  DeviceBuffer table_;
  ConvGemmArgs epilogue_;
};

// The function of its results that a convolution in fp16 or bf16 computes as well (Fusions::epilogue).

/// Fusions::epilogue of kernels that have HalfFunction: one Unary of f16 or bf16, of a kind that it describes.
bool fuses_function(const NodeSpec& spec, const NodeSpec& next);

/// The function of a Unary; nothing where HalfFunction does not describe it.
std::optional<HalfFunction> half_function_of(const NodeSpec& unary);

/// The first follower's function; with HalfGate::none where there is none.
HalfFunction follower_function(const NodeSpec& spec);

// The function of 8-bit results that an INT8 convolution computes as well (Fusions::epilogue).

/// Fusions::epilogue of kernels that pass the bytes they write through a table: one QUnary, unless the
/// convolution's own results are floating-point.
bool fuses_table(const NodeSpec& spec, const NodeSpec& next);

using ByteTable = std::array<std::uint8_t, 256>;

/// The follower's table (unary_table); nothing where there is none.
std::optional<ByteTable> follower_table(const NodeSpec& spec);

/// On the GPU; empty where there is none.
DeviceBuffer upload_table(const std::optional<ByteTable>& table);

// The global average of its results that "implicit_gemm" computes as well, and the Quantize after that
// (Fusions::epilogue).

/// Whether the node averages all positions of each channel, of f16, bf16 or f32.
bool is_average(const NodeSpec& node);

/// Whether an average that follows spec's convolution, and the function that is fused into it, is computed with it.
/// shape: the convolution as "implicit_gemm" computes it.
bool fuses_average(const NodeSpec& spec, const ConvShape& shape);
/// Whether `next` is the Quantize after an average that is fused already.
bool quantizes_average(const NodeSpec& spec, const NodeSpec& next);

/// Whether an average is fused into the spec (ConvShape::averaged).
bool averages(const NodeSpec& spec);
/// ConvGemmArgs::average for such a spec and a tile that holds an image; without images for others.
ConvAverage average_args(const NodeSpec& spec, const ConvShape& shape, const ConvTile& tile);

// What candidates and their kernels share.

/// The bias of every output in fp32; zeros where the node has none. It must be a constant.
inline std::vector<float> conv_biases(const NodeSpec& spec) {
  std::vector<float> bias(static_cast<std::size_t>(spec.outputs[0].shape[1]));
  if (const Tensor* given = spec.constant(2))
    std::copy_n(given->values<float>().data(), bias.size(), bias.begin());
  return bias;
}

/// The variant that is named so, or the first. Throws Error when there is none of that name.
template <typename Variant>
Variant find_variant(const std::vector<Variant>& variants, std::string_view name) {
  for (const Variant& variant : variants) {
    if (name.empty() || variant.name() == name) return variant;
  }
  fail("there is no variant '{}'", name);
}
template <typename Variant>
std::vector<std::string> variant_names_of(const std::vector<Variant>& variants) {
  std::vector<std::string> names;
  for (const Variant& variant : variants) names.push_back(variant.name());
  return names;
}

/// A kernel that has packed weights and bias, inputs 1 and 2, and keeps what it reads of its own on the GPU.
class PackedKernel : public Kernel {
 public:
  bool reads_constant(std::size_t index) const override { return index != 1 && index != 2; }
  std::size_t packed_bytes() const override {
    std::size_t bytes = 0;
    for (const DeviceBuffer& buffer : buffers_) bytes += buffer.bytes();
    return bytes;
  }

 protected:
  /// Where the values lie on the GPU, as long as the kernel lives.
  template <typename T>
  const T* keep(const std::vector<T>& values) {
    return buffers_.emplace_back(values.data(), values.size() * sizeof(T)).template as<const T>();
  }
  /// The same; null where there is no table.
  const std::uint8_t* keep(const std::optional<ByteTable>& table) {
    return buffers_.emplace_back(upload_table(table)).as<const std::uint8_t>();
  }

 private:
  std::vector<DeviceBuffer> buffers_;
};

/// A candidate whose kernels are K; its estimate is asked where it does not refuse.
template <typename K>
Candidate conv_candidate(std::string name, Refusal (*refuse)(const NodeSpec&),
                         Estimate (*estimate)(const NodeSpec&),
                         bool (*fuses)(const NodeSpec&, const NodeSpec&) = nullptr,
                         std::vector<std::string> (*variants)(const NodeSpec&) = nullptr) {
  Candidate candidate{std::move(name), refuse,
                      [](const NodeSpec& spec) { return std::make_unique<K>(spec); }};
  if (variants != nullptr) candidate.variants = variants;
  if (fuses != nullptr) candidate.fusions.epilogue = fuses;
  candidate.estimate = [refuse, estimate](const NodeSpec& spec) -> std::optional<Estimate> {
    if (refuse(spec)) return std::nullopt;
    return estimate(spec);
  };
  return candidate;
}

}  // namespace pipit::internal::cuda
