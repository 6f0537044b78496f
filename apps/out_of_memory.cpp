#include "apps/out_of_memory.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>

#include "apps/commands/commands.h"

namespace pipit::internal::apps {

namespace {

// More than anything here uses of its thread's stack. Those of other threads are whole when they start.
constexpr std::size_t kStack = 1 << 20;
// More than an exception takes.
constexpr std::size_t kException = 1 << 16;
// More than all constructors before main() take.
constexpr std::size_t kConstructors = 1 << 21;
constexpr char kLine[] = "pipit: out of memory\n";

std::terminate_handler otherwise = nullptr;

bool for_lack_of_memory() {
  if (!std::current_exception()) {
    // The library comes here without an exception where it has found no room for one.
    void* const room = std::malloc(kException);
    std::free(room);
    return room == nullptr;
  }
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return true;
  } catch (...) {
    return false;
  }
}

[[noreturn]] void end() {
  if (for_lack_of_memory()) {
    std::fputs(kLine, stderr);
    std::_Exit(kExitRuntime);
  }
  otherwise();
  std::abort();
}

bool has_room(std::size_t bytes) {
  void* const room = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return room != MAP_FAILED && munmap(room, bytes) == 0;
}

// Before constructors of libraries: they want memory, too, and not all look at what malloc gives them (CUDA's runtime).
void prepare() {
  otherwise = std::set_terminate(end);
  if (has_room(kConstructors)) return;
  std::fputs(kLine, stderr);
  std::_Exit(kExitRuntime);
}
[[gnu::section(".preinit_array"), gnu::used]] void (*const at_first)() = prepare;

// Only the last page: those between belong to the process from then on, and take memory when they are used.
[[gnu::noinline]] void touch_stack() {
  char stack[kStack];
  static_cast<volatile char*>(stack)[0] = 0;
}

// The system gives a stack its pages when they are touched, and where it has none that is a segmentation fault.
void grow_stack() {
  rlimit limit{};
  if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur < 2 * kStack) return;
  constexpr std::size_t kAround = 1 << 16;
  if (!has_room(kStack + kAround)) throw std::bad_alloc();
  touch_stack();
}

}  // namespace

void survive_lack_of_memory() {
  grow_stack();
}

}  // namespace pipit::internal::apps
