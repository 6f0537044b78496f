// What translated kernels call instead of PTX: translate.py and ptx.py write these calls. Addresses of shared memory
// are 32 bits wide as on a GPU; those of another block of the cluster have its rank + 1 in the upper eight.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace pipit::internal::test::emulation {

struct Index {
  unsigned x = 0, y = 0, z = 0;
};
struct Coordinates {
  Index thread, block, block_extent, grid_extent;
};
/// The coordinates of the thread that runs.
extern const Coordinates* coordinates;

template <typename T>
using Same = T;

template <typename T>
inline std::uint64_t wide(T v) {
  if constexpr (std::is_pointer_v<T>) {
    return reinterpret_cast<std::uint64_t>(v);
  } else {
    return static_cast<std::uint64_t>(v);
  }
}
template <typename T>
inline void* pointer(T v) {
  return std::bit_cast<void*>(wide(v));
}
/// The bits of a register as another type of the same size; integers of other sizes are converted.
template <typename To, typename From>
inline To as(const From& v) {
  if constexpr (std::is_integral_v<To> && (std::is_integral_v<From> || std::is_enum_v<From>)) {
    return static_cast<To>(v);
  } else {
    static_assert(sizeof(To) == sizeof(From));
    To to;
    std::memcpy(&to, &v, sizeof to);
    return to;
  }
}
template <typename To, typename From>
inline void assign(To& to, const From& v) {
  to = as<To>(v);
}

[[noreturn]] void unknown_ptx(const char* what);

// Shared memory. A variable is known by its key; names are for messages.
void* dynamic_shared(std::size_t alignment);
void* static_shared(const void* key, std::size_t bytes, std::size_t alignment, const char* name);
std::uint32_t shared_address(const void* p);
void* shared_of_block(const void* p,
                      std::uint32_t rank);  // where another block of the cluster has what is at p
void load_shared(std::uint32_t address, void* to, std::size_t bytes, bool acquires);
void store_shared(std::uint32_t address, const void* from, std::size_t bytes);
void fence_proxy_async();

// Global memory.
void load_global(const void* address, void* to, std::size_t bytes, bool acquires);

// Atomics, all of which release. The value is stored in between.
void* begin_add_shared(std::uint32_t address, std::size_t bytes);
void begin_add_global(void* address, std::size_t bytes);
void end_add();
template <typename T>
inline void add_in_place(void* at, T v) {
  T sum;
  std::memcpy(&sum, at, sizeof sum);
  sum = static_cast<T>(sum + v);
  std::memcpy(at, &sum, sizeof sum);
  end_add();
}
template <typename T>
inline void add_shared(std::uint32_t address, T v) {
  add_in_place(begin_add_shared(address, sizeof(T)), v);
}
template <typename T>
inline void add_global(void* at, T v) {
  begin_add_global(at, sizeof(T));
  add_in_place(at, v);
}

// Copies that threads do ("cp.async"), and the copy engine's.
void cp_async(std::uint32_t to, const void* from, int bytes, int bytes_there);
void cp_async_commit();
void cp_async_wait(int pending);
void copy_tensor(std::uint32_t to, const void* map, std::uint32_t barrier, const int* at, int rank,
                 bool im2col, const int* offsets);
void copy_bulk(std::uint32_t to, const void* from, std::uint32_t bytes, std::uint32_t barrier);
void copy_bulk_to_all(std::uint32_t to, const void* from, std::uint32_t bytes, std::uint32_t barrier,
                      std::uint32_t ranks);
void st_async(std::uint32_t to, const std::uint32_t* words, int count, std::uint32_t barrier);

// Barriers in shared memory, of a block and of a cluster; registers of warps.
void mbarrier_init(std::uint32_t address, std::uint32_t count);
void mbarrier_arrive(std::uint32_t address, std::uint32_t count);
void mbarrier_arrive_expect(std::uint32_t address, std::uint32_t bytes);
bool mbarrier_wait(std::uint32_t address, std::uint32_t parity);
void bar_sync(int barrier, int threads);  // threads < 0: all of the block
void bar_arrive(int barrier, int threads);
void fence_mbarrier_init();
void cluster_arrive(bool releases);
void cluster_wait();
std::uint32_t cluster_rank();
std::uint32_t mapa(std::uint32_t address, std::uint32_t rank);
void set_registers(int count, bool more);

// Warps.
std::uint64_t shuffle(std::uint32_t mask, std::uint64_t value, int lane, int width);
std::uint32_t ballot(std::uint32_t mask, bool predicate);
void sync_warp(std::uint32_t mask);
void nanosleep();
void ldmatrix(int count, std::uint32_t address, std::uint32_t* out);
void mma(float (&c)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]);
void mma(int (&c)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]);

// Warpgroups. a: registers of the left operand, or null, and its descriptor.
void wgmma_fence();
void wgmma_commit();
void wgmma_wait(int pending);
void wgmma(int n, float* const* d, const std::uint32_t* const* a, std::uint64_t left, std::uint64_t right,
           bool accumulate);
void wgmma(int n, int* const* d, const std::uint32_t* const* a, std::uint64_t left, std::uint64_t right,
           bool accumulate);

}  // namespace pipit::internal::test::emulation
