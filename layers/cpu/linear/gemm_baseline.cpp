// Any CPU: 3 rows by 16 columns, in vectors of four as the compiler makes them.
#include "layers/cpu/linear/gemm_isa.h"

namespace pipit::internal {

namespace {

#include "layers/cpu/linear/gemm_kernel.h"

struct Floats {
  using Vector = float __attribute__((vector_size(16)));
  static constexpr int kLanes = 4;
  static constexpr int kRows = 3;
  static constexpr int kVectors = 4;

  PIPIT_GEMM_INLINE Vector broadcast(const float* p) { return Vector{*p, *p, *p, *p}; }
  PIPIT_GEMM_INLINE Vector multiply_add(Vector sum, Vector a, Vector b) { return sum + a * b; }
  PIPIT_GEMM_INLINE Vector load(const float* p, std::int64_t n) {
    Vector v{};
    for (std::int64_t i = 0; i < n; ++i) v[i] = p[i];
    return v;
  }
  PIPIT_GEMM_INLINE void store(float* p, Vector v, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) p[i] = v[i];
  }
};

}  // namespace

const GemmIsa gemm_baseline = {"baseline", pack<Floats>, accumulate<Floats>, accumulate_unpacked<Floats>};

}  // namespace pipit::internal
