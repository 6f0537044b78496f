// Which CPU a thread runs on, and how it gets away from one.
#pragma once

namespace pipit::internal {

/// The CPU that the calling thread runs on, or -1 where the system does not say. A few nanoseconds.
int current_cpu();

/// Moves the calling thread to a CPU of its affinity mask for which taken(cpu) is false, and leaves the mask as it was:
/// the system may move the thread again. False when there is no such CPU, or the system refuses.
bool move_away(bool (*taken)(const void* context, int cpu), const void* context);

}  // namespace pipit::internal
