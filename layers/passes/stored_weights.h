// Weights that a file holds in 8 or 4 bits, in blocks with a scale each: kept so where a layer can store them, else
// written out in f32.
#pragma once

#include "layers/passes/passes.h"

namespace pipit::internal {

/// Whether the layer of `node` can store its weights, input 1, which are a DequantizeBlocks `weights` of a constant: a
/// Conv of one tap and one group, a Gemm without factors or a MatMul, with blocks of inputs of one output.
bool can_store(const Graph& graph, const Node& node, const Node& weights);

/// Whether more of a graph is quantized (is_quantized()) than weights in blocks, which compute in f32.
bool is_quantized_beyond_weights(const Graph& graph);

/// DequantizeBlocks of constants: kept where only layers that can_store() read them, folded into f32 elsewhere, with
/// the Transpose or Reshape that reads them.
Rewritten fold_blocks(const Graph& graph);

/// What fold_blocks() has kept becomes WConv and WLinear, in 4 bits where all integers of a layer fit, else in 8; what
/// can no longer store its weights gets them in f32. Runs after fuse_epilogues.
Rewritten store_blocks(const Graph& graph);

/// Whether a GPU has a kernel for a WConv or WLinear in fp16 ("packed_gemm", layers/cuda/conv/packed_gemm): 8 bits with
/// a scale for each row; 4 bits with one, or in groups of 32, 64 or a multiple of 128; and no constant is added.
bool gpu_decodes(const Graph& graph, const Node& node);

/// WConv and WLinear become Conv, Gemm and MatMul with weights in f32: for devices and precisions without kernels that
/// decode them, and for what makes integers of real weights. `keeps`: which stay; none: all are written out.
Rewritten write_out_stored(const Graph& graph, bool (*keeps)(const Graph&, const Node&) = nullptr);

}  // namespace pipit::internal
