// ResNet-18 and ResNet-50 (He et al., "Deep Residual Learning for Image Recognition", 2016) built in code, as
// torchvision lays them out (v1.5: the stride of a bottleneck is in its 3x3 convolution).
#pragma once

#include <cstdint>

#include "engine/graph/graph.h"

namespace pipit::internal {

enum class ResnetDepth : std::uint8_t { resnet18, resnet50 };

/// Input "input" [batch, 3, 224, 224] f32, output "logits" [batch, 1000]. Weights are drawn from a fixed seed
/// (He initialization) with batch-norm statistics that keep activations near unit variance: for timing, the
/// predictions mean nothing. BatchNormalization, Relu and Add are nodes of their own, as in an exported
/// model.
Graph build_resnet(ResnetDepth depth, std::int64_t batch);

}  // namespace pipit::internal
