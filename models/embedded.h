// The trained model that is part of the library.
#pragma once

#include <cstddef>
#include <span>

namespace pipit {

/// The bytes of models/resnet20-cifar10.onnx, linked into the library so that the model is found wherever the
/// command is installed.
std::span<const std::byte> resnet20_cifar10_onnx();

}  // namespace pipit
