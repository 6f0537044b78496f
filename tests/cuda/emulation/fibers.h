// Threads of a kernel as fibers: each has a stack of its own, and runs until it waits or chance says otherwise.
#pragma once

#include <cstdint>

#include "tests/cuda/emulation/machine.h"

namespace pipit::internal::test::emulation {

/// Gives the thread a stack on which it runs the kernel.
void begin_fiber(Thread& thread);
void end_fiber(Thread& thread);

/// Runs threads until all of a cluster have ended, or those of all clusters. Throws what a thread finds.
void schedule();

/// Once in `one_of` times the thread runs later than the others of its warp, or lets other warps go first.
void perhaps_fall_behind(std::uint32_t one_of);
/// Until what the thread waits for, in `running->until` and beside it, is there.
void wait_for(Wait what);
/// Until anything changes that another thread can have done.
void wait_for_change();
/// Leaves the running thread for ever with an error: from outside of its own stack.
[[noreturn]] void abandon(const char* error);

/// All lanes of `mask` meet in an instruction; the last of them does it for all. payloads: of lanes, others null.
using Together = void (*)(void* const* payloads, std::uint32_t mask);
void meet(int kind, const char* what, std::uint32_t mask, void* payload, Together together);

}  // namespace pipit::internal::test::emulation
