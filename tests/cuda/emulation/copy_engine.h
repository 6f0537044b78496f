// Copies that the copy engine does while threads go on (PTX ISA, "Asynchronous copy"): late, in parts.
#pragma once

#include <cstdint>
#include <memory>

#include "tests/cuda/emulation/machine.h"

namespace pipit::internal::test::emulation {

constexpr std::uint64_t kNothingDue = ~std::uint64_t{0};

/// The tick at which something that begins now is done.
std::uint64_t draw_due();
/// 16-byte chunks of rows change places within the swizzle's bytes as the rows do (CUDA Driver API, "tensor map",
/// swizzle modes; PTX ISA, "Swizzling Modes").
std::uint32_t swizzled(std::uint32_t address, int bytes);
/// What will be overwritten is poisoned; the copy of the pieces, `bytes` in all, is in flight.
void begin_copy(std::unique_ptr<Copy> copy, std::uint32_t bytes);

std::uint64_t first_copy_due();
void run_first_copy();
/// Whether it was due and so ran, a part of it.
bool run_copy_if_due(std::size_t i);

}  // namespace pipit::internal::test::emulation
