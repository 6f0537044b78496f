// Nodes that one launch computes together, as the candidates that do so see them: convolutions of stride 1, each from
// what the first one reads or what earlier ones compute; and what such candidates make of a node's constants.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/plan/registry.h"
#include "layers/cuda/conv/chain/unit_layout.h"
#include "layers/cuda/epilogue/functions.h"
#include "layers/ops/conv.h"
#include "layers/ops/qconv.h"

namespace pipit::internal::cuda {

bool is_int8_conv(const NodeSpec& spec);
/// The attributes of a Conv or QConv.
const ConvAttributes& conv_attributes(const NodeSpec& spec);

/// Why the kernels of chains cannot compute the node: it must be a convolution in fp16, bf16 or INT8, NHWC.
Refusal refuse_unit_conv(const NodeSpec& spec);
/// The same of a chain: besides 1x1 or 3x3 with padding 1, of stride 1.
Refusal refuse_link(const NodeSpec& spec);

/// The chain of a node and what follows it.
struct ConvChain {
  std::vector<const NodeSpec*> nodes;
  std::vector<std::size_t> inputs;  ///< of the first node, in the order of ConvChainShape::inputs
  ConvChainShape shape;

  /// Nothing where one of them cannot be part of it.
  static std::optional<ConvChain> of(const NodeSpec& first, std::span<const ChainLink> links);
};

/// Weights [out_c, in_c, taps] of f32 or i8 to [out_c, taps, in_c] of what is multiplied.
std::vector<std::byte> ordered_weights(const NodeSpec& spec);
/// The bias of every output, 4 bytes each: int32 or f32, zeros where there is no bias.
std::vector<std::byte> biases_of(const NodeSpec& spec);
/// The factor of every output's INT8 sum, f32.
std::vector<std::byte> multipliers_of(const NodeSpec& spec);

/// What an output is clamped to, in INT8 in steps, and what a residual's integers are multiplied by.
struct LinkBounds {
  float low = 0, high = 0;
  float residual_scale = 0;
};
LinkBounds bounds_of(const NodeSpec& spec);

/// The bounds as the kernels of units want them.
PairBounds unit_bounds(const NodeSpec& spec);
/// The maximum magnitude of a sum in kernels that convert sums to floats.
inline constexpr std::int64_t kLargeSum = std::int64_t{1} << 24;
/// Whether the short INT8 arithmetic of these kernels gives the specification's bits, whatever x is: sums stay below
/// `limit`, results in steps below kMaxSteps. relu: besides no result is negative.
bool has_sums_below(const NodeSpec& spec, bool relu, std::int64_t limit);
/// Biases, and in INT8 multipliers, of every unit of outputs (pack_unit_constants).
void append_unit_constants(const NodeSpec& spec, bool stored, std::vector<std::byte>& constants);
/// These, and all units of weights.
void append_units(const NodeSpec& spec, bool stored, std::vector<std::byte>& weights,
                  std::vector<std::byte>& constants, int inner = kUnitChannels);

/// Megabytes that a chain reads and writes: constants, what it does not compute itself, and its output.
double chain_megabytes(const NodeSpec& first, std::span<const ChainLink> links);
/// " f16", for bf16 as well, or " i8": what the constants of a chain's kernel are called after its name.
std::string chain_type(int element_bytes);

/// Candidate::estimate of a chain: asked about those that it takes.
using ChainEstimate = std::optional<Estimate> (*)(const NodeSpec&, std::span<const ChainLink>);

/// A candidate of a layer whose kernel K computes chains and no single node.
template <typename K>
void register_chain(Registry& registry, std::string_view type, const std::string& name,
                    const std::function<bool(const NodeSpec&, std::span<const ChainLink>)>& takes,
                    ChainEstimate estimate, bool reads_outside = false) {
  Candidate candidate{name, [](const NodeSpec&) { return Refusal("runs several layers together only"); },
                      [](const NodeSpec& spec) { return std::make_unique<K>(spec); }};
  candidate.fusions.chain = takes;
  candidate.estimate = [estimate](const NodeSpec& spec) -> std::optional<Estimate> {
    return spec.fusion.chain.empty() ? std::nullopt : estimate(spec, spec.fusion.chain);
  };
  candidate.fusions.chain_reads_outside = reads_outside;
  registry.add(type, DeviceKind::cuda, std::move(candidate));
}
/// Registers a candidate for Conv and one for QConv.
template <typename K>
void register_chain(Registry& registry, const std::string& name,
                    const std::function<bool(const NodeSpec&, std::span<const ChainLink>)>& takes,
                    ChainEstimate estimate, bool reads_outside = false) {
  for (const std::string_view type : {Conv::kType, QConv::kType})
    register_chain<K>(registry, type, name, takes, estimate, reads_outside);
}

}  // namespace pipit::internal::cuda
