// Replaces CUDA's header, whose functions are PTX: what kernels here use of it.
#pragma once

#include "tests/cuda/emulation/ptx_calls.h"

namespace cooperative_groups {

struct cluster_group {
  struct arrival_token {};
  void sync() const { barrier_wait(barrier_arrive()); }
  arrival_token barrier_arrive() const {
    pipit::internal::test::emulation::cluster_arrive(true);
    return {};
  }
  void barrier_wait(arrival_token&&) const { pipit::internal::test::emulation::cluster_wait(); }
  template <typename T>
  T* map_shared_rank(T* p, int rank) const {
    return static_cast<T*>(
        pipit::internal::test::emulation::shared_of_block(p, static_cast<std::uint32_t>(rank)));
  }
};
inline cluster_group this_cluster() {
  return {};
}

}  // namespace cooperative_groups
