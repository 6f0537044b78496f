// Counts every heap allocation of the process while one of these lives, and can let one of them fail.
#pragma once

namespace pipit::internal::test {

class AllocationCounter {
 public:
  /// The allocation of index `fails`, from 0, gets no memory; -1: all do.
  explicit AllocationCounter(long fails = -1);
  ~AllocationCounter();
  AllocationCounter(const AllocationCounter&) = delete;
  AllocationCounter& operator=(const AllocationCounter&) = delete;
  /// Allocations since construction, from all threads: malloc and its kin, and everything built on them.
  long count() const;
  /// False where malloc belongs to a sanitizer and cannot be counted; tests skip then.
  static bool available();
};

}  // namespace pipit::internal::test
