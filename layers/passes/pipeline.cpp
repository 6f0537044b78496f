#include "layers/passes/pipeline.h"

#include <utility>

#include "engine/graph/stored_type.h"
#include "layers/passes/stored_weights.h"

namespace pipit::internal {

namespace {

// --- what passes are told ---

template <auto kRewrite>
Rewritten of_graph(Graph&& graph, PassTarget& /*target*/) {
  return kRewrite(std::move(graph));
}

template <auto kRewrite>
Rewritten for_device(Graph&& graph, PassTarget& target) {
  return kRewrite(graph, target.device);
}

Rewritten quantize(Graph&& graph, PassTarget& target) {
  return target.quantize(std::move(graph), target);
}

Rewritten store_as_target(Graph&& graph, PassTarget& target) {
  return assign_precision(graph, target.precision, target.device, target.kept);
}

Rewritten write_out_weights(Graph&& graph, PassTarget& target) {
  const bool decodes =
      target.device == DeviceKind::cuda && target.precision == Precision::fp16 && target.quantize == nullptr;
  return write_out_stored(graph, decodes ? &gpu_decodes : nullptr);
}

// --- when they run ---

bool if_target_quantizes(const Graph& /*graph*/, const PassTarget& target) {
  return target.quantize != nullptr;
}

bool if_gpu(const Graph& /*graph*/, const PassTarget& target) {
  return target.device == DeviceKind::cuda;
}

// Stored weights of a file compute in f32 on the CPU and with halves on a GPU. Other integers are made of real weights.
bool if_weights_are_real(const Graph& /*graph*/, const PassTarget& target) {
  return target.device != DeviceKind::cpu || stores_16_bits(target.precision) || target.quantize != nullptr;
}

bool if_quantized(const Graph& graph, const PassTarget& /*target*/) {
  return is_quantized(graph);
}

// In fp32 a GPU reads four channels at once.
bool if_channels_may_widen(const Graph& graph, const PassTarget& target) {
  return target.device == DeviceKind::cuda && !target.keep_every_value &&
         (target.precision != Precision::fp32 || is_quantized(graph));
}

bool if_stored_otherwise(const Graph& graph, const PassTarget& target) {
  const bool gpu = target.device == DeviceKind::cuda;
  return is_stored_float(stored_type(target.precision, target.device)) ||
         (gpu && (target.precision == Precision::int8 || is_quantized(graph))) ||
         (target.precision == Precision::int8 && !target.kept.bf16.empty());
}

// A new pass gets a row here, and its promise in passes.h. What the rows rely on of those before them:
//  - Constants are folded first, so that patterns find numbers; identities go next, so that patterns find neighbours.
//  - What exporters write out (normalizations, activations) becomes one layer before scale and shift are folded: that
//    would take the constants that these are recognized by.
//  - Transposes sink before padding and scales are folded, which they stand between; epilogues are fused after that,
//    for a convolution takes no scale once it has an activation.
//  - Quantized layers are fused after the epilogues, since a Quantize ends a convolution with all that it computes, and
//    before taps are trimmed and means pooled, of which they have forms of their own. Weights in blocks are stored
//    after the epilogues, too, which know no layer that stores weights.
//  - Layers that quantization and files do not know (groups, wider channels) are made for the target only.
//  - Shapes are final when layouts are assigned, and layouts when types are.
constexpr Pass kPasses[] = {
    {"fuse dynamic scales", of_graph<fuse_dynamic_scales>, PassStage::model, nullptr},
    {"fold dequantized constants", of_graph<fold_dequantized>, PassStage::model, nullptr},
    {"fold dequantized blocks", of_graph<fold_blocks>, PassStage::model, nullptr},
    {"drop identities", of_graph<drop_identities>, PassStage::model, nullptr},
    {"fuse normalizations written out", of_graph<fuse_layer_norm>, PassStage::model, nullptr},
    {"fuse activations written out", of_graph<fuse_activations_written_out>, PassStage::model, nullptr},
    {"sink transposes", of_graph<sink_transposes>, PassStage::model, nullptr},
    {"fold padding", of_graph<fold_padding>, PassStage::model, nullptr},
    {"fold scale and shift", of_graph<fold_scale_shift>, PassStage::model, nullptr},
    {"fuse epilogues", of_graph<fuse_epilogues>, PassStage::model, nullptr},
    {"lower transposed convolutions", of_graph<lower_conv_transpose>, PassStage::model, nullptr},
    {"fuse quantized layers", of_graph<fuse_quantized>, PassStage::model, nullptr},
    {"store dequantized blocks", of_graph<store_blocks>, PassStage::model, nullptr},
    {"trim taps", of_graph<trim_taps>, PassStage::model, nullptr},
    {"pool means", of_graph<pool_means>, PassStage::model, nullptr},

    {"write out dynamic scales", of_graph<write_out_dynamic>, PassStage::target, if_gpu},
    {"write out stored weights", write_out_weights, PassStage::target, if_weights_are_real},
    {"quantize", quantize, PassStage::target, if_target_quantizes},
    {"adapt quantized layers", for_device<adapt_quantized>, PassStage::target, if_quantized},
    {"fuse channel groups", for_device<fuse_channel_groups>, PassStage::target, nullptr},
    {"widen channels", of_graph<widen_channels>, PassStage::target, if_channels_may_widen},
    {"assign layouts", for_device<assign_layouts>, PassStage::target, nullptr},
    {"assign precision", store_as_target, PassStage::target, if_stored_otherwise},
};

Graph run_stage(PassStage stage, Graph graph, PassTarget& target, std::vector<PassReport>* report) {
  for (const Pass& pass : kPasses) {
    if (pass.stage != stage || (pass.when != nullptr && !pass.when(graph, target))) continue;
    Rewritten next = pass.run(std::move(graph), target);
    graph = std::move(next.graph);
    if (report != nullptr) report->push_back({pass.name, next.changes, std::move(next.notes)});
  }
  return graph;
}

}  // namespace

std::span<const Pass> passes() {
  return kPasses;
}

Graph fuse(Graph graph, std::vector<PassReport>* report) {
  PassTarget any;
  return run_stage(PassStage::model, std::move(graph), any, report);
}

Graph lower(Graph fused, PassTarget target, std::vector<PassReport>* report) {
  return run_stage(PassStage::target, std::move(fused), target, report);
}

Graph optimize(Graph graph, PassTarget target, std::vector<PassReport>* report) {
  return lower(fuse(std::move(graph), report), std::move(target), report);
}

}  // namespace pipit::internal
