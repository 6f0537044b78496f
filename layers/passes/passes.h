// The rewrites that a model goes through before it is planned. Each is a function Graph -> Graph with the same outputs
// (up to rounding where constants are multiplied ahead of time). pipeline.cpp says in which order they run, and when.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "engine/graph/graph.h"
#include "engine/plan/kernel.h"

namespace pipit::internal {

/// A rewritten graph and how many places changed.
struct Rewritten {
  Graph graph;
  int changes = 0;
  std::vector<std::string> notes = {};  ///< for the user: what could not be done, and why
};

/// Folds constants that are dequantized into f32, except the weights and biases of convolutions and matrix products
/// whose input is quantized too: those stay integers, followed by one DequantizeAxis, with a Transpose or Reshape
/// between applied to the integers.
Rewritten fold_dequantized(const Graph& graph);

/// What follows the sums of ONNX ConvInteger and MatMulInteger moves into their DynamicQConv: the Cast, a bias in
/// integers, factors that are one number at run time and constants per output, and a bias.
Rewritten fuse_dynamic_scales(const Graph& graph);

/// DynamicQuantize and DynamicQConv with zero points become layers in floating point. For devices without kernels.
Rewritten write_out_dynamic(const Graph& graph);

/// Removes layers that change nothing: Reshape to the same shape (Identity, Dropout), Cast to the same type,
/// Pad by zero, Slice of everything, Transpose without a permutation, Expand to the same shape, Tile by one,
/// Concat of one. And Quantize -> Dequantize -> Relu or Clip -> Quantize of one quantization becomes Relu or Clip ->
/// Quantize. The integers are the same: rounding keeps order, so that it does not matter whether values are cut off
/// before or after it.
Rewritten drop_identities(const Graph& graph);

/// Folds what follows a convolution with constant weights as y * scale[c] + shift[c] into weights and bias:
/// BatchNormalization, and Mul, Div, Add, Sub by a constant scalar or per-channel vector. The same for a Gemm
/// with a constant B. Products are formed in double. Weights that `graph` alone holds are freed one by one, so that
/// a graph handed over (std::move) is never held twice.
/// Of the remaining ones, a BatchNormalization alone, or two or more in sequence of which a constant has a value per
/// channel, become one layer: a depthwise 1x1 Conv for [N, C, H, W] with C above 4, which takes activations and INT8 as
/// every convolution does; a BatchNormalization otherwise, and after a Dequantize.
Rewritten fold_scale_shift(Graph graph);

/// Pad by zeros moves into the padding of the Conv or Pool that reads it, also from between integers that are quantized
/// alike: average pools count it then; max pools take it where it is -infinity or nothing they see is negative.
Rewritten fold_padding(const Graph& graph);

/// Outer rows and columns of taps that read nothing but padding leave convolutions (and INT8 ones) with constant
/// weights. Runs after fold_padding and fuse_quantized.
Rewritten trim_taps(const Graph& graph);

/// Activation functions that are written out become one layer: min(max(x + 3, 0), 6) / 6 HardSigmoid, x times that
/// HardSwish, in whichever order they are written; x * Sigmoid(x) Silu, x * Sigmoid(alpha x) Swish (QuickGelu), x *
/// HardSigmoid(x) with x / 6 + 1 / 2 HardSwish; 0.5 * x * (1 + Erf(x / sqrt(2))) Gelu, and its approximation with Tanh.
/// Runs before fold_scale_shift, which would take their constants.
Rewritten fuse_activations_written_out(const Graph& graph);

/// (x - mean) / sqrt(variance + epsilon) or x / sqrt(mean square + epsilon), written out over any dimensions but the
/// first, and a constant scale and bias after it become one LayerNorm, between Transposes where the dimensions are not
/// the last; the former over several spatial dimensions, with a scale and bias per channel or none, one InstanceNorm.
Rewritten fuse_layer_norm(const Graph& graph);

/// Transposes move after layers that compute element by element, reduce, join or pad, whose constants, axes and small
/// operands are turned with them: where they meet their inverses there, or nothing else reads what is moved. A product
/// of the channels of [N, H, W, C] with constant weights becomes a 1x1 Conv between Transposes, which cost nothing
/// where the layout pass can rename them away. Weights are freed as fold_scale_shift frees them.
Rewritten sink_transposes(Graph graph);

/// conv(x) + r of equal shapes becomes one convolution with a residual input; Relu or Clip after Conv, ConvTranspose,
/// Gemm or a floating-point Binary moves into its epilogue.
Rewritten fuse_epilogues(const Graph& graph);

/// ConvTranspose with constant weights becomes convolutions of stride 1, one for every phase of the stride or several
/// phases at once, and the interleaving of their outputs (Concat, DepthToSpace; Slice where the output is no multiple
/// of the stride): layers that every device and precision has kernels for. Notes name those that cannot.
Rewritten lower_conv_transpose(const Graph& graph);

/// Makes INT8 layers of what a quantized model writes as Dequantize -> layer -> Quantize (ONNX "QDQ"): QConv of Conv,
/// Gemm and MatMul with constant weights, residual and activation included; QAdd; QAveragePool; and max pools, Concat
/// and what only moves elements on the integers themselves. Where no Quantize follows, QConv and QAveragePool write
/// f32. Every result is that of the layers replaced but for the rounding of their sums in f32. Layers that cannot
/// (weights whose zero point takes them out of i8, say) stay in floating point, with a note.
Rewritten fuse_quantized(const Graph& graph);

/// Quantized layers in the forms that the device has kernels for. Dequantize -> function of one tensor -> Quantize
/// becomes QUnary, also without a function between, and a product of two dequantized tensors QMul. On a GPU a Quantize
/// moves to before a Reshape that hands its values to nothing else, to the layer that computes them: its kernel may
/// then quantize them, too. On a CPU, whose instructions multiply u8 by s8, activations in i8 with zero point z that
/// convolutions read, and what they are made of, become u8 with zero point z + 128, which hold the same values. The
/// graph's own inputs and outputs keep their type.
Rewritten adapt_quantized(const Graph& graph, DeviceKind device);

/// The mean over all positions of an image [N, C, H, W] that convolutions and their like make becomes a global average
/// pool, and a Reshape where it drops dimensions. Runs after fuse_quantized, for which both are one.
Rewritten pool_means(const Graph& graph);

/// Layers of groups of channels that exporters write with Reshapes. On a CPU an InstanceNorm between Reshapes to
/// [N, groups, ...] and back becomes one of groups of channels: group normalization. Reshape, Transpose and Reshape of
/// groups of channels of [N, C], or of an image that convolutions and their like make, the Concat before and the Split
/// (or Slices) after become ChannelShuffle, which leaves the layers around it in channels_last. Quantization and files
/// know the layers that these are made of.
Rewritten fuse_channel_groups(const Graph& graph, DeviceKind device);

/// Images of more than 16 channels that convolutions or pools of windows read, or that are shuffled, get channels up to
/// the next multiple of 8, which no result depends on as long as all values are finite (their weights are zeros), and
/// ChannelShuffle takes the place of Concat and Split of up to 16 where these join or part such images: kernels read a
/// pixel in units of 16 or 8 bytes. The graph's own inputs and outputs keep their shapes. For a GPU in fp16, bf16
/// and INT8, after fuse_channel_groups.
Rewritten widen_channels(const Graph& graph);

/// Whether the graph holds quantized layers: INT8 ones, or conversions to and from integers.
bool is_quantized(const Graph& graph);

/// Gives every value its layout and inserts ToLayout where a layer asks for another one. No shapes change after it.
Rewritten assign_layouts(const Graph& graph, DeviceKind device = DeviceKind::cpu);

/// Nodes of a graph in INT8 that a plan of scales keeps in floating point, by what it keeps them in. What it keeps in
/// fp16 is not told apart: a GPU stores it so where nothing else is said, and the CPU computes it in f32.
struct KeptNodes {
  std::set<std::string> f32;
  std::set<std::string> bf16;
};

/// Stores floating-point values in the precision's element type (on a GPU that of w8, w4 and int8_dynamic is f16),
/// converting at the graph's inputs and outputs. Runs after assign_layouts; nothing that infers shapes may run after
/// it. fp32 changes nothing of that. On a GPU a first convolution reads an f32 image itself, a first one in INT8 of up
/// to four channels quantizes it itself (in fp32 too, where the graph is of a quantized file), and a last Gemm or
/// WLinear writes f32 itself: no conversions there. Scales of a DynamicQuantize stay f32. In int8, floating-point
/// layers that are connected with a matrix product among them store 16 bits, unless one of them is in `kept.f32`:
/// bfloat16 if one of them is in `kept.bf16`, else on a GPU halves. Other values stay f32.
Rewritten assign_precision(const Graph& graph, Precision precision, DeviceKind device = DeviceKind::cpu,
                           const KeptNodes& kept = {});

}  // namespace pipit::internal
