// The CPU kernels, registered in one call. They and their headers stay in layers/cpu/.
#pragma once

#include <cstdint>

#include "engine/plan/registry.h"

namespace pipit::internal {

/// Registers every fast CPU candidate, in order of preference. Throws Error where PIPIT_ISA names an instruction set
/// that there is not here.
void register_cpu(Registry& registry);

/// The number of neighbouring outputs that are computed together on this machine, so that a row of K is left out where
/// its weights are zero for all of them: 16, with AVX-512 32. Throws like register_cpu().
std::int64_t cpu_panel_outputs();

/// Whether fp32 kernels of this machine leave out inputs that single outputs do not need, where 16 neighbouring outputs
/// need as many of 16 neighbouring channels. Throws like register_cpu().
bool cpu_picks_inputs();

/// How many products of bfloat16 the instructions of this machine make in the time of one of f32: 16 with AMX, 2 with
/// AVX512-BF16. 0: it has none; bf16 is computed in f32 and takes no less time than fp32. Throws like register_cpu().
double cpu_bf16_products();
inline bool cpu_multiplies_bf16() {
  return cpu_bf16_products() > 0;
}

/// For every candidate registered for the CPU so far another one after all of them, "NAME, 16-bit storage". It converts
/// operands of 16 bits to f32 in scratch memory, runs the kernel on them, and rounds the results. Accepts in fp16 and
/// bf16 what the kernel accepts in fp32; the results are those of the f32 kernel on the stored values, rounded to
/// nearest.
void add_narrow_storage(Registry& registry);

}  // namespace pipit::internal
