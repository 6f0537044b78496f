// EfficientNet-Lite 0 to 2 (Tan & Le, "EfficientNet", 2019, without squeeze-and-excitation and with ReLU6 instead of
// Swish, as TensorFlow's authors made them for phones in 2020) built in code from given weights.
#pragma once

#include <functional>
#include <string>

#include "engine/graph/graph.h"

namespace pipit::internal {

/// Side of the square input of variant 0, 1 or 2, in pixels: 224, 240, 260. Throws Error for another variant.
int efficientnet_lite_side(int variant);

/// Gives the weights of that name, which must have that shape. Names are those of the PyTorch port:
/// "_conv_stem.weight", "_blocks.3._bn1.running_mean", ...
using WeightSource = std::function<Tensor(const std::string& name, const Shape& shape)>;

/// Input "input" [1, 3, side, side] f32, output "logits" [1, 1000]. Padding is TensorFlow's SAME (what is odd goes to
/// the end), epsilon 1e-3. BatchNormalization, Clip and Add are nodes of their own, as in an exported model.
Graph build_efficientnet_lite(int variant, const WeightSource& weight);

}  // namespace pipit::internal
