// Runs kernels on the CPU, with a random order of their threads, and looks for what is wrong in any order
// (docs/kernels/gpu.md, "Kernels on a CPU"). A test includes this before kernels: their headers are those that
// translate.py has made.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>
#include <vector_functions.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "tests/cuda/emulation/intrinsics.h"
#include "tests/cuda/emulation/ptx_calls.h"

namespace pipit::internal::test::emulation {

struct Launch {
  dim3 grid = 1, block = 1;
  std::size_t shared = 0;  ///< dynamic, in bytes
  unsigned cluster = 1;    ///< blocks of a cluster, along x, or along all of y
  bool cluster_along_y = false;
  std::uint64_t seed = 1;  ///< of all that is left to chance: the same seed, the same run
  int resident = 1;        ///< clusters that are alive at once; 0: all, as cooperative launches have it
  int registers = 0;       ///< of a thread before setmaxnreg; 0: the most that fit
  double lateness = 1;     ///< of copies and products; 0: as soon as possible
};

/// What a run came to.
struct Outcome {
  std::string error;  ///< empty, or what is wrong, where, and with which seed
  std::uint64_t switches = 0, copies = 0, products = 0;
};

Outcome run_grid(const Launch& how, const std::function<void()>& body);

template <typename... Parameters, typename... Arguments>
Outcome run(void (*kernel)(Parameters...), const Launch& how, const Arguments&... arguments) {
  // A copy for every thread, as parameters are.
  return run_grid(how, [&] { kernel(Parameters(arguments)...); });
}

void* allocate(std::size_t bytes);
void release(void* data);

/// Global memory with a page after it, and one before it, that no thread may touch; its end, rounded up to 16 bytes, is
/// the page's. Bulk copies must stay within such memory.
template <typename T>
class Global {
 public:
  /// Every byte is `poison`.
  explicit Global(std::size_t count, int poison = 0xFF)
      : data_(static_cast<T*>(allocate(count * sizeof(T)))), count_(count) {
    std::memset(static_cast<void*>(data_), poison, count * sizeof(T));
  }
  template <typename U>
  explicit Global(const std::vector<U>& from) : Global(from.size() * sizeof(U) / sizeof(T)) {
    std::memcpy(static_cast<void*>(data_), from.data(), count_ * sizeof(T));
  }
  Global(const Global&) = delete;
  Global& operator=(const Global&) = delete;
  ~Global() { release(data_); }
  T* data() { return data_; }
  const T* data() const { return data_; }
  std::size_t size() const { return count_; }
  std::vector<T> values() const { return {data_, data_ + count_}; }

 private:
  T* data_;
  std::size_t count_;
};

}  // namespace pipit::internal::test::emulation
