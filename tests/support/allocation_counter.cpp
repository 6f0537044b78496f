#include "tests/support/allocation_counter.h"

#include <atomic>
#include <cerrno>
#include <cstddef>

namespace {
std::atomic<bool> counting{false};
std::atomic<long> allocations{0};
std::atomic<long> failing{-1};  // which of those that are counted

// Whether the allocation fails.
[[maybe_unused]] bool note() {
  if (!counting.load(std::memory_order_relaxed)) return false;
  return allocations.fetch_add(1, std::memory_order_relaxed) == failing.load(std::memory_order_relaxed);
}

[[maybe_unused]] void* no_memory() {
  errno = ENOMEM;
  return nullptr;
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

void* malloc(std::size_t bytes) noexcept {
  return note() ? no_memory() : __libc_malloc(bytes);
}
void* calloc(std::size_t count, std::size_t bytes) noexcept {
  return note() ? no_memory() : __libc_calloc(count, bytes);
}
void* realloc(void* old, std::size_t bytes) noexcept {
  return note() ? no_memory() : __libc_realloc(old, bytes);
}
void* memalign(std::size_t alignment, std::size_t bytes) noexcept {
  return note() ? no_memory() : __libc_memalign(alignment, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) noexcept {
  return note() ? no_memory() : __libc_memalign(alignment, bytes);
}
int posix_memalign(void** result, std::size_t alignment, std::size_t bytes) noexcept {
  *result = note() ? nullptr : __libc_memalign(alignment, bytes);
  return *result == nullptr ? ENOMEM : 0;
}
}
#else
#define PIPIT_COUNTS_ALLOCATIONS 0
#endif

namespace pipit::internal::test {

AllocationCounter::AllocationCounter(long fails) {
  allocations = 0;
  failing = fails;
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

}  // namespace pipit::internal::test
