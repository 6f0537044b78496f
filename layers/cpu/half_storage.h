// Half precision as storage: every CPU kernel also runs on operands that are stored as f16.
#pragma once

#include "engine/plan/registry.h"

namespace pipit {

/// Registers Cast between f32 and f16 of one layout.
void register_cpu_half_cast(Registry& registry);

/// For every candidate registered for the CPU so far another one behind all of them, "NAME, f16 storage". It converts
/// its f16 operands to f32 in scratch memory, runs the kernel on them, and rounds the results. Accepts in fp16 what
/// the kernel accepts in fp32; the results are those of the f32 kernel on the stored values, rounded to nearest.
void add_half_storage(Registry& registry);

}  // namespace pipit
