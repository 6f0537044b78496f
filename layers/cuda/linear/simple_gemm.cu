#include <algorithm>

#include "engine/cuda/runtime.h"
#include "layers/cuda/device/half_math.h"
#include "layers/cuda/linear/gemm.h"

namespace pipit::internal::cuda {

namespace {

constexpr int kTile = 64;   // rows and columns of a block's tile
constexpr int kDepth = 16;  // of k, per step
constexpr int kEach = 4;    // rows and columns of a thread
constexpr int kSide = kTile / kEach;
constexpr int kThreads = kSide * kSide;

template <typename T, typename D>
__global__ void __launch_bounds__(kThreads)
    gemm_kernel(SimpleGemm g, const T* a, const T* b, Addend addend, D* d, std::int64_t row_tiles) {
  // One column of padding keeps the stores of a transposed tile out of each other's banks.
  __shared__ float a_tile[kDepth][kTile + 1];
  __shared__ float b_tile[kDepth][kTile + 1];
  const int tx = static_cast<int>(threadIdx.x) % kSide;
  const int ty = static_cast<int>(threadIdx.x) / kSide;
  const std::int64_t m0 = static_cast<std::int64_t>(blockIdx.x) % row_tiles * kTile;
  const std::int64_t n0 = static_cast<std::int64_t>(blockIdx.x) / row_tiles * kTile;

  for (std::int64_t batch = blockIdx.y; batch < g.batch; batch += gridDim.y) {
    const T* a_matrix = a + batch * g.a_step;
    const T* b_matrix = b + batch * g.b_step;
    float sum[kEach][kEach] = {};
    for (std::int64_t k0 = 0; k0 < g.k; k0 += kDepth) {
      for (int i = static_cast<int>(threadIdx.x); i < kTile * kDepth; i += kThreads) {
        // Neighbouring threads walk along whichever direction is dense.
        const int am = g.a_column == 1 ? i / kDepth : i % kTile;
        const int ak = g.a_column == 1 ? i % kDepth : i / kTile;
        const bool a_inside = m0 + am < g.m && k0 + ak < g.k;
        a_tile[ak][am] = a_inside ? load(a_matrix[(m0 + am) * g.a_row + (k0 + ak) * g.a_column]) : 0.0F;
        const int bn = g.b_row == 1 ? i / kDepth : i % kTile;
        const int bk = g.b_row == 1 ? i % kDepth : i / kTile;
        const bool b_inside = n0 + bn < g.n && k0 + bk < g.k;
        b_tile[bk][bn] = b_inside ? load(b_matrix[(k0 + bk) * g.b_row + (n0 + bn) * g.b_column]) : 0.0F;
      }
      __syncthreads();
      for (int k = 0; k < kDepth; ++k) {
        for (int i = 0; i < kEach; ++i) {
          for (int j = 0; j < kEach; ++j) sum[i][j] += a_tile[k][ty + i * kSide] * b_tile[k][tx + j * kSide];
        }
      }
      __syncthreads();
    }
    for (int i = 0; i < kEach; ++i) {
      for (int j = 0; j < kEach; ++j) {
        const std::int64_t m = m0 + ty + i * kSide;
        const std::int64_t n = n0 + tx + j * kSide;
        if (m >= g.m || n >= g.n) continue;
        float value = g.alpha * sum[i][j];
        if (addend.data != nullptr) {
          value += addend.scale *
                   load(static_cast<const D*>(addend.data)[m * addend.row_step + n * addend.column_step]);
        }
        d[batch * g.m * g.n + m * g.n + n] = store<D>(clamp_value(value, g.clamp.low, g.clamp.high));
      }
    }
  }
}

template <typename T, typename D>
void launch(const SimpleGemm& g, const void* a, const void* b, const Addend& addend, void* d,
            cudaStream_t stream) {
  const std::int64_t row_tiles = (g.m + kTile - 1) / kTile;
  const std::int64_t tiles = row_tiles * ((g.n + kTile - 1) / kTile);
  if (tiles == 0 || g.batch == 0) return;
  const dim3 grid(static_cast<unsigned>(tiles),
                  static_cast<unsigned>(std::min<std::int64_t>(g.batch, 65535)));
  gemm_kernel<<<grid, kThreads, 0, stream>>>(g, static_cast<const T*>(a), static_cast<const T*>(b), addend,
                                             static_cast<D*>(d), row_tiles);
  check_launch("simple_gemm");
}

}  // namespace

void simple_gemm(const SimpleGemm& gemm, DType type, DType output, const void* a, const void* b,
                 const Addend& addend, void* d, cudaStream_t stream) {
  if (type == DType::f16 && output == DType::f16) {
    launch<__half, __half>(gemm, a, b, addend, d, stream);
  } else if (type == DType::f16) {
    launch<__half, float>(gemm, a, b, addend, d, stream);
  } else {
    launch<float, float>(gemm, a, b, addend, d, stream);
  }
}

}  // namespace pipit::internal::cuda
