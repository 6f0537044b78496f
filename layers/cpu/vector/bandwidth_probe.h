// How fast memory is read and written by plain vector loops.
#pragma once

#include <cstddef>

#include "engine/platform/ceilings.h"
#include "engine/platform/thread_pool.h"

namespace pipit::internal {

/// The rates of a memory of which each worker goes through `bytes` of its own again and again: what lies in a cache
/// that holds them, or beyond the caches that do not. The loops of STREAM (McCalpin 1995), 64 bytes at a time; of what
/// is larger than caches also memset() and memcpy() of the C library, which may write past them. name and bytes of the
/// result are the caller's to fill in.
MemoryCeiling measure_memory(ThreadPool& pool, std::size_t bytes);

}  // namespace pipit::internal
