// Counts every heap allocation of the process while one of these lives.
#pragma once

namespace pipit::test {

class AllocationCounter {
 public:
  AllocationCounter();
  ~AllocationCounter();
  AllocationCounter(const AllocationCounter&) = delete;
  AllocationCounter& operator=(const AllocationCounter&) = delete;
  /// Allocations since construction, from all threads: malloc and its kin, and everything built on them.
  long count() const;
  /// False where malloc belongs to a sanitizer and cannot be counted; tests skip then.
  static bool available();
};

}  // namespace pipit::test
