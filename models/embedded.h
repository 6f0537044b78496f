// Files that are part of the library, so that they are found wherever the command is installed.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace pipit::internal {

/// The bytes of models/resnet20-cifar10.onnx. Throws UnsupportedError in a minimal build, which does not have them.
std::span<const std::byte> resnet20_cifar10_onnx();

/// Short English names of the 1000 classes of ImageNet (ILSVRC 2012) in their usual order, one per line, no two alike.
std::string_view imagenet_labels();

/// models/fetch/wheel_tensors.py.
std::string_view wheel_tensors_script();

}  // namespace pipit::internal
