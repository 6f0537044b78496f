#include "tests/support/allocation_counter.h"

#include <atomic>
#include <cerrno>
#include <cstddef>

namespace {
std::atomic<bool> counting{false};
std::atomic<long> allocations{0};

[[maybe_unused]] void note() {
  if (counting.load(std::memory_order_relaxed)) allocations.fetch_add(1, std::memory_order_relaxed);
}
}  // namespace

#if defined(__GLIBC__) && !PIPIT_SANITIZED
#define PIPIT_COUNTS_ALLOCATIONS 1
// glibc lets a program replace malloc and keeps its own under these names. operator new ends here too.
extern "C" {
void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* old, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);

void* malloc(std::size_t bytes) {
  note();
  return __libc_malloc(bytes);
}
void* calloc(std::size_t count, std::size_t bytes) {
  note();
  return __libc_calloc(count, bytes);
}
void* realloc(void* old, std::size_t bytes) {
  note();
  return __libc_realloc(old, bytes);
}
void* memalign(std::size_t alignment, std::size_t bytes) {
  note();
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  note();
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** result, std::size_t alignment, std::size_t bytes) {
  note();
  *result = __libc_memalign(alignment, bytes);
  return *result == nullptr ? ENOMEM : 0;
}
}
#else
#define PIPIT_COUNTS_ALLOCATIONS 0
#endif

namespace pipit::test {

AllocationCounter::AllocationCounter() {
  allocations = 0;
  counting = true;
}
AllocationCounter::~AllocationCounter() {
  counting = false;
}
long AllocationCounter::count() const {
  return allocations;
}
bool AllocationCounter::available() {
  return PIPIT_COUNTS_ALLOCATIONS == 1;
}

}  // namespace pipit::test
