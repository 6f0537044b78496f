// The function of 8-bit results that an INT8 convolution computes as well (Candidate::fuses_epilogue).
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "engine/cuda/runtime.h"
#include "engine/plan/registry.h"

namespace pipit::cuda {

/// Candidate::fuses_epilogue of kernels that pass the bytes they write through a table: one QUnary, unless the
/// convolution's own results are floating-point.
bool fuses_table(const NodeSpec& spec, const NodeSpec& next);

using ByteTable = std::array<std::uint8_t, 256>;

/// The follower's table (unary_table); nothing where there is none.
std::optional<ByteTable> follower_table(const NodeSpec& spec);

/// On the GPU; empty where there is none.
DeviceBuffer upload_table(const std::optional<ByteTable>& table);

}  // namespace pipit::cuda
