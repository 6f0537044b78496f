// How much memory this process has taken, and may still take.
#pragma once

#include <cstddef>

namespace pipit::internal {

/// Bytes that can be allocated without swapping: MemAvailable, lowered by what the cgroup leaves. Physical memory
/// where neither is known.
std::size_t available_host_memory();

/// The memory that this process holds now, file pages it maps included, in bytes; 0 where the system does not say.
std::size_t resident_memory();

/// The maximum memory that this process has held at once, file pages it maps included, in bytes: since it started, or
/// since reset_peak_resident_memory().
std::size_t peak_resident_memory();

/// Gives freed memory back to the system and lets peak_resident_memory() start again at what is held now. Returns
/// false where the kernel does not offer it (/proc/self/clear_refs); the peak then goes on.
bool reset_peak_resident_memory();

}  // namespace pipit::internal
