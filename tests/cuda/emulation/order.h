// Races in shared memory, by vector clocks: found whatever the order that the run happened to have. The lanes of a warp
// count as one: what they owe each other (__syncwarp) shows in results alone.
#pragma once

#include <cstdint>
#include <string>

#include "tests/cuda/emulation/machine.h"

namespace pipit::internal::test::emulation {

/// Copies of "cp.async" are in no thread's past until they have been waited for.
constexpr std::uint32_t kNotYet = 0xFFFFFFFE;

std::uint32_t new_actor(std::string name);

/// What the running warp knows goes to `to`; what it does from here on is not part of it.
void release_to(Clocks& to);
void acquire_from(const Clocks& from);

/// Words are counted from the block's window on.
std::uint32_t word_of(std::uint32_t address);

/// The reader: threads, or the copy engine and the matrix unit (PTX ISA, "Async proxy"), for which stores of threads
/// need a fence: the writer's, or the reader's of the time `fenced_at`.
enum class Proxy { generic, async };
void check_read(Block& b, const Warp& w, std::uint32_t word, const char* what, Proxy proxy,
                std::uint64_t fenced_at);
void record_read(Block& b, const Warp& w, std::uint32_t word, const void* where, Proxy proxy);
void check_write(Block& b, const Warp& w, std::uint32_t word, const char* what);
void record_write(Block& b, std::uint32_t word, std::uint32_t actor, std::uint32_t clock, const void* where,
                  const Thread* thread);

void thread_reads(Block& b, std::uint32_t address, std::uint32_t bytes);
/// from: what is stored.
void thread_writes(Block& b, std::uint32_t address, std::uint32_t bytes, const void* from);
/// A copy that counts on m: what waits there comes after it, and after what the thread knows that asked for it.
/// sent: by st.async, which needs no fence.proxy.async.
void engine_writes(Block& b, std::uint32_t address, std::uint32_t bytes, Mbarrier& m, const char* what,
                   bool sent = false);

}  // namespace pipit::internal::test::emulation
