// Reads tensors in the safetensors format.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "engine/graph/tensor.h"

namespace pipit::internal {

/// The tensors of a file by name, row_major f32: 8 bytes with the length of a JSON header, the header, the numbers, all
/// little-endian. Throws Error beginning with `name` for anything else: other types, offsets that do not fit a shape or
/// lie outside of `bytes`, a header that is longer than `bytes` or 16 MiB.
std::map<std::string, Tensor> parse_safetensors(std::string_view bytes, const std::string& name);

}  // namespace pipit::internal
