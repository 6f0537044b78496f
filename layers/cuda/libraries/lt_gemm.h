// Variants of kernels that a library builds: its heuristic's proposals in their order, the best guess first.
#pragma once

#include <cuda_runtime_api.h>

#include <charconv>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/error.h"
#include "engine/cuda/library.h"
#include "engine/graph/dtype.h"
#include "layers/ops/clamp.h"

namespace pipit::internal::cuda {

/// "proposal 0" to "proposal N-1". There may be fewer; creating one of the others then fails.
inline std::vector<std::string> proposals(int count) {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) names.push_back("proposal " + std::to_string(i));
  return names;
}

/// The number in such a name; 0 for an empty one.
inline int proposal_number(std::string_view variant) {
  constexpr std::string_view kPrefix = "proposal ";
  if (variant.empty()) return 0;
  int number = -1;
  if (variant.starts_with(kPrefix)) {
    const std::string_view digits = variant.substr(kPrefix.size());
    const char* end = digits.data() + digits.size();
    if (std::from_chars(digits.data(), end, number).ptr != end) number = -1;
  }
  if (number < 0) fail("there is no variant '{}'", variant);
  return number;
}

// A matrix product of cuBLASLt whose algorithm is chosen once.

/// D = epilogue(alpha * A' * B' + beta * C), all row-major: A' [m, k], B' [k, n], C and D [m, n]. Distances in
/// elements. Operands are f16, bf16 or f32;
/// arithmetic is fp32 (never TF32).
struct GemmShape {
  DType dtype = DType::f32;  ///< of A and B, and of C, D and the bias unless wide_output
  bool wide_output = false;  ///< C, D and the bias are f32 whatever A and B are
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  bool transpose_a = false;  ///< A is stored [k, m]
  bool transpose_b = false;  ///< B is stored [n, k]
  std::int64_t lda = 0;      ///< between rows as stored
  std::int64_t ldb = 0;
  std::int64_t ldd = 0;  ///< of C too
  std::int64_t batch = 1;
  std::int64_t a_step = 0;  ///< between the matrices of a batch
  std::int64_t b_step = 0;
  std::int64_t d_step = 0;  ///< of C too
  float alpha = 1;
  float beta = 0;              ///< 0: C is not read
  const void* bias = nullptr;  ///< n elements on the GPU, `bias_step` apart per batch; null: none
  std::int64_t bias_step = 0;
  bool relu = false;
  std::int64_t alignment = 16;  ///< bytes that every operand's address is a multiple of
};

class LtGemm {
 public:
  static constexpr std::size_t kMaxWorkspace = std::size_t{32} << 20;
  /// How many of the heuristic's proposals are worth timing.
  static constexpr int kProposals = 4;
  /// Asks the library's heuristic for algorithms with the same bits on every run and takes the one with this number,
  /// the first being its best guess. Null when it has none or fewer, with the reason. Throws Error when the
  /// library cannot be used.
  static std::unique_ptr<LtGemm> create(const GemmShape& shape, std::string& reason, int proposal = 0);
  ~LtGemm();
  LtGemm(const LtGemm&) = delete;
  LtGemm& operator=(const LtGemm&) = delete;

  std::size_t workspace_bytes() const { return workspace_; }
  /// `c` may be `d`, and is not read when beta is 0. The workspace is 256-byte aligned.
  void run(const void* a, const void* b, const void* c, void* d, void* workspace, cudaStream_t stream) const;

 private:
  LtGemm() = default;
  float alpha_ = 1;
  float beta_ = 0;
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDesc_t desc_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr;
  cublasLtMatrixLayout_t b_ = nullptr;
  cublasLtMatrixLayout_t d_ = nullptr;
  cublasLtMatmulAlgo_t algorithm_{};
  std::size_t workspace_ = 0;
};

// What a library's epilogue cannot do: y = clamp(y + addends), in place.

/// A matrix added element by element: data[row * row_step + column * column_step], times scale. Steps of 0 broadcast.
struct Addend {
  const void* data = nullptr;  ///< of the output's type; null: nothing is added
  std::int64_t row_step = 0;
  std::int64_t column_step = 0;
  float scale = 1;
};

/// y [rows, columns], row-major and dense, f32, f16 or bf16: y = clamp(y + first + second), fp32 inside. NaN stays NaN.
void apply_epilogue(void* y, DType type, std::int64_t rows, std::int64_t columns, const Addend& first,
                    const Addend& second, const Clamp& clamp, cudaStream_t stream);

}  // namespace pipit::internal::cuda
