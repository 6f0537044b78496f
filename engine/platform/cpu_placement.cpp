#include "engine/platform/cpu_placement.h"

#include <sched.h>

namespace pipit::internal {

int current_cpu() {
  return sched_getcpu();
}

bool move_away(bool (*taken)(const void* context, int cpu), const void* context) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  // Fails on machines with more CPUs than a cpu_set_t holds: then threads stay where they are.
  if (sched_getaffinity(0, sizeof mask, &mask) != 0) return false;
  cpu_set_t free = mask;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &free) && taken(context, cpu)) CPU_CLR(cpu, &free);
  }
  if (CPU_COUNT(&free) == 0 || sched_setaffinity(0, sizeof free, &free) != 0) return false;
  sched_setaffinity(0, sizeof mask, &mask);
  return true;
}

}  // namespace pipit::internal
